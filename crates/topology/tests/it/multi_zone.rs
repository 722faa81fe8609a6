//! MeshMultiZoneServices: several MeshServices reached as one.

use std::sync::Arc;

use resources::{Key, Kind, Resource, kinds::dataplane::BackendRef};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls, Protocol, ResourceChange};

use crate::{
    fixtures::{
        destination, endpoints, gone, labelled, mesh, multi_zone, present, resource, service, serving,
        snapshot, spelled, state, with_status,
    },
    generation::World,
};

const ID: &str = "kri_mzsvc_default___all_80";

fn web(name: &str) -> Resource {
    labelled(service(name), &[("app", "web")])
}

fn all(ports: Value) -> Resource {
    multi_zone("all", "web", ports)
}

fn at_80() -> Resource {
    all(json!([{ "port": 80, "appProtocol": "http" }]))
}

/// Two services of one Dataplane each that belong to it, and one that does not.
fn zone(mtls: &str) -> Vec<Resource> {
    let mut resources = vec![mesh(mtls), web("a"), web("b"), service("c")];
    resources.extend(
        ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(i, name)| serving(&format!("dp-{name}"), &format!("10.0.0.{}", i + 1), name)),
    );
    resources
}

#[test]
fn it_leads_to_the_endpoints_of_every_service_it_selects() {
    let snapshot = snapshot(zone("").into_iter().chain([at_80()]));
    assert_eq!(endpoints(&snapshot, ID), ["10.0.0.1:80", "10.0.0.2:80"]);
    let all = destination(&snapshot, ID);
    assert_eq!((all.port, all.protocol, &all.tls), (80, Protocol::Http, &ClientTls::Off));
    assert_eq!(all.service, Some(Key::new(Kind::MeshMultiZoneService, "default", "all")));
}

#[test]
fn its_ports_lead_to_ports_of_the_same_number_whatever_they_are_called() {
    let ports = json!([{ "port": 80, "name": "main" }, { "port": 81 }]);
    let two = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "a" } },
        "ports": [{ "port": 81, "targetPort": 80, "name": "main" }]
    });
    let two = resource(Kind::MeshService, "a-81", &[("app", "web")], two);
    let snapshot = snapshot(zone("").into_iter().chain([all(ports), two]));
    assert_eq!(endpoints(&snapshot, "kri_mzsvc_default___all_main"), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(endpoints(&snapshot, "kri_mzsvc_default___all_81"), ["10.0.0.1:80"]);
}

#[test]
fn services_that_have_other_ports_or_protocols_are_named() {
    let ports = json!([{ "port": 80, "appProtocol": "tcp" }, { "port": 81 }]);
    let snapshot = snapshot(zone("").into_iter().chain([all(ports)]));
    let said = |id: &str| destination(&snapshot, id).disagreements.to_vec();
    assert_eq!(
        said(ID),
        [
            "port 80 of kri_msvc_default___a_ speaks http, not tcp",
            "port 80 of kri_msvc_default___b_ speaks http, not tcp"
        ]
    );
    assert_eq!(
        said("kri_mzsvc_default___all_81"),
        ["kri_msvc_default___a_ has no port 81", "kri_msvc_default___b_ has no port 81"]
    );
    let fine = crate::fixtures::snapshot(zone("").into_iter().chain([at_80()]));
    assert!(destination(&fine, ID).disagreements.is_empty());
}

