//! Validation of a Dataplane.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    Dataplane, Gateway, GatewayType, Inbound, Listener, ListenerType, Networking, Outbound, Probes,
    ReachableBackendRef, ServiceProbe, TransparentProxying,
};
use crate::{
    Path, Violations,
    duration::ProtoDuration,
    kinds::{
        mesh::observability::{check_metrics_backend, is_request_uri},
        open_enum::OpenEnum,
        protocol::Protocol,
        tags::{self, Need, check_port},
    },
    labels,
    naming::{dns, section},
};

const BACKEND_KINDS: [&str; 3] = ["MeshExternalService", "MeshMultiZoneService", "MeshService"];
const NOT_AN_IDENTIFIER: &str = "invalid characters. A lowercase RFC 1123 subdomain must consist of lower \
     case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const SAME_AS_PROXY: &str = "serviceAddress and servicePort has to differ from address and port";

pub(super) fn validate(dataplane: &Dataplane, found: &mut Violations) {
    let path = Path::new("networking");
    let Some(networking) = &dataplane.networking else {
        found.add(path, "must be defined");
        return;
    };
    check_admin_port(networking, &path, found);
    if let Some(gateway) = &networking.gateway {
        check_gateway_proxy(dataplane, networking, gateway, &path, found);
    }
    check_networking(networking, &path, found);
    let is_builtin = networking.gateway.as_ref().is_some_and(|g| g.kind == GatewayType::Builtin);
    if let Some(probes) = &dataplane.probes
        && !is_builtin
    {
        check_probes(probes, found);
    }
    if let Some(metrics) = &dataplane.metrics
        && networking.gateway.is_none()
    {
        check_metrics_backend(metrics, &Path::new("metrics"), found);
    }
}

/// Envoy serves its admin API on loopback, so nothing else may take that port there.
fn check_admin_port(networking: &Networking, path: &Path, found: &mut Violations) {
    let Some(admin) = &networking.admin else { return };
    let path = path.field("admin").field("port");
    let inbound = networking.inbound.iter().any(|i| {
        admin.port == i.port && tags::overlaps_loopback(i.address_in(networking))
            || admin.port == i.service_port() && tags::overlaps_loopback(i.service_address_in(networking))
    });
    found.require(!inbound, &path, "must differ from inbound");
    let outbound =
        networking.outbound.iter().any(|o| admin.port == o.port && tags::overlaps_loopback(o.address()));
    found.require(!outbound, &path, "must differ from outbound");
}

fn check_gateway_proxy(
    dataplane: &Dataplane,
    networking: &Networking,
    gateway: &Gateway,
    path: &Path,
    found: &mut Violations,
) {
    let inbound = path.field("inbound");
    match gateway.kind {
        GatewayType::Delegated => {
            let message = "inbound cannot be defined for delegated gateways";
            found.require(networking.inbound.is_empty(), inbound, message);
        }
        GatewayType::Builtin => {
            let message = "inbound cannot be defined for builtin gateways";
            found.require(networking.inbound.is_empty(), inbound, message);
            let message = "outbound cannot be defined for builtin gateways";
            found.require(networking.outbound.is_empty(), path.field("outbound"), message);
            let message = "probes cannot be defined for builtin gateways";
            found.require(dataplane.probes.is_none(), path.field("probes"), message);
        }
    }
    let sort = if gateway.kind == GatewayType::Builtin { "builtin" } else { "delegated" };
    let message = format!("listeners cannot be defined for {sort} gateways");
    found.require(networking.listeners.is_empty(), path.field("listeners"), message);
    let path = path.field("gateway").field("tags");
    if let Some(protocol) = gateway.tags.get(labels::PROTOCOL)
        && protocol != "tcp"
    {
        let message = format!("other values than tcp are not allowed, provided value \"{protocol}\"");
        found.add(path.key(labels::PROTOCOL), message);
    }
    tags::check_tags(&gateway.tags, Need::Service, &path, found);
}

fn check_networking(networking: &Networking, path: &Path, found: &mut Violations) {
    tags::check_address(&networking.address, path, found);
    for (i, inbound) in networking.inbound.iter().enumerate() {
        check_inbound(inbound, &networking.address, &path.field("inbound").index(i), found);
    }
    for (i, outbound) in networking.outbound.iter().enumerate() {
        check_outbound(outbound, &path.field("outbound").index(i), found);
    }
    check_hostnames(&networking.outbound, &path.field("outbound"), found);
    check_sections(networking, path, found);
    if let Some(proxying) = &networking.transparent_proxying {
        // The misspelling is Kuma's.
        check_transparent_proxying(proxying, &path.field("transparentProxing"), found);
    }
}

