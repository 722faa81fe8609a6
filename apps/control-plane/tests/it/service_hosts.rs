//! `<service>.mesh` resolves in every mesh whose services are called by tags, however the mesh came here.

use std::sync::Arc;

use control_plane::config::setting::StoreType;
use reconcilers::virtual_hosts;
use resources::Key;
use runtime::{Shutdown, metrics::Metrics};
use serde_json::{Value, json};
use serving::push::Push;
use store::{Memory, Store};

use crate::{
    client,
    world::{SOON, World, dataplane, eventually, mesh, resource, runner},
};

fn transparent(mesh: &str, service: &str) -> Value {
    json!({
        "type": "Dataplane", "mesh": mesh, "name": format!("{service}-1"),
        "networking": {
            "address": "192.168.0.2",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": service } }],
            "transparentProxying": { "redirectPortInbound": 15006, "redirectPortOutbound": 15001 },
        },
    })
}

/// A mesh in the form in which Kuma's `kumactl export` writes it: nothing comes with it.
fn exported(name: &str, mode: Option<&str>) -> Value {
    let mut mesh = json!({ "type": "Mesh", "name": name, "skipCreatingInitialPolicies": ["*"] });
    if let Some(mode) = mode {
        mesh["meshServices"] = json!({ "mode": mode });
    }
    mesh
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_services_resolve_in_an_exported_mesh_unless_exclusive() {
    let directory = tempfile::tempdir().unwrap();
    let running = client::start(client::config(directory.path(), StoreType::Memory)).await;
    let meshes = [("shop", None), ("bank", Some("Everywhere")), ("zoo", Some("Exclusive"))];
    for (name, mode) in meshes {
        assert_eq!(client::put(&running, &format!("/meshes/{name}"), exported(name, mode)).await, 201);
        let path = format!("/meshes/{name}/dataplanes/web-1");
        assert_eq!(client::put(&running, &path, transparent(name, "web")).await, 201);
    }
    let deadline = tokio::time::Instant::now() + SOON;
    for name in ["shop", "bank"] {
        let found = loop {
            let listed = client::get(&running, &format!("/meshes/{name}/dataplanes/web-1/_hostnames")).await;
            let items = listed["items"].as_array().cloned().unwrap_or_default();
            if let Some(found) = items.into_iter().find(|item| item["hostname"] == "web.mesh") {
                break found;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name}: {listed:#}");
            tokio::task::yield_now().await;
        };
        let port = json!({ "port": 80, "origin": { "kind": "Mesh", "name": name },
                           "tags": { "kuma.io/service": "web" } });
        assert_eq!(found["ports"], json!([port]));
        assert!(found["addresses"][0].as_str().unwrap().starts_with("240."), "{found}");
    }
    let listed = client::get(&running, "/meshes/zoo/dataplanes/web-1/_hostnames").await;
    let items = listed["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["hostname"] != "web.mesh"), "{items:?}");
    running.finish().await;
}

#[tokio::test]
async fn names_of_services_keep_kumas_addresses_below_the_configured_domain() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut config = reconcilers::Config::default();
    config.dns_server.domain = "shop.internal".to_owned();
    let push = Push::new(store.clone(), "default").naming_services(config.dns_server.service_hosts());
    let world = World { store: store.clone(), push: Arc::new(push), shutdown: Shutdown::default() };
    let push = &world.push;
    let shutdown = &world.shutdown;
    virtual_hosts::start(push, Arc::default(), &config, &Metrics::default(), &runner(&store, shutdown))
        .unwrap();
    world.push.start(&world.shutdown);

    // Past the registrar, as an import and another control plane write it.
    let given = json!({ "0:web": { "address": "240.0.0.7", "outbounds": [] } }).to_string();
    let given = resource(
        Key::global(resources::Kind::Config, "kuma-default-dns-vips"),
        &[],
        json!({ "config": given }),
    );
    world.put([mesh("default", ""), given, dataplane("default", "web-1", "127.0.0.1", "web", &[])]).await;
    let told = || {
        let mesh = world.push.mesh("default")?;
        mesh.virtual_hosts.by_name.get("web.shop.internal")?.vip
    };
    eventually("the name has the address that Kuma gave it", || {
        told().is_some_and(|address| address.to_string() == "240.0.0.7")
    })
    .await;
}
