use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, round_trips, valid},
    naming::dns,
};

const PORT_RANGE: &str = "port must be in the range [1, 65535]";

/// A proxy that is fine but for what is merged into its `networking`.
fn networking(changes: Value) -> Value {
    let mut networking = json!({
        "address": "192.168.0.1",
        "inbound": [{ "port": 8080, "tags": { "kuma.io/service": "backend" } }]
    });
    if let (Value::Object(all), Value::Object(changes)) = (&mut networking, changes) {
        all.extend(changes);
    }
    json!({ "type": "Dataplane", "name": "dp-1", "mesh": "default", "networking": networking })
}

fn rejected(changes: Value, expect: &[(&str, &str)]) {
    check(Kind::Dataplane, networking(changes), expect);
}

fn inbound_rejected(inbound: Value, expect: &[(&str, &str)]) {
    rejected(json!({ "inbound": [inbound] }), expect);
}

fn outbound_rejected(outbound: Value, expect: &[(&str, &str)]) {
    rejected(json!({ "outbound": [outbound] }), expect);
}

fn full() -> Value {
    json!({
        "networking": {
            "address": "192.168.0.1",
            "advertisedAddress": "1.2.3.4",
            "inbound": [{
                "name": "main",
                "port": 8080,
                "servicePort": 7777,
                "serviceAddress": "127.0.0.1",
                "address": "192.168.0.2",
                "tags": { "kuma.io/protocol": "http", "kuma.io/service": "backend", "version": "1" },
                "protocol": "http",
                "health": { "ready": true },
                "serviceProbe": {
                    "interval": "10s", "timeout": "2s", "unhealthyThreshold": 3, "healthyThreshold": 1, "tcp": {}
                },
                "state": "NotReady"
            }],
            "outbound": [
                { "address": "127.0.0.1", "port": 3333, "tags": { "kuma.io/service": "redis" } },
                {
                    "port": 3334, "hostname": "redis.mesh",
                    "backendRef": { "kind": "MeshService", "name": "redis", "port": 6379 }
                },
                { "port": 3335, "backendRef": { "kind": "MeshExternalService", "labels": { "app": "db" } } }
            ],
            "transparentProxying": {
                "redirectPortInbound": 15006,
                "redirectPortOutbound": 15001,
                "directAccessServices": ["db"],
                "reachableServices": ["redis"],
                "ipFamilyMode": "IPv4",
                "reachableBackends": { "refs": [
                    { "kind": "MeshService", "name": "redis", "namespace": "db", "port": 6379 },
                    { "kind": "MeshMultiZoneService", "labels": { "app": "db" } }
                ] }
            },
            "admin": { "port": 9901 },
            "listeners": [
                { "type": "ZoneIngress", "address": "192.168.0.1", "port": 10001, "name": "zi", "state": "NotReady" },
                { "type": "ZoneEgress", "address": "192.168.0.1", "port": 10002 }
            ]
        },
        "metrics": { "name": "prom", "type": "prometheus", "conf": { "port": 1234 } },
        "probes": {
            "port": 9000,
            "endpoints": [{ "inboundPort": 8080, "inboundPath": "/healthz", "path": "/8080/healthz" }]
        }
    })
}

#[test]
fn a_full_dataplane_is_valid_and_written_as_it_was_read() {
    valid(Kind::Dataplane, full());
    round_trips(Kind::Dataplane, full());
}

#[test]
fn every_kind_of_proxy_is_valid() {
    for networking in [
        json!({ "address": "::1", "gateway": { "tags": { "kuma.io/service": "edge", "kuma.io/protocol": "tcp" } } }),
        json!({ "address": "a.example", "gateway": { "type": "BUILTIN", "tags": { "kuma.io/service": "edge" } } }),
        json!({ "address": "10.0.0.1", "listeners": [{ "type": 1, "address": "10.0.0.1", "port": 10001 }] }),
        json!({ "address": "10.0.0.1", "inbound": [{ "port": 80, "name": "main" }] }),
        json!({ "address": "10.0.0.1", "inbound": [{ "port": "80" }], "transparent_proxying": { "redirect_port_inbound": 15006 } }),
    ] {
        valid(Kind::Dataplane, json!({ "networking": networking }));
    }
}

