//! Permissions that almost allow a call are named where it is denied.

use api::{Inspect, inspect::access_question::AccessQuestion};
use serde_json::json;
use testkit::{resource::permission, spec::tagged};

use super::{Inspected, layout::exclusive};

#[tokio::test]
async fn a_denied_call_names_the_permission_for_a_label_the_server_lacks() {
    let world = Inspected::new().await;
    let dataplane = |name: &str, labels: &[(&str, &str)]| {
        let service = name.trim_end_matches("-1");
        let inbound = json!({ "port": 80, "tags": { "kuma.io/service": service } });
        let networking = json!({ "address": "127.0.0.2", "inbound": [inbound] });
        testkit::resource::dataplane(name, labels, networking)
    };
    let by_label = |value: &str| json!({ "kind": "Dataplane", "labels": { "app": value } });
    let ask = async || {
        let question = AccessQuestion {
            mesh: "default".into(),
            from: "web-1".into(),
            to: "backend-1".into(),
            port: None,
        };
        let answer = world.proxies.access(&question).await.unwrap();
        answer.near_misses.into_iter().map(|miss| miss.reason).collect::<Vec<_>>()
    };
    let mesh = exclusive("STRICT");
    let resources = [mesh, dataplane("web-1", &[("app", "web")]), dataplane("backend-1", &[])];
    world.world.put(resources).await;
    assert_eq!(ask().await, Vec::<String>::new());
    world.world.put([permission("web-to-backend", by_label("backend"), &[(tagged("web"), "Allow")])]).await;
    assert_eq!(ask().await, ["web-to-backend wants app=backend; backend-1 has no such label"]);
    // With the label it is allowed, and nothing is missing.
    world.world.put([dataplane("backend-1", &[("app", "backend")])]).await;
    assert_eq!(ask().await, Vec::<String>::new());
}
