//! One modification: what it is about, and the message it adds or merges.

use std::cell::OnceCell;

use plan::patches::same_name;
use prost_reflect::DynamicMessage;
use resources::{
    kinds::mesh_proxy_patch::{
        Change, ClusterMatch, FilterMatch, ListenerMatch, Modification, Operation, VirtualHostMatch,
    },
    naming::{Class, LegacyName, SelfName, classify},
};
use xds::Type;

use crate::json;

/// A resource as modifications choose it.
#[derive(Debug, Clone)]
pub(crate) struct PatchedResource<'a> {
    pub kind: Type,
    pub origin: &'a str,
    pub name: &'a str,
    pub tags: Vec<(&'a str, &'a str)>,
}

/// Target of a modification.
#[derive(Clone, Copy)]
pub(super) enum PatchTarget<'a> {
    Cluster(&'a Change<ClusterMatch>),
    Listener(&'a Change<ListenerMatch>),
    NetworkFilter(&'a Change<FilterMatch>),
    HttpFilter(&'a Change<FilterMatch>),
    VirtualHost(&'a Change<VirtualHostMatch>),
}

/// A value, read once, with a field that was ignored.
type Read = Result<(DynamicMessage, Option<String>), String>;

/// A modification and its value.
pub(super) struct PatchStep<'a> {
    /// Its place among all modifications.
    pub at: usize,
    pub what: PatchTarget<'a>,
    value: OnceCell<Option<Read>>,
}

impl<'a> PatchStep<'a> {
    /// `None` for a modification that says nothing, which no user could store.
    pub(super) fn of(at: usize, modification: &'a Modification) -> Option<PatchStep<'a>> {
        let Modification { cluster, listener, network_filter, http_filter, virtual_host } = modification;
        let what = cluster
            .as_ref()
            .map(PatchTarget::Cluster)
            .or(listener.as_ref().map(PatchTarget::Listener))
            .or(network_filter.as_ref().map(PatchTarget::NetworkFilter))
            .or(http_filter.as_ref().map(PatchTarget::HttpFilter))
            .or(virtual_host.as_ref().map(PatchTarget::VirtualHost))?;
        Some(PatchStep { at, what, value: OnceCell::new() })
    }

    /// The field of the modification.
    pub(super) fn field(&self) -> &'static str {
        match self.what {
            PatchTarget::Cluster(_) => "cluster",
            PatchTarget::Listener(_) => "listener",
            PatchTarget::NetworkFilter(_) => "networkFilter",
            PatchTarget::HttpFilter(_) => "httpFilter",
            PatchTarget::VirtualHost(_) => "virtualHost",
        }
    }

    /// The value in Envoy's type; `None` without one.
    pub(super) fn value(&self) -> Option<&Read> {
        let read = || {
            let (fields, type_name) = match self.what {
                PatchTarget::Cluster(change) => (change.fields(), "envoy.config.cluster.v3.Cluster"),
                PatchTarget::Listener(change) => (change.fields(), "envoy.config.listener.v3.Listener"),
                PatchTarget::NetworkFilter(change) => (change.fields(), "envoy.config.listener.v3.Filter"),
                PatchTarget::HttpFilter(change) => (
                    change.fields(),
                    "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
                ),
                PatchTarget::VirtualHost(change) => (change.fields(), "envoy.config.route.v3.VirtualHost"),
            };
            Some(fields?.and_then(|fields| match json::read(type_name, &fields.into()) {
                Err(json::Error::Message { reason, .. }) => Err(reason),
                read => read.map_err(|error| error.to_string()),
            }))
        };
        self.value.get_or_init(read).as_ref()
    }

    /// The kind of resources that it adds one of.
    fn adding(&self) -> Option<Type> {
        match self.what {
            PatchTarget::Cluster(change) if change.operation == Operation::Add => Some(Type::Cluster),
            PatchTarget::Listener(change) if change.operation == Operation::Add => Some(Type::Listener),
            _ => None,
        }
    }

    pub(super) fn adds(&self) -> bool {
        self.adding().is_some()
    }

    /// The kind and the name of a resource that it adds; `None` where its value cannot be read.
    pub(super) fn added(&self) -> Option<(Type, String)> {
        let kind = self.adding()?;
        let (message, _) = self.value()?.as_ref().ok()?;
        Some((kind, name_of(message)))
    }

    /// The modification may change the resource.
    pub(super) fn chooses(&self, of: &PatchedResource<'_>) -> bool {
        let same = |given: Option<&String>, name: &str| given.is_none_or(|given| same_name(given, name));
        let origin = |given: Option<&String>| given.is_none_or(|given| given == of.origin);
        match (self.what, of.kind) {
            (PatchTarget::Cluster(change), Type::Cluster) if change.operation != Operation::Add => {
                let Some(given) = &change.match_ else { return true };
                same(given.name.as_ref(), of.name) && origin(given.origin.as_ref())
            }
            (PatchTarget::Listener(change), Type::Listener) if change.operation != Operation::Add => {
                let Some(given) = &change.match_ else { return true };
                same(given.name.as_ref(), of.name)
                    && origin(given.origin.as_ref())
                    && of.carries(given.tags.iter().flatten())
            }
            (PatchTarget::NetworkFilter(change) | PatchTarget::HttpFilter(change), Type::Listener) => {
                let Some(given) = &change.match_ else { return true };
                let listener = given.listener_name.as_ref();
                listener.is_none_or(|given| same_name(given, of.name) || same_passthrough(given, of.name))
                    && origin(given.origin.as_ref())
                    && of.carries(given.listener_tags.iter().flatten())
            }
            (PatchTarget::VirtualHost(change), Type::Listener) => {
                change.match_.as_ref().is_none_or(|given| origin(given.origin.as_ref()))
            }
            (_, kind) => self.added().is_some_and(|(added, name)| added == kind && name == of.name),
        }
    }
}

impl PatchedResource<'_> {
    /// The resource has all these tags; `*` stands for any value.
    fn carries<'a>(&self, mut tags: impl Iterator<Item = (&'a String, &'a String)>) -> bool {
        tags.all(|(name, value)| {
            self.tags.iter().any(|(has, of)| has == name && (value == "*" || of == value))
        })
    }
}

/// The name that a message has in its first field.
pub(super) fn name_of(message: &DynamicMessage) -> String {
    let name = message.get_field_by_name("name");
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Filters of what lets traffic through are found by the names of either scheme, as in Kuma.
fn same_passthrough(given: &str, name: &str) -> bool {
    let of = |name: &str| match classify(name) {
        Class::SelfName(SelfName::Passthrough(ip, direction))
        | Class::Legacy(LegacyName::Passthrough(ip, direction)) => Some((ip, direction)),
        _ => None,
    };
    of(given).is_some_and(|given| of(name) == Some(given))
}
