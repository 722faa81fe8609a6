//! Random policies of every kind, and of the kinds they refer to, in a few small numbers.

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Status};
use serde_json::{Value, json};
use topology::virtual_hosts::vips;

use super::{Content, for_some};
use crate::world::resource;

/// Policies of these kinds, and then the kinds that no `targetRef` is in.
const POLICIES: [Kind; 12] = [
    Kind::MeshRateLimit,
    Kind::MeshFaultInjection,
    Kind::MeshHealthCheck,
    Kind::MeshAccessLog,
    Kind::MeshTrace,
    Kind::MeshMetric,
    Kind::MeshPassthrough,
    Kind::MeshTLS,
    Kind::MeshProxyPatch,
    Kind::MeshLoadBalancingStrategy,
    Kind::MeshRetry,
    Kind::MeshCircuitBreaker,
];
const OTHERS: [Kind; 5] = [
    Kind::MeshIdentity,
    Kind::MeshTrust,
    Kind::MeshOpenTelemetryBackend,
    Kind::VirtualOutbound,
    // Addresses of hostnames.
    Kind::Config,
];

/// Number of kinds.
pub const KINDS: u8 = (POLICIES.len() + OTHERS.len()) as u8;

pub fn built(kind: u8, name: u8, (content, whom): Content) -> Resource {
    let at = usize::from(kind);
    let Some(&kind) = POLICIES.get(at) else {
        return referred_to(OTHERS[at - POLICIES.len()], name, content);
    };
    let policy = resource(Key::new(kind, "default", &format!("p-{name}")), &[], spec(kind, content));
    for_some(whom, name, policy)
}

/// Resources without which others of these kinds mean nothing.
pub fn referred_to_and_referring() -> [Resource; 4] {
    let key = Key::new(Kind::MeshTrace, "default", "referring");
    [
        referred_to(Kind::MeshTrust, 0, [0; 4]),
        resource(key, &[], trace([2, 2, 0, 0])),
        virtual_outbound(0, [0; 4]),
        addresses(0, 9),
    ]
}

fn spec(kind: Kind, content: [u8; 4]) -> Value {
    let [a, b, c, d] = content;
    match kind {
        Kind::MeshRateLimit => rate_limit(content),
        Kind::MeshFaultInjection => fault(content),
        Kind::MeshHealthCheck => {
            let http = json!({ "disabled": d == 0 });
            let tcp = json!({});
            let check = json!({ "interval": format!("{}s", b + 1), "tcp": tcp, "http": http, "grpc": {} });
            json!({ "to": to(a, c, &check) })
        }
        Kind::MeshAccessLog => {
            let conf = json!({ "backends": log_backends(b) });
            match d {
                0 => rules(c, &conf),
                1 => json!({ "from": [{ "targetRef": { "kind": "Mesh" }, "default": conf }] }),
                _ => json!({ "to": to(a, c + 4 * (d % 2), &conf) }),
            }
        }
        Kind::MeshTrace => trace(content),
        Kind::MeshMetric => metric(content),
        Kind::MeshPassthrough => passthrough(a, b, c),
        Kind::MeshTLS => tls(a, b),
        Kind::MeshProxyPatch => patch(a, b, c),
        Kind::MeshLoadBalancingStrategy => json!({ "to": to(a, c, &balancing(b, d)) }),
        Kind::MeshRetry => {
            let http = json!({ "numRetries": b, "retryOn": ["5xx"] });
            let grpc = json!({ "numRetries": d });
            let conf = json!({ "tcp": { "maxConnectAttempt": d + 1 }, "http": http, "grpc": grpc });
            json!({ "to": to(a, c, &conf) })
        }
        Kind::MeshCircuitBreaker => {
            let ejecting =
                json!({ "interval": "5s", "detectors": { "totalFailures": { "consecutive": d + 1 } } });
            let mut conf = json!({ "connectionLimits": { "maxConnections": u16::from(b) + 1 } });
            if !d.is_multiple_of(2) {
                conf["outlierDetection"] = ejecting;
            }
            if c == 3 { rules(0, &conf) } else { json!({ "to": to(a, c, &conf) }) }
        }
        other => panic!("{other} is made elsewhere"),
    }
}

