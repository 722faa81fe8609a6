//! Patches that name what a proxy calls otherwise.
//!
//! A patch with a name that nothing has changes nothing, which may be meant. One with the name that something of
//! this proxy has in the other scheme is not: only those are reported.

use std::net::IpAddr;

use resources::{
    kinds::mesh_proxy_patch::Modification,
    labels,
    naming::{Class as NameClass, Direction, IpVersion, LegacyName, SelfName, classify},
};
use topology::MeshSnapshot;

use super::Patches;
use crate::{
    Admin, Code, DestinationBackend, Finding, Inbound, NamingScheme, Outbound, OwnSidecar, Passthrough,
    names::InboundFacts,
};

/// Kind of object that a name in a `match` refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Cluster,
    Listener,
    RouteConfiguration,
    VirtualHost,
}

impl Sort {
    fn word(self) -> &'static str {
        match self {
            Sort::Cluster => "cluster",
            Sort::Listener => "listener",
            Sort::RouteConfiguration => "route configuration",
            Sort::VirtualHost => "virtual host",
        }
    }
}

/// An object of the proxy: its name, and the one it has in the other scheme.
struct RenamedObject {
    sort: Sort,
    now: String,
    other: String,
}

/// Both are names of one object. Names of a proxy's own objects have two spellings, ours and the one that
/// Kuma shipped.
pub fn same_name(one: &str, other: &str) -> bool {
    let own = |name: &str| name.parse::<SelfName>().ok();
    one == other || own(one).is_some_and(|one| own(other) == Some(one))
}

/// Reports names of a proxy's own objects that its patches get wrong.
pub(crate) fn of_own(own: &OwnSidecar, names: NamingScheme) -> Vec<Finding> {
    let Some(patches) = &own.patches else { return Vec::new() };
    patches.misnamed(names, |other| {
        let inbounds = own.inbounds.iter().flat_map(|inbound| of_inbound(inbound, other));
        let passthrough = own.passthrough.iter().flat_map(|passthrough| of_passthrough(passthrough, other));
        let admin = own.admin.iter().flat_map(|admin| of_admin(admin, other));
        inbounds.chain(passthrough).chain(admin).collect()
    })
}

/// The same for what a class of proxies calls.
pub(crate) fn of_calls(
    patches: Option<&Patches>,
    names: NamingScheme,
    snapshot: &MeshSnapshot,
    outbounds: &[Outbound],
    backends: &[DestinationBackend],
) -> Vec<Finding> {
    let Some(patches) = patches else { return Vec::new() };
    patches.misnamed(names, |other| {
        let outbounds = outbounds.iter().flat_map(|outbound| of_outbound(outbound, snapshot, other));
        let backends = backends.iter().filter_map(|backend| {
            let destination = snapshot.destinations.get(&backend.destination)?;
            let other = other.backend(destination).0;
            Some(RenamedObject { sort: Sort::Cluster, now: backend.cluster.clone(), other })
        });
        outbounds.chain(backends).collect()
    })
}

impl Patches {
    fn misnamed(
        &self,
        names: NamingScheme,
        objects: impl FnOnce(NamingScheme) -> Vec<RenamedObject>,
    ) -> Vec<Finding> {
        let given: Vec<(usize, Sort, &str)> = self
            .modifications()
            .iter()
            .enumerate()
            .flat_map(|(at, modification)| named(modification).map(move |(sort, name)| (at, sort, name)))
            .collect();
        let foreign = |name: &str| match classify(name) {
            NameClass::Legacy(_) => names == NamingScheme::Unified,
            NameClass::Kri(_) | NameClass::SelfName(_) | NameClass::System(_) => {
                names == NamingScheme::Legacy
            }
            NameClass::Other => false,
        };
        let suspects: Vec<_> = given.iter().filter(|(_, _, name)| foreign(name)).collect();
        if suspects.is_empty() {
            return Vec::new();
        }
        let (other, word) = match names {
            NamingScheme::Unified => (NamingScheme::Legacy, "older"),
            NamingScheme::Legacy => (NamingScheme::Unified, "unified"),
        };
        let objects = objects(other);
        let has = |sort: Sort, name: &str| objects.iter().any(|o| o.sort == sort && same_name(name, &o.now));
        let said =
            |sort: Sort, now: &str| given.iter().any(|(_, s, name)| *s == sort && same_name(name, now));
        let mut findings = Vec::new();
        for &&(at, sort, name) in &suspects {
            let found = objects.iter().find(|o| o.sort == sort && same_name(name, &o.other));
            let Some(object) = found.filter(|_| !has(sort, name)) else { continue };
            // A policy for proxies of both schemes names both.
            if said(sort, &object.now) {
                continue;
            }
            let what = sort.word();
            let now = &object.now;
            let text = format!(
                "matches the {what} {name:?}, which is the {word} name of {now:?} in this proxy, so it changes nothing"
            );
            findings.push(self.finding(Code::OtherNamingScheme, at, &text));
        }
        findings
    }
}

