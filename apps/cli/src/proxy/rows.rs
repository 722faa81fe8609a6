//! Fields of each listener, route, cluster, endpoint and secret. The same fields, in the same order, whatever the proxy
//! says: programs may rely on them.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use identity::described::CertificateDescription;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{
    Part,
    dump::{Dump, DumpEntry, at, each, is_type},
};
use crate::{
    cell::{endpoint, text},
    names::ObjectNames,
};

/// A row of any part, with the resource its name stands for.
#[derive(Debug, Serialize)]
pub struct Row<R> {
    pub name: String,
    /// Scheme of the name.
    pub kind: &'static str,
    #[serde(flatten)]
    pub of: R,
    pub kri: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Listener {
    #[serde(flatten)]
    pub address: EnvoyAddress,
    pub protocols: Vec<&'static str>,
    pub direction: Option<String>,
    pub tls: bool,
    pub state: &'static str,
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    pub virtual_host: Option<String>,
    pub domains: Vec<String>,
    pub route: Option<String>,
    pub r#match: String,
    pub destinations: Vec<String>,
    pub state: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Cluster {
    pub r#type: String,
    pub endpoints: Vec<EnvoyAddress>,
    pub protocol: &'static str,
    pub tls: bool,
    pub state: &'static str,
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Endpoint {
    #[serde(flatten)]
    pub address: EnvoyAddress,
    pub health: String,
    pub weight: u64,
    pub zone: Option<String>,
    pub priority: u64,
    pub state: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    pub r#type: Option<&'static str>,
    pub state: &'static str,
    /// The proxy's own comes first.
    pub certificates: Vec<Certificate>,
    pub last_updated: Option<String>,
}

/// Fields of a certificate. Keys are no part of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    pub subject: String,
    pub subject_alternative_names: Vec<String>,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Something of a resource, shown under its name.
struct Named<R> {
    name: String,
    of: R,
}

pub fn listeners(dump: &Dump, names: &ObjectNames) -> Vec<Row<Listener>> {
    sorted(dump.entries(Part::Listeners).iter().map(listener), names)
}

/// In the order in which a configuration has them, because it matters.
pub fn routes(dump: &Dump, names: &ObjectNames) -> Vec<Row<Route>> {
    sorted(dump.entries(Part::Routes).iter().flat_map(routes_of), names)
}

pub fn clusters(dump: &Dump, names: &ObjectNames) -> Vec<Row<Cluster>> {
    sorted(dump.entries(Part::Clusters).iter().map(cluster), names)
}

pub fn endpoints(dump: &Dump, names: &ObjectNames) -> Vec<Row<Endpoint>> {
    let mut found: Vec<Named<Endpoint>> =
        dump.entries(Part::Endpoints).iter().flat_map(endpoints_of).collect();
    found.sort_by_cached_key(|named| (named.of.address.address.clone(), named.of.address.port));
    sorted(found, names)
}

pub fn secrets(dump: &Dump, names: &ObjectNames) -> Vec<Row<Secret>> {
    sorted(dump.entries(Part::Secrets).iter().map(secret), names)
}

/// By name, because Envoy's own order is that of a hash table; parts of one name stay in their order.
fn sorted<R>(found: impl IntoIterator<Item = Named<R>>, names: &ObjectNames) -> Vec<Row<R>> {
    let row = |Named { name, of }| Row { kind: names.class(&name), kri: names.kri(&name), name, of };
    let mut rows: Vec<Row<R>> = found.into_iter().map(row).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    rows
}

/// Endpoints are named by their cluster.
pub fn name(resource: &Value) -> String {
    let name = text(at(resource, "name"));
    if name.is_empty() { text(at(resource, "cluster_name")) } else { name }
}

/// Address at which something listens or is reached; no port for sockets of files and inside Envoy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnvoyAddress {
    pub address: Option<String>,
    pub port: Option<u32>,
}

impl fmt::Display for EnvoyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.address.as_deref().unwrap_or("-");
        match self.port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => write!(f, "{host}"),
        }
    }
}

impl EnvoyAddress {
    /// As a cell; empty where there is none.
    pub fn cell(&self) -> String {
        endpoint(self.address.as_deref().unwrap_or_default(), self.port)
    }
}