#[test]
fn a_proxy_has_an_address() {
    check(Kind::Dataplane, json!({}), &[("networking", "must be defined")]);
    check(Kind::Dataplane, json!({ "networking": {} }), &[("networking.address", "address can't be empty")]);
    rejected(json!({ "address": "" }), &[("networking.address", "address can't be empty")]);
    rejected(json!({ "address": "0.0.0.0" }), &[("networking.address", "must not be 0.0.0.0 or ::")]);
    rejected(
        json!({ "address": "..>_<.." }),
        &[("networking.address", "address has to be valid IP address or domain name")],
    );
}

#[test]
fn the_ports_and_addresses_of_inbounds_are_checked() {
    let tags = json!({ "kuma.io/service": "backend" });
    inbound_rejected(
        json!({ "port": 0, "servicePort": 65536, "serviceAddress": "host", "address": "host2", "tags": tags }),
        &[
            ("networking.inbound[0].port", PORT_RANGE),
            ("networking.inbound[0].servicePort", PORT_RANGE),
            ("networking.inbound[0].serviceAddress", "serviceAddress has to be valid IP address"),
            ("networking.inbound[0].address", "address has to be valid IP address"),
        ],
    );
    let same = (
        "networking.inbound[0].serviceAddress",
        "serviceAddress and servicePort has to differ from address and port",
    );
    inbound_rejected(json!({ "port": 80, "serviceAddress": "192.168.0.1", "tags": tags }), &[same]);
    inbound_rejected(
        json!({ "port": 80, "servicePort": 80, "serviceAddress": "10.0.0.1", "address": "10.0.0.1", "tags": tags }),
        &[same],
    );
}

#[test]
fn the_tags_and_the_protocol_of_inbounds_are_checked() {
    inbound_rejected(
        json!({ "port": 80, "tags": { "version": "", "a b": "c/d", "kuma.io/protocol": "smtp" } }),
        &[
            (
                "networking.inbound[0].tags[\"kuma.io/protocol\"]",
                "tag \"kuma.io/protocol\" has an invalid value \"smtp\". Allowed values: grpc, http, http2, kafka, tcp",
            ),
            (
                "networking.inbound[0].tags[\"a b\"]",
                "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
            ),
            (
                "networking.inbound[0].tags[\"a b\"]",
                "tag value must consist of alphanumeric characters, dots, dashes and underscores",
            ),
            ("networking.inbound[0].tags[\"version\"]", "tag value must be non-empty"),
            ("networking.inbound[0].tags[\"kuma.io/service\"]", "tag has to exist"),
        ],
    );
    inbound_rejected(
        json!({ "port": 80, "protocol": "smtp", "tags": { "": "x", "kuma.io/service": "a" } }),
        &[
            ("networking.inbound[0].tags", "tag name must be non-empty"),
            (
                "networking.inbound[0].protocol",
                "has an invalid value \"smtp\". Allowed values: grpc, http, http2, kafka, tcp",
            ),
        ],
    );
}

#[test]
fn service_probes_have_positive_settings() {
    let message = "must have a positive value";
    inbound_rejected(
        json!({ "port": 80, "serviceProbe": {
            "interval": "0s", "timeout": "-1s", "unhealthyThreshold": 0, "healthyThreshold": 0
        } }),
        &[
            ("networking.inbound[0].serviceProbe.interval", message),
            ("networking.inbound[0].serviceProbe.timeout", message),
            ("networking.inbound[0].serviceProbe.unhealthyThreshold", message),
            ("networking.inbound[0].serviceProbe.healthyThreshold", message),
        ],
    );
}

#[test]
fn outbounds_have_one_destination() {
    outbound_rejected(
        json!({ "port": 70000, "address": "host" }),
        &[
            ("networking.outbound[0].port", PORT_RANGE),
            ("networking.outbound[0].address", "address has to be valid IP address"),
            ("networking.outbound[0].tags", "mandatory tag \"kuma.io/service\" is missing"),
        ],
    );
    outbound_rejected(
        json!({ "port": 80, "backendRef": { "kind": "Mesh" }, "tags": { "kuma.io/service": "a" } }),
        &[
            (
                "networking.outbound[0].backendRef.kind",
                "invalid value. Available values are: MeshExternalService,MeshMultiZoneService,MeshService",
            ),
            ("networking.outbound[0].backendRef", "either 'name' or 'labels' should be specified"),
            ("networking.outbound[0].backendRef.port", PORT_RANGE),
            ("networking.outbound[0].backendRef", "both backendRef and tags/service cannot be defined"),
        ],
    );
}