fn check_inbound(inbound: &Inbound, proxy_address: &str, path: &Path, found: &mut Violations) {
    check_port(inbound.port, &path.field("port"), found);
    if inbound.service_port != 0 {
        check_port(inbound.service_port, &path.field("servicePort"), found);
    }
    let same_port = inbound.service_port() == inbound.port;
    let service_address = path.field("serviceAddress");
    if !inbound.service_address.is_empty() {
        let message = "serviceAddress has to be valid IP address";
        found.require(tags::is_ip(&inbound.service_address), &service_address, message);
        let same = inbound.service_address == proxy_address && same_port;
        found.require(!same, &service_address, SAME_AS_PROXY);
    }
    if !inbound.address.is_empty() {
        let message = "address has to be valid IP address";
        found.require(tags::is_ip(&inbound.address), path.field("address"), message);
        let same = inbound.address == inbound.service_address && same_port;
        found.require(!same, &service_address, SAME_AS_PROXY);
    }
    let protocols = tags::allowed_values(Protocol::WORDS);
    let tags_path = path.field("tags");
    if let Some(protocol) = inbound.tags.get(labels::PROTOCOL)
        && !Protocol::WORDS.contains(&protocol.as_str())
    {
        let tag = labels::PROTOCOL;
        let message = format!("tag {tag:?} has an invalid value {protocol:?}. {protocols}");
        found.add(tags_path.key(tag), message);
    }
    tags::check_tags(&inbound.tags, Need::Nothing, &tags_path, found);
    if !inbound.protocol.is_empty() && !Protocol::WORDS.contains(&inbound.protocol.as_str()) {
        let message = format!("has an invalid value {:?}. {protocols}", inbound.protocol);
        found.add(path.field("protocol"), message);
    }
    if let Some(probe) = &inbound.service_probe {
        check_service_probe(probe, &path.field("serviceProbe"), found);
    }
    // An inbound without any tags is one that only MeshServices select, by labels and port.
    if !inbound.tags.is_empty() && !inbound.tags.contains_key(labels::SERVICE) {
        found.add(tags_path.key(labels::SERVICE), "tag has to exist");
    }
}

fn check_service_probe(probe: &ServiceProbe, path: &Path, found: &mut Violations) {
    for (value, field) in [(probe.interval, "interval"), (probe.timeout, "timeout")] {
        let fine = value.is_none_or(|duration| duration > ProtoDuration::ZERO);
        found.require(fine, path.field(field), "must have a positive value");
    }
    for (value, field) in
        [(probe.unhealthy_threshold, "unhealthyThreshold"), (probe.healthy_threshold, "healthyThreshold")]
    {
        found.require(value != Some(0), path.field(field), "must have a positive value");
    }
}

fn check_outbound(outbound: &Outbound, path: &Path, found: &mut Violations) {
    check_port(outbound.port, &path.field("port"), found);
    let address_is_fine = outbound.address.is_empty() || tags::is_ip(&outbound.address);
    found.require(address_is_fine, path.field("address"), "address has to be valid IP address");
    let Some(backend) = &outbound.backend_ref else {
        tags::check_tags(&outbound.tags, Need::Service, &path.field("tags"), found);
        return;
    };
    let path = path.field("backendRef");
    check_backend_kind(&backend.kind, &path, found);
    let named = !backend.name.is_empty() || !backend.labels.is_empty();
    found.require(named, &path, "either 'name' or 'labels' should be specified");
    // A MeshExternalService has one port, taken from its endpoints.
    if backend.kind != "MeshExternalService" {
        check_port(backend.port, &path.field("port"), found);
    }
    found.require(outbound.tags.is_empty(), &path, "both backendRef and tags/service cannot be defined");
}

/// A query names no port, so all ports of a hostname are at one address, or at one of each version of IP.
fn check_hostnames(outbounds: &[Outbound], path: &Path, found: &mut Violations) {
    let mut addresses: BTreeMap<(&str, bool), IpAddr> = BTreeMap::new();
    for (i, outbound) in outbounds.iter().enumerate().filter(|(_, outbound)| !outbound.hostname.is_empty()) {
        let (hostname, path) = (outbound.hostname.as_str(), path.index(i).field("hostname"));
        for error in dns::rfc1123_subdomain_errors(hostname) {
            found.add(&path, error);
        }
        found.require(!tags::is_ip(hostname), &path, "must be a name, not an IP address");
        // One that is no address is said where it is given.
        let Ok(address) = outbound.address().parse::<IpAddr>() else { continue };
        let first = *addresses.entry((hostname, address.is_ipv4())).or_insert(address);
        if first != address {
            let message = format!(
                "hostname {hostname:?} has the address {first} in another outbound; give all of them the same address \
                 and different ports, or another hostname"
            );
            found.add(path, message);
        }
    }
}