pub fn address(of: &Value) -> EnvoyAddress {
    let socket = at(of, "socket_address");
    let elsewhere =
        [at(at(of, "pipe"), "path"), at(at(of, "envoy_internal_address"), "server_listener_name")];
    let host = std::iter::once(at(socket, "address")).chain(elsewhere).find_map(string);
    let port = at(socket, "port_value").as_u64().and_then(|port| port.try_into().ok());
    EnvoyAddress { address: host, port }
}

/// A text, as it was sent.
fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The health of an endpoint by its `health_status` in Envoy's list of clusters.
pub fn health(status: &Value) -> String {
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

fn listener(entry: &DumpEntry<'_>) -> Named<Listener> {
    let of = entry.resource;
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
    let listener = Listener {
        address: address(at(of, "address")),
        protocols,
        direction: at(of, "traffic_direction").as_str().map(str::to_lowercase),
        tls: chains(of).any(|chain| !at(chain, "transport_socket").is_null()),
        state: entry.state,
        error: string(entry.error),
    };
    Named { name: name(of), of: listener }
}

fn routes_of(entry: &DumpEntry<'_>) -> Vec<Named<Route>> {
    let configuration = name(entry.resource);
    let mut rows = Vec::new();
    for host in each(at(entry.resource, "virtual_hosts")) {
        for route in each(at(host, "routes")) {
            let route = Route {
                virtual_host: string(at(host, "name")),
                domains: each(at(host, "domains")).filter_map(string).collect(),
                route: string(at(route, "name")),
                r#match: matching(at(route, "match")),
                destinations: destinations(route),
                state: entry.state,
            };
            rows.push(Named { name: configuration.clone(), of: route });
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

fn cluster(entry: &DumpEntry<'_>) -> Named<Cluster> {
    let of = entry.resource;
    let assigned = lb_endpoints(at(of, "load_assignment"));
    let tls = !at(of, "transport_socket").is_null() || each(at(of, "transport_socket_matches")).count() > 0;
    let cluster = Cluster {
        r#type: at(of, "type").as_str().unwrap_or("STATIC").to_owned(),
        endpoints: assigned.map(|(_, endpoint)| address(at(at(endpoint, "endpoint"), "address"))).collect(),
        protocol: spoken(of),
        tls,
        state: entry.state,
        error: string(entry.error),
    };
    Named { name: name(of), of: cluster }
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

fn endpoints_of(entry: &DumpEntry<'_>) -> Vec<Named<Endpoint>> {
    let name = name(entry.resource);
    let endpoint = |(group, endpoint)| Endpoint {
        address: address(at(at(endpoint, "endpoint"), "address")),
        health: at(endpoint, "health_status").as_str().unwrap_or("UNKNOWN").to_lowercase(),
        weight: at(endpoint, "load_balancing_weight").as_u64().unwrap_or(1),
        zone: string(at(at(group, "locality"), "zone")),
        priority: at(group, "priority").as_u64().unwrap_or(0),
        state: entry.state,
    };
    let found = lb_endpoints(entry.resource).map(endpoint);
    found.map(|of| Named { name: name.clone(), of }).collect()
}

fn secret(entry: &DumpEntry<'_>) -> Named<Secret> {
    let of = entry.resource;
    let types = [
        ("tls_certificate", "certificate"),
        ("validation_context", "authorities"),
        ("session_ticket_keys", "session ticket keys"),
        ("generic_secret", "generic"),
    ];
    let secret = Secret {
        r#type: types.iter().find(|(field, _)| !at(of, field).is_null()).map(|(_, kind)| *kind),
        state: entry.state,
        certificates: certificates(of),
        last_updated: string(entry.updated),
    };
    Named { name: name(of), of: secret }
}

fn certificates(secret: &Value) -> Vec<Certificate> {
    let chain = at(at(secret, "tls_certificate"), "certificate_chain");
    let trusted = at(at(secret, "validation_context"), "trusted_ca");
    let pems = [chain, trusted].into_iter().filter_map(inline);
    let described = pems.flat_map(|pem| CertificateDescription::all_of_pem(&pem).unwrap_or_default());
    let certificate = |CertificateDescription { subject, names, issuer, not_before, not_after, .. }| {
        Certificate { subject, subject_alternative_names: names, issuer, not_before, not_after }
    };
    described.map(certificate).collect()
}

/// The text of a data source that holds its data itself.
fn inline(source: &Value) -> Option<String> {
    if let Some(text) = string(at(source, "inline_string")) {
        return Some(text);
    }
    let bytes = BASE64_STANDARD.decode(at(source, "inline_bytes").as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}
