//! What is shown of each listener, route, cluster, endpoint and secret. The same fields, in the same
//! order, whatever the proxy says: programs may rely on them.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use identity::described::Described;
use serde_json::{Value, json};

use super::{
    Part,
    dump::{Dump, Entry, at, each, is_type},
};
use crate::{cell::text, names::Names};

/// The rows of one part, by name, each with the resource its name stands for.
pub fn of(dump: &Dump, part: Part, names: &Names) -> Vec<Value> {
    let entries = dump.entries(part);
    let mut rows: Vec<Value> = match part {
        Part::Listeners => entries.iter().map(listener).collect(),
        Part::Routes => entries.iter().flat_map(routes).collect(),
        Part::Clusters => entries.iter().map(cluster).collect(),
        Part::Endpoints => entries.iter().flat_map(endpoints).collect(),
        Part::Secrets => entries.iter().map(secret).collect(),
    };
    // Envoy's own order is that of a hash table. That of routes matters, so it is kept.
    match part {
        Part::Endpoints => {
            rows.sort_by_cached_key(|row| (text(&row["name"]), text(&row["address"]), row["port"].as_u64()))
        }
        _ => rows.sort_by_cached_key(|row| text(&row["name"])),
    }
    rows.into_iter().map(|row| explained(row, names)).collect()
}

/// A row with how its name is made and the resource that stands behind it.
fn explained(row: Value, names: &Names) -> Value {
    let name = text(&row["name"]);
    let mut out = json!({ "name": name, "kind": names.class(&name) });
    for (field, value) in row.as_object().into_iter().flatten() {
        out[field] = value.clone();
    }
    out["kri"] = names.kri(&name).into();
    out
}

/// Endpoints are named by their cluster.
pub fn name(resource: &Value) -> String {
    let name = text(at(resource, "name"));
    if name.is_empty() { text(at(resource, "cluster_name")) } else { name }
}

/// Where something listens or is reached; no port for sockets of files and inside Envoy.
pub struct Address {
    host: Option<String>,
    port: Option<u64>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("-");
        match self.port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => write!(f, "{host}"),
        }
    }
}

pub fn address(of: &Value) -> Address {
    let socket = at(of, "socket_address");
    let elsewhere =
        [at(at(of, "pipe"), "path"), at(at(of, "envoy_internal_address"), "server_listener_name")];
    let host = std::iter::once(at(socket, "address")).chain(elsewhere).find_map(Value::as_str);
    Address { host: host.map(str::to_owned), port: at(socket, "port_value").as_u64() }
}

/// The health of an endpoint in Envoy's list of clusters.
pub fn health(host: &Value) -> String {
    let status = at(host, "health_status");
    let failed = |check: &str| at(status, check) == true;
    if failed("failed_active_health_check") {
        return "failed_active_check".to_owned();
    }
    if failed("failed_outlier_check") {
        return "ejected".to_owned();
    }
    at(status, "eds_health_status").as_str().unwrap_or("UNKNOWN").to_lowercase()
}

/// The filters of all chains of a listener.
pub fn filters(listener: &Value) -> impl Iterator<Item = &Value> {
    chains(listener).flat_map(|chain| each(at(chain, "filters")))
}

fn chains(listener: &Value) -> impl Iterator<Item = &Value> {
    each(at(listener, "filter_chains")).chain([at(listener, "default_filter_chain")])
}

fn listener(entry: &Entry<'_>) -> Value {
    let of = entry.resource;
    let name = name(of);
    let address = address(at(of, "address"));
    let speaks = |filter: &str| filters(of).any(|f| is_type(at(f, "typed_config"), filter));
    let mut protocols = Vec::new();
    for (filter, protocol) in [("HttpConnectionManager", "http"), ("TcpProxy", "tcp")] {
        if speaks(filter) {
            protocols.push(protocol);
        }
    }
    if at(at(at(of, "address"), "socket_address"), "protocol") == "UDP" {
        protocols.push("udp");
    }
    let direction = at(of, "traffic_direction").as_str().map(str::to_lowercase);
    json!({
        "name": name, "address": address.host, "port": address.port,
        "protocols": protocols, "direction": direction,
        "tls": chains(of).any(|chain| !at(chain, "transport_socket").is_null()),
        "state": entry.state, "error": entry.error,
    })
}

fn routes(entry: &Entry<'_>) -> Vec<Value> {
    let configuration = name(entry.resource);
    let mut rows = Vec::new();
    for host in each(at(entry.resource, "virtual_hosts")) {
        for route in each(at(host, "routes")) {
            rows.push(json!({
                "name": configuration, "virtualHost": at(host, "name"),
                "domains": at(host, "domains"), "route": at(route, "name"), "match": matching(at(route, "match")),
                "destinations": destinations(route), "state": entry.state,
            }));
        }
    }
    rows
}