#[test]
fn gateways_serve_nothing_else() {
    let tags = json!({ "kuma.io/service": "edge" });
    rejected(
        json!({ "gateway": { "tags": tags } }),
        &[("networking.inbound", "inbound cannot be defined for delegated gateways")],
    );
    let mut builtin = networking(json!({
        "gateway": { "type": "BUILTIN", "tags": { "kuma.io/protocol": "http" } },
        "outbound": [{ "port": 80, "tags": { "kuma.io/service": "redis" } }]
    }));
    builtin["probes"] = json!({});
    check(
        Kind::Dataplane,
        builtin,
        &[
            ("networking.inbound", "inbound cannot be defined for builtin gateways"),
            ("networking.outbound", "outbound cannot be defined for builtin gateways"),
            ("networking.probes", "probes cannot be defined for builtin gateways"),
            (
                "networking.gateway.tags[\"kuma.io/protocol\"]",
                "other values than tcp are not allowed, provided value \"http\"",
            ),
            ("networking.gateway.tags", "mandatory tag \"kuma.io/service\" is missing"),
        ],
    );
}

#[test]
fn the_admin_port_must_be_free_on_loopback() {
    let inbound = ("networking.admin.port", "must differ from inbound");
    for (port, inbound_fields) in [
        (8080, json!({ "port": 8080, "address": "127.0.0.1" })),
        (7777, json!({ "port": 8080, "servicePort": 7777, "serviceAddress": "127.0.0.1" })),
    ] {
        rejected(json!({ "admin": { "port": port }, "inbound": [inbound_fields] }), &[inbound]);
    }
    rejected(
        json!({ "admin": { "port": 3333 }, "outbound": [{ "port": 3333, "tags": { "kuma.io/service": "redis" } }] }),
        &[("networking.admin.port", "must differ from outbound")],
    );
    valid(Kind::Dataplane, networking(json!({ "admin": { "port": 8080 } })));
}

#[test]
fn sections_and_sockets_are_unique() {
    let listener =
        |name: &str| json!({ "type": "ZoneIngress", "address": "10.0.0.1", "port": 1, "name": name });
    rejected(
        json!({
            "inbound": [{ "port": 80, "name": "a" }, { "port": 81, "name": "a" }],
            "listeners": [listener("a"), listener("b")]
        }),
        &[
            ("networking.inbound[1].name", "name \"a\" is already used by another inbound or listener"),
            ("networking.listeners[0].name", "name \"a\" must be unique across inbounds and listeners"),
            ("networking.listeners[1]", "address:port 10.0.0.1:1 is already used by another listener"),
        ],
    );
    rejected(
        json!({ "listeners": [{}] }),
        &[
            ("networking.listeners[0].type", "must be one of ZoneIngress, ZoneEgress"),
            ("networking.listeners[0].address", "address can't be empty"),
            ("networking.listeners[0].port", PORT_RANGE),
        ],
    );
}

#[test]
fn a_socket_belongs_to_one_listener() {
    let listener =
        |kind: &str, address: &str, port: u32| json!({ "type": kind, "address": address, "port": port });
    rejected(
        json!({
            "address": "10.0.0.1", "inbound": [{ "port": 80 }, { "port": 81, "address": "10.0.0.9" }],
            "listeners": [
                listener("ZoneIngress", "10.0.0.1", 1), listener("ZoneEgress", "10.0.0.1", 1),
                listener("ZoneEgress", "10.0.0.1", 80), listener("ZoneEgress", "10.0.0.9", 81),
                listener("ZoneEgress", "10.0.0.1", 81),
            ]
        }),
        &[
            ("networking.listeners[1]", "address:port 10.0.0.1:1 is used by listeners of different types"),
            ("networking.listeners[2]", "address:port 10.0.0.1:80 collides with an inbound listener"),
            ("networking.listeners[3]", "address:port 10.0.0.9:81 collides with an inbound listener"),
        ],
    );
}

#[test]
fn gateways_have_no_listeners() {
    for (kind, sort) in [("DELEGATED", "delegated"), ("BUILTIN", "builtin")] {
        let message = format!("listeners cannot be defined for {sort} gateways");
        check(
            Kind::Dataplane,
            json!({ "networking": {
                "address": "10.0.0.1", "gateway": { "type": kind, "tags": { "kuma.io/service": "edge" } },
                "listeners": [{ "type": "ZoneIngress", "address": "10.0.0.1", "port": 1 }]
            } }),
            &[("networking.listeners", &message)],
        );
    }
}

