//! A proxy's configuration, either as Envoy dumps it or as the control plane shows it.
//!
//! Envoy groups resources by how it got them and spells fields `filter_chains`; the control plane
//! keeps them by type and name and spells fields `filterChains`. Both are read here, so that
//! other modules need not know where a document came from.

use serde_json::Value;

use super::{Part, rows};
use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    inspect::dataplane::{ask, attempted},
};

/// A whole configuration.
pub struct Dump {
    pub document: Value,
}

/// One resource and what is known about how it got there.
pub struct DumpEntry<'a> {
    pub resource: &'a Value,
    /// `static`, `active`, `warming`, `rejected`, or `expected` if the control plane said it.
    pub state: &'static str,
    /// Reason of Envoy's rejection.
    pub error: &'a Value,
    /// Time at which it was taken over.
    pub updated: &'a Value,
}

/// Places of resources in Envoy's dump: the type of the section, then the field of each list, the way from an entry to
/// the resource, and what being in that list means.
type Places = (&'static str, &'static [(&'static str, &'static [&'static str], &'static str)]);

impl Dump {
    /// Configuration that the proxy runs.
    pub fn of_proxy(client: &ApiClient, mesh: &str, name: &str, endpoints: bool) -> Result<Dump> {
        let view = if endpoints { "xds?include_eds=true" } else { "xds" };
        Dump::read(client, mesh, name, view, "configs")
    }

    /// Configuration that the control plane would send the proxy now; with what policies in shadow would do, and the
    /// difference that makes, if that is asked for.
    pub fn of_control_plane(
        client: &ApiClient,
        mesh: &str,
        name: &str,
        shadow: bool,
        diff: bool,
    ) -> Result<Dump> {
        let shadow = shadow.then_some("shadow=true");
        let query: Vec<&str> = shadow.into_iter().chain(diff.then_some("include=diff")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        Dump::read(client, mesh, name, &format!("_config{query}"), "xds")
    }

    fn read(client: &ApiClient, mesh: &str, name: &str, view: &str, expected: &str) -> Result<Dump> {
        let document = ask(client, mesh, name, view)?.json(&attempted(mesh, name))?;
        if document.get(expected).is_none() {
            return Err(Failure::failed(format!("{}: the answer has no {expected}", attempted(mesh, name))));
        }
        Ok(Dump { document })
    }

    /// The difference that policies in shadow make, as operations of a JSON patch.
    pub fn difference(&self) -> &[Value] {
        self.document.get("diff").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Sections of Envoy's dump.
    pub fn configs(&self) -> &Value {
        at(&self.document, "configs")
    }

    pub fn entries(&self, part: Part) -> Vec<DumpEntry<'_>> {
        match self.document.get("xds") {
            Some(types) => expected(types, part),
            None => running(self.configs(), part),
        }
    }

    /// The type and name of everything there is, in a stable order.
    pub fn names(&self) -> Vec<(&'static str, String)> {
        let parts = [
            (Part::Listeners, "Listener"),
            (Part::Routes, "RouteConfiguration"),
            (Part::Clusters, "Cluster"),
            (Part::Endpoints, "ClusterLoadAssignment"),
            (Part::Secrets, "Secret"),
        ];
        let mut names = Vec::new();
        for (part, kind) in parts {
            let mut found: Vec<String> =
                self.entries(part).iter().map(|entry| rows::name(entry.resource)).collect();
            found.sort();
            found.dedup();
            names.extend(found.into_iter().map(|name| (kind, name)));
        }
        names
    }
}

/// A field by its name in protobuf, in either spelling.
pub fn at<'a>(value: &'a Value, field: &str) -> &'a Value {
    if let Some(found) = value.get(field) {
        return found;
    }
    let mut camel = String::with_capacity(field.len());
    let mut words = field.split('_');
    camel.push_str(words.next().unwrap_or_default());
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    value.get(&camel).unwrap_or(&Value::Null)
}

