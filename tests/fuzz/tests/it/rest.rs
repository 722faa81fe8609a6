//! Bodies of writes to the REST API, of several kinds.

use fuzz::Mutator;
use serde_json::{Value, json};

use crate::target::{Target, feed, request, send, web};

fn spec(kind: &str, spec: Value) -> Value {
    json!({ "type": kind, "mesh": "default", "name": "a", "spec": spec })
}

/// Returns paths to write to, each with a body.
fn samples() -> Vec<(&'static str, Value)> {
    let any_client = json!({ "kind": "Mesh" });
    vec![
        ("dataplanes/web", web()),
        (
            "meshtrafficpermissions/a",
            spec(
                "MeshTrafficPermission",
                json!({ "targetRef": any_client,
                "from": [{ "targetRef": { "kind": "MeshSubset", "tags": { "team": "a" } }, "default": { "action": "Allow" } }] }),
            ),
        ),
        (
            "meshtimeouts/a",
            spec(
                "MeshTimeout",
                json!({ "targetRef": any_client, "to": [{ "targetRef": any_client,
                "default": { "connectionTimeout": "2s", "http": { "requestTimeout": "5s" } } }] }),
            ),
        ),
        (
            "meshhttproutes/a",
            spec(
                "MeshHTTPRoute",
                json!({ "targetRef": any_client, "to": [{
                "targetRef": { "kind": "MeshService", "name": "backend" },
                "rules": [{ "matches": [{ "path": { "type": "PathPrefix", "value": "/v1" } }],
                    "default": { "backendRefs": [{ "kind": "MeshService", "name": "backend", "port": 80, "weight": 9 }] } }] }] }),
            ),
        ),
        (
            "meshservices/backend",
            json!({ "type": "MeshService", "mesh": "default", "name": "backend", "spec": {
                "selector": { "dataplaneTags": { "kuma.io/service": "web" } },
                "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }],
                "identities": [{ "type": "ServiceTag", "value": "web" }] } }),
        ),
        (
            "meshexternalservices/a",
            spec(
                "MeshExternalService",
                json!({ "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
                "endpoints": [{ "address": "192.0.2.1", "port": 443 }], "tls": { "enabled": true } }),
            ),
        ),
    ]
}

/// The same of policies that act on what comes in, leave proxies, or change them as a whole.
fn more_samples() -> Vec<(&'static str, Value)> {
    let any_client = json!({ "kind": "Mesh" });
    let to = |conf: Value| json!({ "to": [{ "targetRef": any_client, "default": conf }] });
    vec![
        (
            "meshfaultinjections/a",
            spec(
                "MeshFaultInjection",
                json!({ "targetRef": any_client, "rules": [{ "default": { "http": [{ "abort": { "httpStatus": 500, "percentage": "2.5" } }] } }] }),
            ),
        ),
        (
            "meshratelimits/a",
            spec(
                "MeshRateLimit",
                json!({ "targetRef": { "kind": "Dataplane", "sectionName": "80" }, "rules": [
                    { "default": { "local": { "tcp": { "connectionRate": { "num": 5, "interval": "1s" } } } } },
                    { "matches": [{ "spiffeID": { "type": "Prefix", "value": "spiffe://default/" } }],
                      "default": { "local": { "http": { "requestRate": { "num": 5, "interval": "1s" },
                          "onRateLimit": { "status": 429, "headers": { "set": [{ "name": "x", "value": "%" }] } } } } } },
                ] }),
            ),
        ),
        (
            "meshproxypatches/a",
            spec(
                "MeshProxyPatch",
                json!({ "default": { "appendModifications": [
                    { "cluster": { "operation": "Patch", "match": { "origin": "inbound" }, "value": "connectTimeout: 3s" } },
                    { "httpFilter": { "operation": "AddFirst", "jsonPatches": [{ "op": "add", "path": "/name", "value": null }] } },
                ] } }),
            ),
        ),
        (
            "meshpassthroughs/a",
            spec(
                "MeshPassthrough",
                json!({ "default": { "passthroughMode": "Matched", "appendMatch": [
                    { "type": "Domain", "value": "*.example.com", "port": 443, "protocol": "tls" },
                    { "type": "CIDR", "value": "192.0.2.0/24", "protocol": "tcp" } ] } }),
            ),
        ),
        (
            "meshaccesslogs/a",
            spec(
                "MeshAccessLog",
                to(json!({ "backends": [{ "type": "Tcp", "tcp": { "address": "127.0.0.1:9000",
                    "format": { "type": "Plain", "plain": "%KUMA_MESH% %REQ(:PATH)%" } } }] })),
            ),
        ),
        (
            "meshhealthchecks/a",
            spec(
                "MeshHealthCheck",
                to(json!({ "interval": "5s", "http": { "path": "/health", "expectedStatuses": [200] } })),
            ),
        ),
    ]
}

async fn one(target: &Target, mut mutator: Mutator) {
    let samples = [samples(), more_samples()].concat();
    let (path, valid) = mutator.one_of(&samples);
    let body = mutator.text(valid);
    let shown = String::from_utf8_lossy(&body).into_owned();
    let answer = send(&target.rest, request("PUT", &format!("/meshes/default/{path}"), body)).await;
    let expected = matches!(answer.status, 200 | 201 | 400 | 404 | 405 | 409 | 413 | 422);
    assert!(expected, "{} {} for {path}: {shown}", answer.status, answer.text);
    if answer.status >= 400 {
        let reason: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let says = |field: &str| reason[field].as_str().is_some_and(|text| !text.is_empty());
        assert!(says("title") || says("detail"), "no reason in {:?} for {path}: {shown}", answer.text);
        return;
    }
    // What was accepted can be read, listed and acted upon.
    for path in [path, path.split('/').next().unwrap_or(path)] {
        let answer = send(&target.rest, request("GET", &format!("/meshes/default/{path}"), Vec::new())).await;
        assert_eq!(answer.status, 200, "{} after {shown}", answer.text);
    }
    target.plan().await;
}

#[tokio::test]
async fn every_body_is_accepted_or_refused_with_a_reason() {
    let target = Target::new().await;
    for (path, valid) in samples() {
        let request = request("PUT", &format!("/meshes/default/{path}"), valid.to_string().into_bytes());
        let answer = send(&target.rest, request).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text);
    }
    feed(|mutator| one(&target, mutator)).await;
}