#[test]
fn a_proxy_without_inbounds_calls_others() {
    for networking in [
        json!({ "address": "10.0.0.1" }),
        json!({ "address": "10.0.0.1", "outbound": [{ "port": 80, "tags": { "kuma.io/service": "a" } }] }),
        json!({ "address": "10.0.0.1", "transparentProxying": { "redirectPortOutbound": 15001 } }),
    ] {
        valid(Kind::Dataplane, json!({ "networking": networking }));
    }
}

#[test]
fn empty_values_of_tags_and_probes_that_are_not_positive_are_refused() {
    let protocol =
        "tag \"kuma.io/protocol\" has an invalid value \"\". Allowed values: grpc, http, http2, kafka, tcp";
    let empty = "tag value must be non-empty";
    let positive = "must have a positive value";
    rejected(
        json!({ "inbound": [{
            "port": 80, "tags": { "kuma.io/service": "a", "kuma.io/protocol": "", "b": "" },
            "serviceProbe": { "interval": "0", "unhealthyThreshold": 0, "tcp": {} },
        }] }),
        &[
            ("networking.inbound[0].tags[\"kuma.io/protocol\"]", protocol),
            ("networking.inbound[0].tags[\"b\"]", empty),
            ("networking.inbound[0].tags[\"kuma.io/protocol\"]", empty),
            ("networking.inbound[0].serviceProbe.interval", positive),
            ("networking.inbound[0].serviceProbe.unhealthyThreshold", positive),
        ],
    );
    check(
        Kind::Dataplane,
        json!({ "networking": { "address": "10.0.0.1", "gateway": { "tags": { "kuma.io/service": "a", "b": "" } } } }),
        &[("networking.gateway.tags[\"b\"]", empty)],
    );
}

#[test]
fn a_name_is_not_the_port_another_section_is_called_by() {
    #[track_caller]
    fn taken(inbound: Value, listeners: Value, expect: &[&str]) {
        let message = |field: &str| {
            if field.contains("listeners") {
                "name \"8080\" must be unique across inbounds and listeners"
            } else {
                "name \"8080\" is already used by another inbound or listener"
            }
        };
        let expect: Vec<(&str, &str)> = expect.iter().map(|field| (*field, message(field))).collect();
        rejected(json!({ "inbound": inbound, "listeners": listeners }), &expect);
    }
    let unnamed = json!({ "port": 8080 });
    let named = json!({ "port": 9090, "name": "8080" });
    taken(json!([unnamed, named]), json!([]), &["networking.inbound[1].name"]);
    taken(json!([named, unnamed]), json!([]), &["networking.inbound[0].name"]);
    let elsewhere = json!({ "port": 8080, "name": "8080", "address": "10.0.0.9" });
    taken(json!([unnamed, elsewhere]), json!([]), &["networking.inbound[1].name"]);
    let ingress = |name: &str, port: u32| json!({ "type": "ZoneIngress", "address": "10.0.0.1", "port": port, "name": name });
    taken(json!([named]), json!([ingress("", 8080)]), &["networking.inbound[0].name"]);
    taken(json!([unnamed]), json!([ingress("8080", 1)]), &["networking.listeners[0].name"]);
    // No other inbound may have its port, and inbounds without names may share one.
    taken(json!([{ "port": 8080, "name": "8080" }, { "port": 9090 }]), json!([]), &[]);
    taken(json!([unnamed, { "port": 8080, "address": "10.0.0.9" }]), json!([]), &[]);
}