fn rate_limit([num, status, whom, what]: [u8; 4]) -> Value {
    let rate = |interval: &str| json!({ "num": u16::from(num) + 1, "interval": interval });
    let http = json!({ "requestRate": rate("10s"), "onRateLimit": { "status": 420 + u16::from(status) } });
    let tcp = json!({ "connectionRate": rate("1s") });
    let local = match what {
        0 => json!({ "http": http }),
        1 => json!({ "tcp": tcp }),
        _ => json!({ "http": http, "tcp": tcp }),
    };
    rules(whom, &json!({ "local": local }))
}

fn fault([status, percentage, whom, what]: [u8; 4]) -> Value {
    let percentage = u16::from(percentage) + 1;
    let fault = match what {
        0 => json!({ "delay": { "value": "1s", "percentage": percentage } }),
        _ => json!({ "abort": { "httpStatus": 500 + u16::from(status), "percentage": percentage } }),
    };
    let conf = json!({ "http": [fault] });
    if whom < 3 {
        return rules(whom, &conf);
    }
    let clients = json!({ "kind": "MeshSubset", "tags": super::tags(status) });
    json!({ "from": [{ "targetRef": clients, "default": conf }] })
}

fn trace([kind, backend, tag, sampling]: [u8; 4]) -> Value {
    let backend = match kind {
        0 => {
            let url = format!("http://zipkin-{backend}:9411/api/v2/spans");
            json!({ "type": "Zipkin", "zipkin": { "url": url } })
        }
        1 => {
            let datadog = json!({ "url": "http://192.0.2.9:8126", "splitService": backend > 1 });
            json!({ "type": "Datadog", "datadog": datadog })
        }
        _ => json!({ "type": "OpenTelemetry", "openTelemetry": open_telemetry(backend) }),
    };
    let tags = json!([{ "name": "team", "literal": format!("t{tag}") }]);
    let sampling = json!({ "overall": 10 * u16::from(sampling) });
    json!({ "default": { "backends": [backend], "tags": tags, "sampling": sampling } })
}

fn passthrough(mode: u8, kind: u8, which: u8) -> Value {
    let mode = ["All", "None", "Matched", "Matched"][usize::from(mode)];
    let port = 8000 + u16::from(which);
    let found = match kind {
        0 => json!({ "type": "IP", "value": "192.0.2.1", "port": port }),
        1 => json!({ "type": "CIDR", "value": "2001:db8::/32", "protocol": "tls" }),
        2 => json!({ "type": "Domain", "value": "*.example.com", "protocol": "http", "port": port }),
        _ => json!({ "type": "Domain", "value": format!("d{which}.example.com"), "protocol": "tls" }),
    };
    json!({ "default": { "passthroughMode": mode, "appendMatch": [found] } })
}

fn tls(mode: u8, version: u8) -> Value {
    let mode = if mode.is_multiple_of(2) { "Strict" } else { "Permissive" };
    let ciphers = json!(["ECDHE-RSA-AES256-GCM-SHA384"]);
    let conf = match version {
        0 => json!({ "mode": mode, "tlsVersion": { "min": "TLS12", "max": "TLS13" } }),
        1 => json!({ "tlsCiphers": ciphers, "tlsVersion": { "max": "TLS12" } }),
        _ => json!({ "mode": mode }),
    };
    rules(0, &conf)
}

/// One rule for all clients, for one of them, or for those who ask for a name.
fn rules(whom: u8, conf: &Value) -> Value {
    let mut rule = json!({ "default": conf });
    match whom {
        0 => {}
        1 => rule["matches"] = json!([{ "spiffeID": { "type": "Exact", "value": "spiffe://default/a" } }]),
        2 => rule["matches"] = json!([{ "spiffeID": { "type": "Prefix", "value": "spiffe://td/" } }]),
        _ => rule["matches"] = json!([{ "sni": { "type": "Exact", "value": "web.mesh" } }]),
    }
    json!({ "rules": [rule] })
}

