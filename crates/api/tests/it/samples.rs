//! One valid spec of every kind that has a path.

use resources::Kind;
use serde_json::{Value, json};

pub fn spec(kind: Kind) -> Option<Value> {
    let sample = match kind {
        Kind::Mesh
        | Kind::DataplaneInsight
        | Kind::ZoneInsight
        | Kind::ZoneIngressInsight
        | Kind::ZoneEgressInsight
        | Kind::MeshInsight
        | Kind::Workload => json!({}),
        Kind::Dataplane => json!({ "networking": { "address": "10.0.0.1", "inbound": [{
            "port": 8080, "tags": { "kuma.io/service": "backend", "version": "v1-beta" },
        }] } }),
        Kind::Zone => json!({ "enabled": true }),
        Kind::ZoneIngress => json!({ "networking": {
            "address": "10.0.0.2", "port": 10001, "advertisedAddress": "192.0.2.1", "advertisedPort": 10001,
        } }),
        Kind::ZoneEgress => json!({ "networking": { "address": "10.0.0.3", "port": 10002 } }),
        Kind::ServiceInsight => json!({ "services": {
            "backend": { "status": "online", "dataplanes": { "online": 2, "offline": 1 } },
            "web": { "serviceType": "external" },
        } }),
        Kind::Secret | Kind::GlobalSecret => json!({ "data": "c2VjcmV0" }),
        Kind::Config => return None,
        Kind::VirtualOutbound => json!({
            "selectors": [{ "match": { "kuma.io/service": "*" } }],
            "conf": {
                "host": "{{.service}}.mesh",
                "port": "80",
                "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }],
            },
        }),
        Kind::HostnameGenerator => json!({
            "selector": { "meshService": { "matchLabels": { "team": "a" } } },
            "template": "{{ .DisplayName }}.mesh",
        }),
        Kind::MeshService => json!({
            "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
            "ports": [{ "port": 80, "targetPort": 8080, "appProtocol": "http" }],
        }),
        Kind::MeshExternalService => json!({
            "match": { "type": "HostnameGenerator", "port": 80, "protocol": "http" },
            "endpoints": [{ "address": "example.com", "port": 80 }],
        }),
        Kind::MeshMultiZoneService => json!({
            "selector": { "meshService": { "matchLabels": { "team": "a" } } },
            "ports": [{ "port": 80, "appProtocol": "http" }],
        }),
        Kind::MeshOpenTelemetryBackend => {
            json!({ "endpoint": { "address": "otel-collector", "port": 4317 } })
        }
        Kind::MeshIdentity | Kind::MeshTrust => return identity_spec(kind),
        Kind::MeshZoneAddress => json!({ "address": "203.0.113.5", "port": 10001 }),
        policy => return policy_spec(policy),
    };
    Some(sample)
}

fn identity_spec(kind: Kind) -> Option<Value> {
    let sample = match kind {
        Kind::MeshIdentity => json!({
            "selector": { "dataplane": {} },
            "provider": { "type": "Bundled", "bundled": {
                "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true,
            } },
        }),
        Kind::MeshTrust => json!({ "trustDomain": "example.com", "caBundles": [{ "type": "Pem", "pem": {
            "value": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        } }] }),
        _ => return None,
    };
    Some(sample)
}

fn policy_spec(kind: Kind) -> Option<Value> {
    let mesh = json!({ "kind": "Mesh" });
    let backend = json!({ "kind": "MeshService", "name": "backend" });
    let sample = match kind {
        Kind::MeshAccessLog => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "backends": [{ "type": "File", "file": { "path": "/tmp/a.log" } }] },
        }] }),
        Kind::MeshTrace => json!({ "targetRef": mesh, "default": { "backends": [
            { "type": "Zipkin", "zipkin": { "url": "http://zipkin:9411/api/v2/spans" } },
        ] } }),
        Kind::MeshCircuitBreaker => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "connectionLimits": { "maxRetries": 3 } },
        }] }),
        Kind::MeshFaultInjection => json!({ "targetRef": mesh, "rules": [{
            "default": { "http": [{ "abort": { "httpStatus": 500, "percentage": "10" } }] },
        }] }),
        Kind::MeshHealthCheck => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "tcp": {} },
        }] }),
        Kind::MeshHTTPRoute => json!({ "targetRef": mesh, "to": [{ "targetRef": backend, "rules": [{
            "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
            "default": { "backendRefs": [{ "kind": "MeshService", "name": "other", "port": 80 }] },
        }] }] }),
        Kind::MeshLoadBalancingStrategy => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "loadBalancer": { "type": "RoundRobin" } },
        }] }),
        Kind::MeshMetric => json!({ "targetRef": mesh, "default": {
            "backends": [{ "type": "Prometheus", "prometheus": { "port": 5670, "path": "/metrics" } }],
        } }),
        Kind::MeshPassthrough => {
            json!({ "targetRef": mesh, "default": { "passthroughMode": "Matched", "appendMatch": [
            { "type": "Domain", "value": "api.example.com", "port": 443, "protocol": "tls" },
        ] } })
        }
        Kind::MeshProxyPatch => json!({ "targetRef": mesh, "default": { "appendModifications": [
            { "cluster": { "operation": "Remove", "match": { "name": "one" } } },
        ] } }),
        Kind::MeshRateLimit => json!({ "targetRef": { "kind": "Dataplane" }, "rules": [{
            "default": { "local": { "tcp": { "connectionRate": { "num": 5, "interval": "1s" } } } },
        }] }),
        Kind::MeshRetry => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "http": { "numRetries": 5 } },
        }] }),
        Kind::MeshTCPRoute => json!({ "targetRef": mesh, "to": [{ "targetRef": backend, "rules": [{
            "default": { "backendRefs": [{ "kind": "MeshService", "name": "other", "port": 80 }] },
        }] }] }),
        Kind::MeshTLS => json!({ "targetRef": mesh, "rules": [{ "default": { "mode": "Strict" } }] }),
        Kind::MeshTimeout => json!({ "targetRef": mesh, "to": [{
            "targetRef": mesh, "default": { "connectionTimeout": "60s" },
        }] }),
        Kind::MeshTrafficPermission => json!({ "targetRef": mesh, "rules": [{
            "default": { "allow": [{ "spiffeID": { "type": "Prefix", "value": "spiffe://east/" } }] },
        }] }),
        _ => return None,
    };
    Some(sample)
}