#[test]
fn its_kri_says_where_it_comes_from_and_its_status_how_it_is_reached() {
    let labels =
        [("kuma.io/zone", "east"), ("k8s.kuma.io/namespace", "shop"), ("kuma.io/display-name", "all")];
    let status = json!({
        "vips": [{ "ip": "243.0.0.1" }],
        "addresses": [{ "hostname": "all.mzsvc.mesh.local", "origin": "HostnameGenerator" }]
    });
    let placed = with_status(labelled(at_80(), &labels), status);
    let snapshot = snapshot(zone("").into_iter().chain([placed]));
    let all = destination(&snapshot, "kri_mzsvc_default_east_shop_all_80");
    assert_eq!(all.vips, ["243.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(all.hostnames, ["all.mzsvc.mesh.local"]);
}

#[test]
fn clients_dial_its_own_sni_and_expect_any_of_the_services() {
    let hashed = snapshot(zone("STRICT").into_iter().chain([at_80()]));
    let ClientTls::Mesh { sni, spiffe_ids } = &destination(&hashed, ID).tls else { panic!("plain") };
    assert!(sni.ends_with(".all.80.default.mzms"), "{sni}");
    assert_eq!(spiffe_ids, &["spiffe://default/a", "spiffe://default/b"]);

    let given =
        all(json!([{ "port": 80, "snis": [{ "value": "first.example" }, { "value": "old.example" }] }]));
    let given = snapshot(zone("STRICT").into_iter().chain([given]));
    let ClientTls::Mesh { sni, .. } = &destination(&given, ID).tls else { panic!("plain") };
    assert_eq!(sni, "first.example");
}

#[test]
fn in_a_permissive_mesh_it_is_called_with_tls_once_every_service_is_ready() {
    let ready = |name| with_status(web(name), json!({ "tls": { "status": "Ready" } }));
    let mut state = state(zone("PERMISSIVE").into_iter().chain([at_80()]));
    let tls = |state: &AllMeshes| destination(state.mesh("default").unwrap(), ID).tls.clone();
    state.apply(&[present(ready("a"))]);
    assert_eq!(tls(&state), ClientTls::Off, "b is not ready");
    state.apply(&[present(ready("b"))]);
    assert!(matches!(tls(&state), ClientTls::Mesh { .. }));
}

#[test]
fn a_reference_finds_its_port_by_name_or_by_labels() {
    let labelled = labelled(at_80(), &[("team", "shop")]);
    let snapshot = snapshot(zone("").into_iter().chain([labelled]));
    let find = |reference: Value| {
        let reference: BackendRef = serde_json::from_value(reference).unwrap();
        snapshot.backend(&reference).map(|found| spelled(&found.id))
    };
    let kind = "MeshMultiZoneService";
    assert_eq!(find(json!({ "kind": kind, "name": "all", "port": 80 })).as_deref(), Some(ID));
    assert_eq!(find(json!({ "kind": kind, "labels": { "team": "shop" }, "port": 80 })).as_deref(), Some(ID));
    assert_eq!(find(json!({ "kind": kind, "name": "all", "port": 81 })), None);
    assert_eq!(find(json!({ "kind": "MeshService", "name": "all", "port": 80 })), None);
}

#[test]
fn services_of_another_mesh_are_not_selected() {
    let other = Resource { key: Key::new(Kind::MeshService, "other", "a"), ..web("a") };
    let elsewhere =
        Resource { key: Key::new(Kind::Dataplane, "other", "dp"), ..serving("dp", "10.0.0.9", "a") };
    let mut state = state(zone("").into_iter().chain([at_80()]));
    assert!(state.apply(&[present(other), present(elsewhere)]).is_empty());
    assert_eq!(endpoints(state.mesh("default").unwrap(), ID), ["10.0.0.1:80", "10.0.0.2:80"]);
}

/// Twenty of them, of one service each, and one of all; says what a change affects and what it costs.
fn check(change: ResourceChange, expect: &[&str], cost: u64) {
    let names: Vec<String> = (0..20).map(|i| format!("s-{i:02}")).collect();
    let of_one = |name: &String| multi_zone(&format!("m-{name}"), name, json!([{ "port": 80 }]));
    let of_all = resource(
        Kind::MeshMultiZoneService,
        "all",
        &[],
        json!({ "selector": { "meshService": { "matchLabels": { "team": "x" } } }, "ports": [{ "port": 80 }] }),
    );
    let services = names.iter().map(|name| labelled(service(name), &[("app", name), ("team", "x")]));
    let dataplanes = names
        .iter()
        .enumerate()
        .map(|(i, name)| serving(&format!("dp-{name}"), &format!("10.0.1.{i}"), name));
    let all = [mesh("STRICT"), of_all].into_iter().chain(services).chain(dataplanes);
    let mut state = state(all.chain(names.iter().map(of_one)));
    let before = state.destinations_built();
    let affected = state.apply(&[change]).pop().map(|update| update.affected).unwrap_or_default();
    let ids = |ids: &std::collections::BTreeSet<_>| ids.iter().map(spelled).collect::<Vec<_>>();
    let found = [ids(&affected.destinations), ids(&affected.endpoints)].concat();
    assert_eq!(found, expect);
    assert_eq!(state.destinations_built() - before, cost, "destinations computed");
}

#[test]
fn only_those_who_consist_of_a_service_are_computed_again_when_it_changes() {
    let moved = |address| present(serving("dp-s-07", address, "s-07"));
    let of_07 = ["kri_msvc_default___s-07_80", "kri_mzsvc_default___all_80", "kri_mzsvc_default___m-s-07_80"];
    check(moved("10.0.2.1"), &of_07, 3);
    check(moved("10.0.1.7"), &[], 0);

    let same = labelled(service("s-07"), &[("app", "s-07"), ("team", "x")]);
    let counted = json!({ "dataplaneProxies": { "connected": 1, "healthy": 1, "total": 1 } });
    check(present(with_status(same.clone(), counted)), &[], 1);

    check(gone(&same), &of_07, 2);

    let unlabelled = labelled(service("s-07"), &[("app", "s-07")]);
    check(present(unlabelled), &["kri_msvc_default___s-07_80", "kri_mzsvc_default___all_80"], 3);
}

fn status(world: &World, name: &str) -> Value {
    let found = world.multi_zone.iter().find(|resource| resource.name() == name).unwrap();
    found.status.as_ref().unwrap().to_json()
}

#[test]
fn its_status_lists_the_services_it_consists_of_and_its_address() {
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    let place = [("kuma.io/display-name", "a"), ("k8s.kuma.io/namespace", "shop"), ("kuma.io/zone", "west")];
    let other_zone = [&[("app", "web"), ("kuma.io/origin", "global")], &place[..]].concat();
    world.services.extend([
        Arc::new(labelled(service("b"), &[("app", "web"), ("kuma.io/zone", "east")])),
        Arc::new(labelled(service("a-x8fzv"), &other_zone)),
    ]);
    world.multi_zone = vec![Arc::new(at_80()), Arc::new(multi_zone("none", "db", json!([{ "port": 80 }])))];
    world.settle();
    assert_eq!(
        status(&world, "all"),
        json!({
            "vips": [{ "ip": "243.0.0.0" }],
            "meshServices": [
                { "name": "a", "namespace": "shop", "zone": "west", "mesh": "default" },
                { "name": "b", "namespace": "", "zone": "east", "mesh": "default" }
            ],
            "conditions": [{
                "type": "MeshServicesMatched", "status": "True",
                "reason": "MatchesFound", "message": "Matched 2 MeshService(s)"
            }]
        })
    );
    assert_eq!(
        status(&world, "none"),
        json!({
            "vips": [{ "ip": "243.0.0.1" }],
            "conditions": [{
                "type": "MeshServicesMatched", "status": "False", "reason": "NoMatchesFound",
                "message": "Selector does not match any MeshService in this zone"
            }]
        })
    );
}

#[test]
fn a_service_that_is_generated_now_is_matched_at_once() {
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    let selector = json!({ "meshService": { "matchLabels": { "kuma.io/display-name": "backend" } } });
    let spec = json!({ "selector": selector, "ports": [{ "port": 80 }] });
    world.multi_zone = vec![Arc::new(resource(Kind::MeshMultiZoneService, "all", &[], spec))];
    world.settle();
    let matched = json!([{ "name": "backend", "namespace": "", "zone": "east", "mesh": "default" }]);
    assert_eq!(status(&world, "all")["meshServices"], matched);
}