#[test]
fn names_of_inbounds_and_listeners_are_section_names() {
    let longest = "a".repeat(63);
    let ok = ["", "1", "80", "65535", "a", "http", "http2", "a.b", "backend-kumahq.com", longest.as_str()];
    for name in ok {
        valid(Kind::Dataplane, networking(json!({ "inbound": [{ "port": 80, "name": name }] })));
    }
    let named = |rule: &str| format!("a port name {rule}");
    let numbered = |rule: &str| format!("a port number {rule}");
    let letters = named("may contain only lower case letters, digits, '-' and '.'");
    let range = numbered("must be in the range 1 to 65535");
    let too_long = "a".repeat(64);
    for (name, rule) in [
        ("0", &range),
        ("65536", &range),
        ("080", &numbered("must not have leading zeros")),
        ("HTTP", &letters),
        ("my_port", &letters),
        ("9p", &named("must start with a lower case letter")),
        ("a-", &named("must end with a lower case letter or a digit")),
        ("a.", &named("must end with a lower case letter or a digit")),
        ("a--b", &named("must not contain consecutive hyphens")),
        ("a..b", &named("must not contain consecutive dots")),
        (too_long.as_str(), &named("must be no more than 63 characters")),
    ] {
        let message = format!(
            "{name:?} is not a section name: {rule}; allowed is a port number from 1 to 65535 without leading \
             zeros, or a name of 1 to 63 lower case letters, digits, '-' and '.' that starts with a letter, \
             ends with a letter or a digit and has neither '--' nor '..'"
        );
        inbound_rejected(json!({ "port": 80, "name": name }), &[("networking.inbound[0].name", &message)]);
        let listener = json!({ "type": "ZoneIngress", "address": "10.0.0.1", "port": 1, "name": name });
        rejected(json!({ "listeners": [listener] }), &[("networking.listeners[0].name", &message)]);
    }
}

#[test]
fn hostnames_of_outbounds_are_names_of_one_address() {
    let outbound = |hostname: &str, address: &str, port: u16| {
        let backend = json!({ "kind": "MeshService", "name": "kv", "port": 80 });
        json!({ "hostname": hostname, "address": address, "port": port, "backendRef": backend })
    };
    let both = |other: Value| json!({ "outbound": [outbound("kv.mesh", "", 80), other] });
    let at = "networking.outbound[1].hostname";
    for fine in [
        outbound("kv.mesh", "127.0.0.1", 81),
        outbound("kv.mesh", "::1", 80),
        outbound("cache.mesh", "127.0.0.2", 80),
        outbound("", "127.0.0.2", 80),
    ] {
        check(Kind::Dataplane, networking(both(fine)), &[]);
    }
    rejected(
        both(outbound("kv.mesh", "127.0.0.2", 81)),
        &[(
            at,
            "hostname \"kv.mesh\" has the address 127.0.0.1 in another outbound; give all of them the same address and \
             different ports, or another hostname",
        )],
    );
    rejected(both(outbound("10.0.0.1", "127.0.0.2", 80)), &[(at, "must be a name, not an IP address")]);
    let too_long = format!("{}.mesh", "a.".repeat(130));
    for name in ["KV.mesh", "kv_1.mesh", "kv..mesh", "kv.mesh.", &too_long] {
        let complaints = dns::rfc1123_subdomain_errors(name);
        assert!(!complaints.is_empty(), "{name}");
        let expect: Vec<(&str, &str)> = complaints.iter().map(|complaint| (at, complaint.as_str())).collect();
        rejected(both(outbound(name, "127.0.0.2", 80)), &expect);
    }
}

#[test]
fn reachable_backends_are_named_or_labelled() {
    let kinds = "invalid value. Available values are: MeshExternalService,MeshMultiZoneService,MeshService";
    let refs = "networking.transparentProxing.reachableBackends.refs";
    let at = |rest: &str| format!("{refs}{rest}");
    rejected(
        json!({ "transparentProxying": { "reachableBackends": { "refs": [
            { "kind": "Mesh" },
            { "kind": "MeshService", "name": "A_b" },
            { "kind": "MeshService", "namespace": "ns", "labels": { "a": "b" } }
        ] } } }),
        &[
            (&at("[0].kind"), kinds),
            (&at("[0].name"), "name or labels are required"),
            (
                &at("[1].name"),
                "invalid characters. A lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                 characters, '-' or '.', and must start and end with an alphanumeric character",
            ),
            (&at("[2].name"), "name is required, when namespace is defined"),
            (&at("[2].labels"), "labels cannot be defined when name is specified"),
        ],
    );
}

#[test]
fn probes_and_metrics_are_checked() {
    let mut dataplane = networking(json!({}));
    dataplane["probes"] = json!({ "endpoints": [{ "inboundPath": "healthz", "path": "" }] });
    dataplane["metrics"] = json!({ "name": "m", "type": "statsd" });
    check(
        Kind::Dataplane,
        dataplane,
        &[
            ("probes.port", PORT_RANGE),
            ("probes.endpoints[0].inboundPort", PORT_RANGE),
            ("probes.endpoints[0].inboundPath", "should be a valid URL Path"),
            ("probes.endpoints[0].path", "should be a valid URL Path"),
            ("metrics.type", "unknown backend type. Available backends: \"prometheus\""),
        ],
    );
}