/// The names in the `match` of a modification; a JSON patch is never looked at.
fn named(modification: &Modification) -> impl Iterator<Item = (Sort, &str)> {
    let Modification { cluster, listener, network_filter, http_filter, virtual_host } = modification;
    let cluster = cluster.iter().filter_map(|change| change.match_.as_ref()?.name.as_deref());
    let listener = listener.iter().filter_map(|change| change.match_.as_ref()?.name.as_deref());
    let filters = network_filter.iter().chain(http_filter);
    let filters = filters.filter_map(|change| change.match_.as_ref()?.listener_name.as_deref());
    // Those are found by the names of either scheme.
    let filters = filters.filter(|name| {
        !matches!(
            classify(name),
            NameClass::Legacy(LegacyName::Passthrough(..)) | NameClass::SelfName(SelfName::Passthrough(..))
        )
    });
    let hosts = virtual_host.iter().filter_map(|change| change.match_.as_ref());
    let hosts = hosts.flat_map(|given| {
        let routes = given.route_configuration_name.as_deref();
        let routes = routes.map(|name| (Sort::RouteConfiguration, name));
        routes.into_iter().chain(given.name.as_deref().map(|name| (Sort::VirtualHost, name)))
    });
    cluster
        .map(|name| (Sort::Cluster, name))
        .chain(listener.chain(filters).map(|name| (Sort::Listener, name)))
        .chain(hosts)
}

fn of_inbound(inbound: &Inbound, other: NamingScheme) -> [RenamedObject; 4] {
    let Inbound { section, names, address, port, workload, tags, .. } = inbound;
    let service = tags.get(labels::SERVICE).map(String::as_str);
    let address = *address;
    let port = *port;
    let service_port = workload.1;
    let other = other.inbound(InboundFacts { section, address, port, service_port, service });
    [
        RenamedObject { sort: Sort::Cluster, now: names.cluster.clone(), other: other.cluster },
        RenamedObject { sort: Sort::Listener, now: names.listener.clone(), other: other.listener },
        RenamedObject {
            sort: Sort::RouteConfiguration,
            now: names.route_configuration.clone(),
            other: other.route_configuration,
        },
        RenamedObject { sort: Sort::VirtualHost, now: names.virtual_host.clone(), other: other.virtual_host },
    ]
}

fn of_passthrough(passthrough: &Passthrough, other: NamingScheme) -> Vec<RenamedObject> {
    let Passthrough { names, address, direction, .. } = passthrough;
    let version = match address {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    };
    let other = other.passthrough(version, *direction);
    let listener = RenamedObject { sort: Sort::Listener, now: names.listener.clone(), other: other.listener };
    let cluster = RenamedObject { sort: Sort::Cluster, now: names.cluster.clone(), other: other.cluster };
    // Where redirected traffic ends is called the same in both.
    let ends = *direction == Direction::Inbound && !passthrough.allowed;
    if ends { vec![listener] } else { vec![listener, cluster] }
}

fn of_admin(admin: &Admin, other: NamingScheme) -> [RenamedObject; 3] {
    let names = &admin.names;
    let other = other.admin();
    [
        RenamedObject { sort: Sort::Listener, now: names.listener.clone(), other: other.listener },
        RenamedObject { sort: Sort::Cluster, now: names.cluster.clone(), other: other.cluster },
        RenamedObject {
            sort: Sort::Cluster,
            now: names.readiness_cluster.clone(),
            other: other.readiness_cluster,
        },
    ]
}

fn of_outbound(outbound: &Outbound, snapshot: &MeshSnapshot, other: NamingScheme) -> Vec<RenamedObject> {
    let Outbound { destination, names, address, port, .. } = outbound;
    let Some(destination) = snapshot.destinations.get(destination) else { return Vec::new() };
    let other = other.outbound(destination, *address, *port);
    vec![
        RenamedObject { sort: Sort::Listener, now: names.listener.clone(), other: other.listener },
        RenamedObject {
            sort: Sort::RouteConfiguration,
            now: names.route_configuration.clone(),
            other: other.route_configuration,
        },
        RenamedObject { sort: Sort::VirtualHost, now: names.virtual_host.clone(), other: other.virtual_host },
    ]
}
