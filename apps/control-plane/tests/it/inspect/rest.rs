//! The same, asked of a whole control plane.

use control_plane::config::setting::StoreType;
use serde_json::{Value, json};

use crate::client::{agent, config, get, get_with, put, start};

#[tokio::test]
async fn a_control_plane_tells_what_it_would_do_for_a_proxy_that_never_came() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    let backend = json!({ "name": "ca-1", "type": "builtin" });
    let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } });
    let networking = json!({ "address": "127.0.0.2", "inbound": [inbound] });
    let allow = json!({ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } });
    for (path, body) in [
        (
            "",
            json!({
                "type": "Mesh", "name": "m", "meshServices": { "mode": "Exclusive" },
                "mtls": { "enabledBackend": "ca-1", "backends": [backend] },
            }),
        ),
        (
            "/dataplanes/web",
            json!({
                "type": "Dataplane", "mesh": "m", "name": "web", "networking": networking,
            }),
        ),
        (
            "/meshtrafficpermissions/all",
            json!({
                "type": "MeshTrafficPermission", "mesh": "m", "name": "all", "spec": { "from": [allow] },
            }),
        ),
    ] {
        assert_eq!(put(&running, &format!("/meshes/m{path}"), body).await, 201, "{path}");
    }
    let web = get(&running, "/meshes/m/dataplanes/web").await["kri"].as_str().unwrap().to_owned();
    let layout = get(&running, "/meshes/m/dataplanes/web/_layout").await;
    let inbound = &layout["inbounds"][0];
    assert_eq!((&layout["kri"], &inbound["kri"]), (&json!(web), &json!(format!("{web}80"))));
    assert_eq!(inbound["proxyResourceName"], "localhost:80");
    // The link from a part of a proxy leads to the proxy.
    assert_eq!(get(&running, &format!("/_kri/{web}80")).await["name"], "web");

    let access = get(&running, "/meshes/m/_access?from=web&to=web").await;
    assert_eq!((&access["verdict"], &access["checks"][0]["client"]), (&json!("Allowed"), &json!(web)));
    let rule = access["checks"][0]["rule"].as_str().unwrap();
    assert_eq!(get(&running, &format!("/_kri/{rule}")).await["name"], "all");

    assert_eq!(access["reachability"]["verdict"], "reachable");
    let reached = get(&running, "/meshes/m/dataplanes/web/_reachability").await;
    assert_eq!((&reached["kri"], &reached["mode"]["asked"]), (&json!(web), &json!("off")));
    assert_eq!(reached["mode"]["saidBy"], "control plane");
    let savings = get(&running, "/meshes/m/_reachability").await;
    assert_eq!((&savings["total"], &savings["items"][0]["name"]), (&json!(1), &json!("web")));
    assert_eq!(get(&running, "/meshes/m/_graph").await["truncated"], false);

    let rules = get(&running, "/meshes/m/dataplanes/web/_rules").await;
    let kinds: Vec<&Value> = rules["rules"].as_array().unwrap().iter().map(|rules| &rules["type"]).collect();
    let in_kumas_order = ["MeshTimeout", "MeshTrafficPermission", "MeshCircuitBreaker", "MeshRetry"];
    assert_eq!(kinds, in_kumas_order, "{rules}");
    let selected = get(&running, "/meshes/m/meshtrafficpermissions/all/_resources/dataplanes").await;
    assert_eq!((&selected["total"], &selected["items"][0]["name"]), (&json!(1), &json!("web")));

    let url = |path: &str| format!("http://{}{path}", running.http.unwrap());
    let (status, _) = get_with(agent(None, None), url("/meshes/m/_access?from=web&to=nobody")).await;
    assert_eq!(status, 404);
    let (status, body) = get_with(agent(None, None), url("/meshes/m/dataplanes/web/_config")).await;
    assert_eq!(status, 503, "{body}");
    running.finish().await;
}