/// An entry about all, about services as resources and by tags, or about a route.
fn to(target: u8, how: u8, conf: &Value) -> Value {
    let target = match how {
        0 => json!({ "kind": "Mesh" }),
        1 => json!({ "kind": "MeshService", "labels": { "team": "x" } }),
        2 => json!({ "kind": "MeshService", "name": format!("s-{target}") }),
        3 => json!({ "kind": "MeshService", "name": if target.is_multiple_of(2) { "a" } else { "b" } }),
        _ => json!({ "kind": "MeshHTTPRoute", "name": format!("r-{target}") }),
    };
    json!([{ "targetRef": target, "default": conf }])
}

/// An address, or a reference that there may be one, many or no backends for.
fn open_telemetry(seed: u8) -> Value {
    match seed {
        0 => json!({ "endpoint": "collector.example:4317" }),
        1 => json!({ "endpoint": "192.0.2.7:4317" }),
        _ => {
            let labels = json!({ "to": format!("l{}", seed % 2) });
            json!({ "backendRef": { "kind": "MeshOpenTelemetryBackend", "labels": labels } })
        }
    }
}

fn log_backends(seed: u8) -> Value {
    match seed {
        0 => json!([]),
        1 => {
            json!([{ "type": "File", "file": { "path": "/tmp/log", "format": { "type": "Plain", "plain": "%KUMA_MESH%" } } }])
        }
        2 => json!([{ "type": "Tcp", "tcp": { "address": "192.0.2.8:9999" } }]),
        _ => json!([{ "type": "OpenTelemetry", "openTelemetry": open_telemetry(2) }]),
    }
}

fn metric([a, b, c, d]: [u8; 4]) -> Value {
    let backend = match a {
        0 | 1 => {
            json!({ "type": "Prometheus", "prometheus": { "port": 5670 + u16::from(b), "path": "/metrics" } })
        }
        _ => json!({ "type": "OpenTelemetry", "openTelemetry": open_telemetry(b) }),
    };
    let profile = ["All", "Basic", "None", "All"][usize::from(c)];
    let sidecar = json!({ "profiles": { "appendProfiles": [{ "name": profile }] }, "includeUnused": d > 1 });
    let applications = json!([{ "name": "app", "port": 8000 + u16::from(d) }]);
    json!({ "default": { "backends": [backend], "sidecar": sidecar, "applications": applications } })
}

fn patch(a: u8, b: u8, c: u8) -> Value {
    let cluster = ["a", "s-1", "kri_msvc_default___s-0_80", "b"][usize::from(b)];
    let change = match a {
        0 => json!({ "cluster": { "operation": "Remove", "match": { "name": cluster } } }),
        1 => json!({ "cluster": { "operation": "Patch", "value": format!("connectTimeout: {}s", c + 1) } }),
        2 => json!({ "cluster": { "operation": "Add", "value": format!("name: extra-{c}\ntype: STATIC") } }),
        _ => {
            let origin = if c.is_multiple_of(2) { "inbound" } else { "outbound" };
            let patch = json!([{ "op": "replace", "path": "/trafficDirection", "value": "UNSPECIFIED" }]);
            json!({ "listener": { "operation": "Patch", "jsonPatches": patch, "match": { "origin": origin } } })
        }
    };
    json!({ "default": { "appendModifications": [change] } })
}

fn balancing(how: u8, size: u8) -> Value {
    let header = json!([{ "type": "Header", "header": { "name": "x-user" } }]);
    match how {
        0 => json!({ "loadBalancer": { "type": "Random" } }),
        1 => {
            json!({ "loadBalancer": { "type": "LeastRequest", "leastRequest": { "choiceCount": size + 2 } } })
        }
        2 => {
            json!({ "loadBalancer": { "type": "RingHash", "ringHash": { "minRingSize": u16::from(size) + 1, "hashPolicies": header } } })
        }
        _ => {
            json!({ "loadBalancer": { "type": "Maglev", "maglev": { "tableSize": 13 } }, "hashPolicies": header })
        }
    }
}

