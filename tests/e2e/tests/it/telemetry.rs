//! Logs and spans through everything: a policy, a control plane, agents and their Envoys, and collectors.

use e2e::{Setup, service::call};
use serde_json::{Value, json};
use testkit::collector::Collector;

use crate::world::{UNIFIED, World, answered_by, by_reference, client_with};

const LOGS: &str = "/meshes/default/meshaccesslogs/logs";
const TRACES: &str = "/meshes/default/meshtraces/spans";

/// The same backends both ways.
fn logs(backends: &Value) -> Value {
    let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": {"backends": backends}}]);
    json!({"type": "MeshAccessLog", "mesh": "default", "name": "logs", "spec": {"to": entry, "from": entry}})
}

#[test]
fn lines_reach_a_log_server_and_spans_a_collector_once_known() {
    let world = World::start(Setup::default());
    let _backend = world.service("backend-1", "backend", "http");
    let (_proxy, address) = client_with(&world, "web", &[by_reference("backend")], &[UNIFIED]);
    let lines = Collector::of_lines().unwrap();
    let spans = Collector::start().unwrap();
    let format = json!({"type": "Plain", "plain": "%KUMA_TRAFFIC_DIRECTION% %KUMA_SOURCE_SERVICE% \
        %KUMA_DESTINATION_SERVICE% %RESPONSE_CODE%"});
    let tcp = json!({"address": lines.address.to_string(), "format": format});
    world.put(LOGS, &logs(&json!([{"type": "Tcp", "tcp": tcp}])));
    let reference = json!({"kind": "MeshOpenTelemetryBackend", "labels": {"team": "obs"}});
    let tracer = json!({"type": "OpenTelemetry", "openTelemetry": {"backendRef": reference}});
    world.put(
        TRACES,
        &json!({"type": "MeshTrace", "mesh": "default", "name": "spans", "spec": {"default": {"backends": [tracer]}}}),
    );
    assert_eq!(answered_by(address, 10001), "backend-1");
    for line in ["OUTBOUND web backend 200", "INBOUND unknown backend 200"] {
        // The first requests may be older than the policy.
        let found = |got: &Collector| {
            call(address, 10001).unwrap();
            got.lines().into_iter().find(|one| one == line)
        };
        lines.wait(line, found).unwrap();
    }
    assert_eq!(spans.spans(), [], "the collector is not configured");
    world.put(
        "/meshes/default/meshopentelemetrybackends/otel",
        &json!({"type": "MeshOpenTelemetryBackend", "mesh": "default", "name": "otel", "labels": {"team": "obs"},
            "spec": {"endpoint": {"address": "127.0.0.1", "port": spans.address.port()}}}),
    );
    for service in ["web", "backend"] {
        let found = |got: &Collector| {
            call(address, 10001).unwrap();
            got.spans().into_iter().find(|span| span.service == service)
        };
        let span = spans.wait(service, found).unwrap();
        assert_eq!(span.tags.get("kuma.mesh").map(String::as_str), Some("default"));
    }
}