/// `prefix /api`, and how many conditions there are in addition to the path.
fn matching(of: &Value) -> String {
    let path = [
        ("path", at(of, "path")),
        ("prefix", at(of, "prefix")),
        ("prefix", at(of, "path_separated_prefix")),
        ("regex", at(at(of, "safe_regex"), "regex")),
    ];
    let path = path.into_iter().find(|(_, value)| value.is_string());
    let mut shown = path.map_or_else(|| "any".to_owned(), |(how, value)| format!("{how} {}", text(value)));
    for (field, what) in [("headers", "headers"), ("query_parameters", "parameters")] {
        let count = each(at(of, field)).count();
        if count > 0 {
            shown.push_str(&format!(" +{count} {what}"));
        }
    }
    shown
}

fn destinations(route: &Value) -> Vec<String> {
    let to = at(route, "route");
    if let Some(cluster) = at(to, "cluster").as_str() {
        return vec![cluster.to_owned()];
    }
    if !at(route, "redirect").is_null() {
        return vec!["redirect".to_owned()];
    }
    let direct = at(route, "direct_response");
    if !direct.is_null() {
        return vec![format!("status {}", text(at(direct, "status")))];
    }
    let weighted = each(at(at(to, "weighted_clusters"), "clusters"));
    weighted
        .map(|cluster| match at(cluster, "weight").as_u64() {
            Some(weight) => format!("{}={weight}", text(at(cluster, "name"))),
            None => text(at(cluster, "name")),
        })
        .collect()
}

fn cluster(entry: &Entry<'_>) -> Value {
    let of = entry.resource;
    let name = name(of);
    let assigned: Vec<Value> = lb_endpoints(at(of, "load_assignment"))
        .map(|(_, endpoint)| {
            let address = address(at(at(endpoint, "endpoint"), "address"));
            json!({ "address": address.host, "port": address.port })
        })
        .collect();
    let tls = !at(of, "transport_socket").is_null() || each(at(of, "transport_socket_matches")).count() > 0;
    json!({
        "name": name, "type": at(of, "type").as_str().unwrap_or("STATIC"),
        "endpoints": assigned, "protocol": spoken(of), "tls": tls, "state": entry.state, "error": entry.error,
    })
}

/// The protocol towards endpoints; Envoy passes bytes on unless configured otherwise.
fn spoken(cluster: &Value) -> &'static str {
    let options = at(cluster, "typed_extension_protocol_options").as_object().into_iter().flatten();
    let http = options.map(|(_, options)| options).find(|options| is_type(options, "HttpProtocolOptions"));
    let Some(http) = http else {
        return if at(cluster, "http2_protocol_options").is_null() { "tcp" } else { "http2" };
    };
    if at(at(http, "explicit_http_config"), "http2_protocol_options").is_null() { "http" } else { "http2" }
}

/// Endpoints, each with the group it is in.
fn lb_endpoints(assignment: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    each(at(assignment, "endpoints"))
        .flat_map(|group| each(at(group, "lb_endpoints")).map(move |endpoint| (group, endpoint)))
}

fn endpoints(entry: &Entry<'_>) -> Vec<Value> {
    let name = name(entry.resource);
    lb_endpoints(entry.resource)
        .map(|(group, endpoint)| {
            let address = address(at(at(endpoint, "endpoint"), "address"));
            let health = at(endpoint, "health_status").as_str().unwrap_or("UNKNOWN").to_lowercase();
            json!({
                "name": name, "address": address.host, "port": address.port,
                "health": health, "weight": at(endpoint, "load_balancing_weight").as_u64().unwrap_or(1),
                "zone": at(at(group, "locality"), "zone"),
                "priority": at(group, "priority").as_u64().unwrap_or(0), "state": entry.state,
            })
        })
        .collect()
}

fn secret(entry: &Entry<'_>) -> Value {
    let of = entry.resource;
    let name = name(of);
    let types = [
        ("tls_certificate", "certificate"),
        ("validation_context", "authorities"),
        ("session_ticket_keys", "session ticket keys"),
        ("generic_secret", "generic"),
    ];
    let kind = types.iter().find(|(field, _)| !at(of, field).is_null()).map(|(_, kind)| *kind);
    json!({
        "name": name, "type": kind, "state": entry.state, "certificates": certificates(of),
        "lastUpdated": entry.updated,
    })
}

/// What the certificates of a secret say; the proxy's own comes first. Keys are no part of it.
fn certificates(secret: &Value) -> Vec<Value> {
    let chain = at(at(secret, "tls_certificate"), "certificate_chain");
    let trusted = at(at(secret, "validation_context"), "trusted_ca");
    let pems = [chain, trusted].into_iter().filter_map(inline);
    let described = pems.flat_map(|pem| Described::all_of_pem(&pem).unwrap_or_default());
    described
        .map(|certificate| {
            json!({
                "subject": certificate.subject, "subjectAlternativeNames": certificate.names,
                "issuer": certificate.issuer, "notBefore": certificate.not_before.to_string(),
                "notAfter": certificate.not_after.to_string(),
            })
        })
        .collect()
}

/// The text of a data source that holds its data itself.
fn inline(source: &Value) -> Option<String> {
    if let Some(text) = at(source, "inline_string").as_str() {
        return Some(text.to_owned());
    }
    let bytes = BASE64_STANDARD.decode(at(source, "inline_bytes").as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}