pub fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn running(configs: &Value, part: Part) -> Vec<DumpEntry<'_>> {
    let (section, lists) = places(part);
    let sections = each(configs).filter(|config| is_type(config, section));
    let mut found = Vec::new();
    for config in sections {
        for (field, way, state) in lists {
            for entry in each(at(config, field)) {
                let resource = way.iter().fold(entry, |value, step| at(value, step));
                if resource.is_null() {
                    continue;
                }
                let error = at(at(entry, "error_state"), "details");
                // What is being tried and was refused is not warming any more.
                let refused = *state == "warming" && !error.is_null();
                let state = if refused { "rejected" } else { state };
                let error = if state == "rejected" { error } else { &Value::Null };
                let updated = [at(entry, "last_updated"), at(at(entry, "active_state"), "last_updated")];
                let updated = updated.into_iter().find(|time| !time.is_null()).unwrap_or(&Value::Null);
                // Envoy tells of one failure twice: where it tried, and once more without saying where.
                let told = |entry: &DumpEntry<'_>| entry.state == "rejected" && entry.resource == resource;
                if state != "rejected" || !found.iter().any(told) {
                    found.push(DumpEntry { resource, state, error, updated });
                }
            }
        }
    }
    found
}

fn places(part: Part) -> Places {
    match part {
        Part::Listeners => (
            "ListenersConfigDump",
            &[
                ("static_listeners", &["listener"], "static"),
                ("dynamic_listeners", &["active_state", "listener"], "active"),
                ("dynamic_listeners", &["warming_state", "listener"], "warming"),
                ("dynamic_listeners", &["error_state", "failed_configuration"], "rejected"),
            ],
        ),
        Part::Routes => (
            "RoutesConfigDump",
            &[
                ("static_route_configs", &["route_config"], "static"),
                ("dynamic_route_configs", &["route_config"], "active"),
            ],
        ),
        Part::Clusters => (
            "ClustersConfigDump",
            &[
                ("static_clusters", &["cluster"], "static"),
                ("dynamic_active_clusters", &["cluster"], "active"),
                ("dynamic_warming_clusters", &["cluster"], "warming"),
            ],
        ),
        Part::Endpoints => (
            "EndpointsConfigDump",
            &[
                ("static_endpoint_configs", &["endpoint_config"], "static"),
                ("dynamic_endpoint_configs", &["endpoint_config"], "active"),
            ],
        ),
        Part::Secrets => (
            "SecretsConfigDump",
            &[
                ("static_secrets", &["secret"], "static"),
                ("dynamic_active_secrets", &["secret"], "active"),
                ("dynamic_warming_secrets", &["secret"], "warming"),
            ],
        ),
    }
}

/// Resources by type, and those that stand inside others: routes of listeners, endpoints of clusters.
fn expected(types: &Value, part: Part) -> Vec<DumpEntry<'_>> {
    let of_type = |wanted: &str| -> Vec<&Value> {
        let types = types.as_object().into_iter().flatten();
        let wanted = types.filter(|(url, _)| url.rsplit('.').next() == Some(wanted));
        wanted.filter_map(|(_, all)| all.as_object()).flat_map(serde_json::Map::values).collect()
    };
    let mut found = match part {
        Part::Listeners => of_type("Listener"),
        Part::Routes => of_type("RouteConfiguration"),
        Part::Clusters => of_type("Cluster"),
        Part::Endpoints => of_type("ClusterLoadAssignment"),
        Part::Secrets => of_type("Secret"),
    };
    let inside = match part {
        Part::Routes => of_type("Listener")
            .into_iter()
            .flat_map(rows::filters)
            .map(|filter| at(at(filter, "typed_config"), "route_config"))
            .collect(),
        Part::Endpoints => {
            of_type("Cluster").into_iter().map(|cluster| at(cluster, "load_assignment")).collect()
        }
        _ => Vec::new(),
    };
    found.extend(inside.into_iter().filter(|resource| !resource.is_null()));
    let entry =
        |resource| DumpEntry { resource, state: "expected", error: &Value::Null, updated: &Value::Null };
    found.into_iter().map(entry).collect()
}

/// True if the message is of the type with this last part.
pub fn is_type(message: &Value, name: &str) -> bool {
    at(message, "@type").as_str().is_some_and(|url| url.rsplit('.').next() == Some(name))
}
