//! Hostnames that a mesh gives services which are called by tags.

use std::sync::Arc;

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{AllMeshes, DestinationId};

use crate::{
    fixtures::{dataplane, gone, mesh, present, resource},
    zones::ingress,
};

fn named() -> AllMeshes {
    AllMeshes::in_zone("east").naming_services(Some(Arc::default()))
}

fn in_mode(mode: &str) -> Resource {
    let mut spec = mesh("STRICT").spec.to_json();
    if !mode.is_empty() {
        spec["meshServices"] = json!({ "mode": mode });
    }
    resource(Kind::Mesh, "default", &[], spec)
}

fn serving(name: &str, service: &str) -> Resource {
    let tags = json!({ "kuma.io/service": service, "version": name });
    dataplane(name, "10.0.0.1", json!([{ "port": 80, "tags": tags }]))
}

fn hosts(state: &AllMeshes) -> Vec<String> {
    let mesh = state.mesh("default").unwrap();
    let hosts = mesh.virtual_hosts.by_name.values();
    let ports = hosts.flat_map(|host| host.ports.iter().map(move |(port, to)| (host, port, to)));
    ports
        .map(|(host, port, to)| {
            let policy = to.policy.as_deref().unwrap_or("(mesh)");
            format!("{}:{port} {policy} {:?}", host.hostname, to.tags)
        })
        .collect()
}

#[test]
fn services_have_hostnames_in_every_mode_but_exclusive() {
    let host = "web.mesh:80 (mesh) {\"kuma.io/service\": \"web\"}";
    let mut state = named();
    state.apply(&[serving("1", "web"), serving("2", "web"), in_mode("")].map(present));
    assert_eq!(hosts(&state), [host]);
    for (mode, expected) in [
        ("Exclusive", &[][..]),
        ("Disabled", &[host]),
        ("Everywhere", &[host]),
        ("ReachableBackends", &[host]),
    ] {
        state.apply(&[present(in_mode(mode))]);
        assert_eq!(hosts(&state), expected, "{mode}");
    }
    state.apply(&[gone(&serving("1", "web"))]);
    assert_eq!(hosts(&state), [host]);
    state.apply(&[gone(&serving("2", "web"))]);
    assert_eq!(hosts(&state), [""; 0]);

    let mut unnamed = AllMeshes::in_zone("east");
    unnamed.apply(&[serving("1", "web"), in_mode("")].map(present));
    assert_eq!(hosts(&unnamed), [""; 0], "where the configuration says so");
}

#[test]
fn services_of_other_zones_have_hostnames_also_with_dots_for_underscores() {
    let listed = json!([{ "mesh": "default", "instances": 1,
        "tags": { "kuma.io/service": "kv_shop_svc_80", "kuma.io/zone": "west" } }]);
    let mut state = named();
    state.apply(&[in_mode(""), ingress("gate", "west", "192.168.0.1", listed)].map(present));
    assert_eq!(
        hosts(&state),
        [
            "kv.shop.svc.80.mesh:80 (mesh) {\"kuma.io/service\": \"kv_shop_svc_80\"}",
            "kv_shop_svc_80.mesh:80 (mesh) {\"kuma.io/service\": \"kv_shop_svc_80\"}",
        ]
    );
}

#[test]
fn a_virtual_outbound_leads_to_mesh_services_of_other_zones() {
    let conf = json!({ "host": "{{.srv}}.{{.zone}}.mesh", "port": "80", "parameters": [
        { "name": "srv", "tagKey": "kuma.io/service" }, { "name": "zone", "tagKey": "kuma.io/zone" }] });
    let spec = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
    let by_zone = resource(Kind::VirtualOutbound, "by-zone", &[], spec);
    let listed = json!([{ "mesh": "default", "instances": 2,
        "tags": { "kuma.io/service": "backend", "kuma.io/zone": "west", "version": "1" } }]);
    let mut state = named();
    let gate = ingress("gate", "west", "192.168.0.1", listed);
    state.apply(&[in_mode("Exclusive"), by_zone, gate].map(present));
    let tags = "{\"kuma.io/service\": \"backend\", \"kuma.io/zone\": \"west\"}";
    assert_eq!(hosts(&state), [format!("backend.west.mesh:80 by-zone {tags}")]);
    let mesh = state.mesh("default").unwrap();
    let leads_to = &mesh.virtual_hosts.by_name["backend.west.mesh"].ports[&80].tags;
    let found = &mesh.endpoints[&DestinationId::Tags(leads_to.clone())];
    assert_eq!((found.0[0].address.as_str(), found.0[0].weight), ("192.168.0.1", 2));
}

#[test]
fn a_virtual_outbound_replaces_what_the_mesh_offers_without_a_conflict() {
    let policy = |port: &str| -> Resource {
        let conf = json!({ "host": "{{.srv}}.mesh", "port": port, "parameters": [
            { "name": "srv", "tagKey": "kuma.io/service" }, { "name": "version" }] });
        let spec: Value = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
        resource(Kind::VirtualOutbound, "own", &[], spec)
    };
    let mut state = named();
    state.apply(&[serving("1", "web"), in_mode(""), policy("80")].map(present));
    assert_eq!(hosts(&state), ["web.mesh:80 own {\"kuma.io/service\": \"web\", \"version\": \"1\"}"]);
    assert!(state.mesh("default").unwrap().virtual_hosts.conflicts.is_empty());
    state.apply(&[present(policy("8080"))]);
    assert_eq!(
        hosts(&state),
        [
            "web.mesh:80 (mesh) {\"kuma.io/service\": \"web\"}",
            "web.mesh:8080 own {\"kuma.io/service\": \"web\", \"version\": \"1\"}",
        ]
    );
}