/// Resources that policies refer to, and the identities of proxies.
fn referred_to(kind: Kind, name: u8, [a, b, c, d]: [u8; 4]) -> Resource {
    let key = |prefix: &str| Key::new(kind, "default", &format!("{prefix}-{name}"));
    match kind {
        Kind::MeshIdentity => {
            let labels =
                if a.is_multiple_of(2) { json!({}) } else { json!({ "matchLabels": { "team": "x" } }) };
            let spec = json!({
                "selector": { "dataplane": labels },
                "spiffeID": { "trustDomain": domain(b), "path": format!("/p{c}") },
                "provider": { "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } },
            });
            let mut identity = resource(key("id"), &[], spec);
            let ready = if d < 3 { "True" } else { "False" };
            let status =
                json!({ "conditions": [{ "type": "Ready", "status": ready, "reason": "R", "message": "" }] });
            identity.status = Some(Status::from_json(kind, status).unwrap());
            identity
        }
        Kind::MeshTrust => {
            let pem = format!("-----BEGIN CERTIFICATE-----\nAAA{c}\n-----END CERTIFICATE-----");
            let bundles = json!([{ "type": "Pem", "pem": { "value": pem } }]);
            resource(key("trust"), &[], json!({ "trustDomain": domain(b), "caBundles": bundles }))
        }
        Kind::VirtualOutbound => virtual_outbound(name, [a, b, c, d]),
        Kind::Config => addresses(name, a),
        _ => {
            let spec = match a {
                0 => json!({}),
                1 => json!({ "endpoint": { "address": "192.0.2.6", "port": 4000 + u16::from(b) } }),
                _ => {
                    json!({ "endpoint": { "address": format!("otel-{b}.example"), "port": 443, "path": "/x" }, "protocol": "http" })
                }
            };
            let to = format!("l{}", c % 2);
            resource(key("otel"), &[("to", &to)], spec)
        }
    }
}

/// Hostnames of services and their parts, some of which services have in their statuses, too.
fn virtual_outbound(name: u8, [host, port, selector, created]: [u8; 4]) -> Resource {
    let host = ["{{.s}}.mesh", "s-2.mesh", "{{.s}}{{if .v}}.{{.v}}{{end}}.mesh", "{{.s}}.{{.v}}.mesh"]
        [usize::from(host)];
    let port = ["80", "81", "8{{if .v}}1{{else}}0{{end}}", "443"][usize::from(port)];
    let selector = match selector {
        0 | 1 => json!({ "kuma.io/service": "*" }),
        2 => json!({ "kuma.io/service": "b" }),
        _ => json!({ "version": "*" }),
    };
    let parameters =
        json!([{ "name": "s", "tagKey": "kuma.io/service" }, { "name": "v", "tagKey": "version" }]);
    let conf = json!({ "host": host, "port": port, "parameters": parameters });
    let spec = json!({ "selectors": [{ "match": selector }], "conf": conf });
    let policy = resource(Key::new(Kind::VirtualOutbound, "default", &format!("v-{name}")), &[], spec);
    Resource { created: Timestamp::from_second(i64::from(created)).unwrap(), ..policy }
}

/// Stored address of one hostname.
fn addresses(name: u8, last: u8) -> Resource {
    let host = ["a.mesh", "b.mesh", "s-2.mesh", "b.1.mesh"][usize::from(name)];
    let shard = json!({ host: { "address": format!("240.0.{name}.{last}") } });
    let key = Key::global(Kind::Config, &vips::config_name("default", vips::shard_of(host)));
    resource(key, &[], json!({ "config": shard.to_string() }))
}

fn domain(seed: u8) -> &'static str {
    if seed.is_multiple_of(2) { "td" } else { "other" }
}
