//! Configuration sent to proxies passes Envoy's own validation, from the start of a proxy on.

use std::{fs, process::Command};

use e2e::{Setup, envoy, eventually, proxy::RunningProxy, service::call};
use serde_json::{Value, json};

use crate::world::{World, answered_by, by_reference, by_tags, client, mesh};

/// Everything a proxy has, as one document it could start with.
fn document(proxy: &RunningProxy) -> Value {
    let dump: Value = serde_json::from_str(&proxy.admin("/config_dump").unwrap()).unwrap();
    let configs = dump["configs"].as_array().unwrap();
    let section = |name: &str| {
        let is_it = |config: &&Value| config["@type"].as_str().is_some_and(|kind| kind.ends_with(name));
        configs.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {dump}"))
    };
    let untyped = |resource: &Value| {
        let mut resource = resource.clone();
        resource.as_object_mut().unwrap().remove("@type");
        resource
    };
    let mut document = section("BootstrapConfigDump")["bootstrap"].clone();
    let fixed = document["static_resources"].as_object_mut().unwrap();
    let mut extend = |kind: &str, told: Vec<Value>| {
        assert!(!told.is_empty(), "the proxy was told no {kind}");
        let all = fixed.entry(kind).or_insert_with(|| json!([]));
        all.as_array_mut().unwrap().extend(told);
    };
    let clusters = section("ClustersConfigDump")["dynamic_active_clusters"].as_array().unwrap();
    extend("clusters", clusters.iter().map(|cluster| untyped(&cluster["cluster"])).collect());
    let listeners = section("ListenersConfigDump")["dynamic_listeners"].as_array().unwrap();
    extend(
        "listeners",
        listeners.iter().map(|listener| untyped(&listener["active_state"]["listener"])).collect(),
    );
    document
}

/// Envoy shows no private keys, so wherever one was, the control plane's own pair takes its place.
fn fill_in_keys(value: &mut Value, pair: &Value) {
    match value {
        Value::Object(fields) if fields.contains_key("private_key") => {
            for (name, file) in pair.as_object().unwrap() {
                fields.insert(name.clone(), json!({"filename": file}));
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| fill_in_keys(value, pair)),
        Value::Array(items) => items.iter_mut().for_each(|value| fill_in_keys(value, pair)),
        _ => {}
    }
}

fn check_valid(world: &World, proxy: &RunningProxy) {
    let file = proxy.work_dir().join("told.json");
    let own = |name: &str| world.control_plane.work_dir().join(name);
    let mut document = document(proxy);
    let pair = json!({"certificate_chain": own("kuma-cp.crt"), "private_key": own("kuma-cp.key")});
    fill_in_keys(&mut document, &pair);
    fs::write(&file, document.to_string()).unwrap();
    let validation =
        Command::new(envoy().unwrap()).args(["--mode", "validate", "--config-path"]).arg(&file).output();
    let validation = validation.unwrap();
    assert!(validation.status.success(), "{}", String::from_utf8_lossy(&validation.stderr));
}

#[test]
fn everything_proxies_were_told_passes_validation() {
    let world = World::start(Setup::default());
    let protocols = ["http", "http2", "grpc", "tcp"];
    let servers: Vec<_> = protocols.iter().map(|name| world.service(name, name, name)).collect();
    let targets: Vec<Value> = protocols.iter().flat_map(|name| [by_reference(name), by_tags(name)]).collect();
    let (caller, address) = client(&world, "client", &targets);
    assert_eq!(answered_by(address, 10001), "http");
    let check_all = || {
        check_valid(&world, &caller);
        servers.iter().for_each(|(_, server, _)| check_valid(&world, server));
    };
    check_all();
    world.put("/meshes/default", &mesh("PERMISSIVE"));
    for (_, _, inbound) in servers.iter().take(3) {
        eventually("plain traffic to be let in", || call(*inbound, 8080).is_ok()).unwrap();
    }
    check_all();
}