fn check_backend_kind(kind: &str, path: &Path, found: &mut Violations) {
    found.require(
        BACKEND_KINDS.contains(&kind),
        path.field("kind"),
        format!("invalid value. Available values are: {}", BACKEND_KINDS.join(",")),
    );
}

/// Inbounds and listeners are checked together because both are sections and must not share a name.
fn check_sections(networking: &Networking, path: &Path, found: &mut Violations) {
    let inbounds = networking.inbound.iter().map(|inbound| (inbound.name.as_str(), inbound.port));
    let listeners = networking.listeners.iter().map(|listener| (listener.name.as_str(), listener.port));
    let clashes = section::clashes(inbounds.chain(listeners));
    for (i, inbound) in networking.inbound.iter().enumerate() {
        let path = path.field("inbound").index(i).field("name");
        check_section_name(&inbound.name, &path, found);
        let message = format!("name {:?} is already used by another inbound or listener", inbound.name);
        found.require(inbound.name.is_empty() || !clashes.contains_key(&i), path, message);
    }
    for (i, listener) in networking.listeners.iter().enumerate() {
        let path = path.field("listeners").index(i);
        let name = path.field("name");
        check_section_name(&listener.name, &name, found);
        let is_taken = clashes.contains_key(&(networking.inbound.len() + i));
        let message = format!("name {:?} must be unique across inbounds and listeners", listener.name);
        found.require(listener.name.is_empty() || !is_taken, name, message);
        check_listener(listener, &path, found);
        check_socket(networking, i, &path, found);
    }
}

fn check_section_name(name: &str, path: &Path, found: &mut Violations) {
    // Without a name the section is the port, which is checked where it is given.
    if !name.is_empty()
        && let Some(complaint) = section::complaint(name)
    {
        found.add(path, complaint);
    }
}

/// Checks that nothing before the listener, and no inbound, listens where it does.
fn check_socket(networking: &Networking, index: usize, path: &Path, found: &mut Violations) {
    let before = &networking.listeners[..index];
    let listener = &networking.listeners[index];
    let address = listener.address.as_str();
    let port = listener.port;
    if let Some(other) = before.iter().find(|other| other.address == address && other.port == port) {
        let what = if other.kind == listener.kind {
            "is already used by another listener"
        } else {
            "is used by listeners of different types"
        };
        found.add(path, format!("address:port {address}:{port} {what}"));
    }
    let is_taken = |inbound: &Inbound| inbound.address_in(networking) == address && inbound.port == port;
    let message = format!("address:port {address}:{port} collides with an inbound listener");
    found.require(!networking.inbound.iter().any(is_taken), path, message);
}

fn check_listener(listener: &Listener, path: &Path, found: &mut Violations) {
    found.require(
        listener.kind != ListenerType::Unspecified,
        path.field("type"),
        "must be one of ZoneIngress, ZoneEgress",
    );
    tags::check_address(&listener.address, path, found);
    check_port(listener.port, &path.field("port"), found);
}

fn check_transparent_proxying(proxying: &TransparentProxying, path: &Path, found: &mut Violations) {
    let Some(backends) = &proxying.reachable_backends else { return };
    let path = path.field("reachableBackends.refs");
    for (i, backend) in backends.refs.iter().enumerate() {
        check_reachable_backend(backend, &path.index(i), found);
    }
}

fn check_reachable_backend(backend: &ReachableBackendRef, path: &Path, found: &mut Violations) {
    check_backend_kind(&backend.kind, path, found);
    let name = path.field("name");
    let named = !backend.name.is_empty();
    let labelled = !backend.labels.is_empty();
    let namespaced = !backend.namespace.is_empty();
    found.require(!named || dns::is_rfc1123_subdomain(&backend.name), &name, NOT_AN_IDENTIFIER);
    found.require(named || namespaced || labelled, &name, "name or labels are required");
    found.require(named || !namespaced, &name, "name is required, when namespace is defined");
    let message = "labels cannot be defined when name is specified";
    found.require(!(labelled && (named || namespaced)), path.field("labels"), message);
}

fn check_probes(probes: &Probes, found: &mut Violations) {
    let path = Path::new("probes");
    check_port(probes.port, &path.field("port"), found);
    for (i, endpoint) in probes.endpoints.iter().enumerate() {
        let path = path.field("endpoints").index(i);
        check_port(endpoint.inbound_port, &path.field("inboundPort"), found);
        for (uri, field) in [(&endpoint.inbound_path, "inboundPath"), (&endpoint.path, "path")] {
            found.require(is_request_uri(uri), path.field(field), "should be a valid URL Path");
        }
    }
}

#[cfg(test)]
mod tests;
