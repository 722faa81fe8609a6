//! The same, asked of a whole control plane.

use control_plane::config::setting::{Mode, StoreType};
use serde_json::{Value, json};

use crate::client::{agent, config, get, get_with, post, put, start};

fn permission(name: &str) -> Value {
    let allow = json!({ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } });
    json!({ "type": "MeshTrafficPermission", "mesh": "m", "name": name, "spec": { "from": [allow] } })
}

#[tokio::test]
async fn a_control_plane_tells_what_writes_would_do_and_they_then_do_it() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    let backend = json!({ "name": "ca-1", "type": "builtin" });
    let mtls = json!({ "enabledBackend": "ca-1", "backends": [backend] });
    let mesh = json!({ "type": "Mesh", "name": "m", "mtls": mtls, "skipCreatingInitialPolicies": ["*"] });
    let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } });
    let networking = json!({ "address": "127.0.0.2", "inbound": [inbound] });
    let dataplane = json!({ "type": "Dataplane", "mesh": "m", "name": "web", "networking": networking });
    // A mesh that is not there yet, with everything in it.
    let all = json!({ "resources": [dataplane, permission("all"), mesh] });
    let (status, told) = post(&running, "/meshes/m/_what-if", all).await;
    assert_eq!(status, 200, "{told:#}");
    let actions: Vec<&Value> =
        told["changes"].as_array().unwrap().iter().map(|change| &change["action"]).collect();
    assert_eq!(actions, ["create", "create", "create"], "{told:#}");
    assert_eq!(told["edges"]["opened"][0]["from"], "web", "{told:#}");
    let url = format!("http://{}/meshes/m", running.http.unwrap());
    assert_eq!(get_with(agent(None, None), url).await.0, 404, "nothing was written");

    assert_eq!(put(&running, "/meshes/m", mesh).await, 201);
    assert_eq!(put(&running, "/meshes/m/dataplanes/web", dataplane).await, 201);
    let (_, told) = post(&running, "/meshes/m/_what-if", json!({ "resources": [permission("all")] })).await;
    assert_eq!(told["edges"]["opened"].as_array().unwrap().len(), 1, "{told:#}");
    assert_eq!(get(&running, "/meshes/m/_access?from=web&to=web").await["verdict"], "Denied");
    assert_eq!(put(&running, "/meshes/m/meshtrafficpermissions/all", permission("all")).await, 201);
    assert_eq!(get(&running, "/meshes/m/_access?from=web&to=web").await["verdict"], "Allowed");
    running.finish().await;
}

#[tokio::test]
async fn a_global_control_plane_answers_what_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), StoreType::Memory);
    config.mode = Mode::Global;
    let running = start(config).await;
    let mesh = json!({ "type": "Mesh", "name": "m", "meshServices": { "mode": "Exclusive" } });
    assert_eq!(put(&running, "/meshes/m", mesh).await, 201);
    let (status, told) =
        post(&running, "/meshes/m/_what-if", json!({ "resources": [permission("all")] })).await;
    assert_eq!((status, &told["policies"][0]["reason"]), (200, &json!("MatchesNothing")), "{told:#}");
    let url = |path: &str| format!("http://{}/meshes/m/{path}", running.http.unwrap());
    for path in
        ["_access?from=a&to=b", "dataplanes/web/_rules", "dataplanes/web/_layout", "dataplanes/web/stats"]
    {
        let (status, body) = get_with(agent(None, None), url(path)).await;
        assert_eq!(status, 404, "there is no such Dataplane, and that is all: {body}");
    }
    running.finish().await;
}
