//! Destinations that are served in other zones, and the ways there.

use std::collections::BTreeSet;

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls, MeshSnapshot};

use crate::fixtures::{
    calling, destination, endpoints, gone, mesh, multi_zone, present, resource, service, serving, spelled,
};

/// A MeshService as it comes from another zone.
fn synchronised(name: &str, zone: &str, snis: &[&str]) -> Resource {
    let snis: Vec<Value> = snis.iter().map(|value| json!({ "value": value })).collect();
    let spec = json!({
        "state": "Available",
        "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "snis": snis }],
        "identities": [{ "type": "ServiceTag", "value": name }]
    });
    let labels =
        [("kuma.io/origin", "global"), ("kuma.io/zone", zone), ("kuma.io/display-name", name), ("app", name)];
    resource(Kind::MeshService, &format!("{name}-{zone}-x"), &labels, spec)
}

pub fn ingress(name: &str, zone: &str, address: &str, services: Value) -> Resource {
    let networking = json!({
        "address": "10.0.0.1", "port": 10001, "advertisedAddress": address, "advertisedPort": 10001
    });
    let spec = json!({ "zone": zone, "networking": networking, "availableServices": services });
    resource(Kind::ZoneIngress, name, &[], spec)
}

fn egress(address: &str) -> Resource {
    let spec = json!({ "zone": "east", "networking": { "address": address, "port": 10002 } });
    resource(Kind::ZoneEgress, "exit", &[], spec)
}

fn through_egress(mtls: &str) -> Resource {
    let mut spec = mesh(mtls).spec.to_json();
    spec["routing"] = json!({ "zoneEgress": true });
    resource(Kind::Mesh, "default", &[], spec)
}

fn seen(resources: impl IntoIterator<Item = Resource>) -> AllMeshes {
    let mut state = AllMeshes::in_zone("east");
    let changes: Vec<_> = resources.into_iter().map(present).collect();
    state.apply(&changes);
    state
}

fn default(state: &AllMeshes) -> &MeshSnapshot {
    state.mesh("default").unwrap()
}

const WEST: &str = "kri_msvc_default_west__backend_80";

#[test]
fn a_service_of_another_zone_is_called_at_the_ingresses_of_that_zone() {
    let entrances = |state: &AllMeshes| endpoints(default(state), WEST);
    let mut state = seen([
        mesh("STRICT"),
        synchronised("backend", "west", &["new.example", "old.example"]),
        ingress("i-1", "west", "192.168.0.1", json!([])),
        ingress("i-2", "west", "192.168.0.2", json!([])),
        ingress("other", "south", "192.168.0.3", json!([])),
        ingress("own", "east", "192.168.0.4", json!([])),
    ]);
    assert_eq!(entrances(&state), ["192.168.0.1:10001", "192.168.0.2:10001"]);
    let remote = destination(default(&state), WEST);
    assert_eq!(remote.remote.as_deref(), Some("west"));
    let ClientTls::Mesh { sni, spiffe_ids } = &remote.tls else { panic!("plain") };
    assert_eq!((sni.as_str(), spiffe_ids), ("new.example", &vec!["spiffe://default/backend".to_owned()]));

    state.apply(&[gone(&ingress("i-1", "west", "", json!([])))]);
    assert_eq!(entrances(&state), ["192.168.0.2:10001"]);
    // Without certificates nothing crosses zones.
    state.apply(&[present(mesh(""))]);
    assert_eq!(entrances(&state), Vec::<String>::new());
}

#[test]
fn servers_accept_every_name_of_a_port_and_what_peers_compute() {
    let names = |snis: &[&str]| {
        let state = seen([mesh("STRICT"), synchronised("backend", "west", snis)]);
        destination(default(&state), WEST).server_names.to_vec()
    };
    let computed = ["a601e0c00295a9fbe.backend.80.default.ms", "sni.msvc.default.west.backend.80"];
    assert_eq!(names(&[]), computed);
    assert_eq!(names(&["new.example", computed[0]]), ["new.example", computed[0], computed[1]]);
}

#[test]
fn traffic_leaves_the_zone_through_its_egress_if_the_mesh_says_so() {
    let outside = json!({
        "match": { "port": 443 }, "endpoints": [{ "address": "example.com", "port": 443 }]
    });
    let mut state = seen([
        through_egress("STRICT"),
        synchronised("backend", "west", &[]),
        synchronised("lonely", "south", &[]),
        ingress("i-1", "west", "192.168.0.1", json!([])),
        resource(Kind::MeshExternalService, "out", &[], outside),
    ]);
    let external = "kri_extsvc_default___out_443";
    // A zone without an egress calls other zones all the same, and nothing that is outside of the mesh.
    assert_eq!(endpoints(default(&state), WEST), ["192.168.0.1:10001"]);
    assert_eq!(endpoints(default(&state), external), Vec::<String>::new());

    state.apply(&[present(egress("10.9.0.1"))]);
    assert_eq!(endpoints(default(&state), WEST), ["10.9.0.1:10002"]);
    let lonely = "kri_msvc_default_south__lonely_80";
    assert_eq!(endpoints(default(&state), lonely), Vec::<String>::new(), "nothing to lead to");
    assert_eq!(endpoints(default(&state), external), ["10.9.0.1:10002"]);
    let out = destination(default(&state), external);
    let ClientTls::Mesh { sni, spiffe_ids } = &out.tls else { panic!("plain") };
    assert!(sni.ends_with(".out.443.default.mes"), "{sni}");
    assert_eq!(spiffe_ids, &["spiffe://default/zone-egress"]);
    let behind = out.external.as_ref().unwrap().behind_egress.as_ref().unwrap();
    assert_eq!(behind.0[0].address, "example.com");

    state.apply(&[present(mesh("STRICT"))]);
    assert_eq!(endpoints(default(&state), WEST), ["192.168.0.1:10001"]);
    assert_eq!(endpoints(default(&state), external), ["example.com:443"]);
}

#[test]
fn a_service_of_several_zones_has_those_of_its_own_zone_first() {
    let state = seen([
        mesh("STRICT"),
        Resource { labels: [("app".to_owned(), "backend".to_owned())].into(), ..service("backend") },
        serving("dp", "10.0.0.7", "backend"),
        synchronised("backend", "west", &[]),
        ingress("i-1", "west", "192.168.0.1", json!([])),
        multi_zone("all", "backend", json!([{ "port": 80 }])),
    ]);
    let all = destination(default(&state), "kri_mzsvc_default___all_80");
    let found = &default(&state).endpoints[&all.id].0;
    let places: Vec<_> = found.iter().map(|e| (e.address.as_str(), e.priority, e.zone())).collect();
    assert_eq!(places, [("10.0.0.7", 0, None), ("192.168.0.1", 1, Some("west"))]);
}

#[test]
fn a_service_of_several_zones_is_not_called_where_it_has_no_instance() {
    let in_state = |zone: &str, state: &str| {
        let mut service = synchronised("backend", zone, &[]);
        let mut spec = service.spec.to_json();
        spec["state"] = json!(state);
        service.spec = resource(Kind::MeshService, "x", &[], spec).spec;
        service
    };
    let mut state = seen([
        mesh("STRICT"),
        in_state("west", "Available"),
        in_state("south", "Unavailable"),
        ingress("i-1", "west", "192.168.0.1", json!([])),
        ingress("i-2", "south", "192.168.0.2", json!([])),
        multi_zone("all", "backend", json!([{ "port": 80 }])),
    ]);
    let all = "kri_mzsvc_default___all_80";
    assert_eq!(endpoints(default(&state), all), ["192.168.0.1:10001"]);
    // Clients that mean that zone alone go on calling it.
    assert_eq!(endpoints(default(&state), "kri_msvc_default_south__backend_80"), ["192.168.0.2:10001"]);
    let before = state.destinations_built();
    let update = state.apply(&[present(in_state("south", "Available"))]).pop().unwrap();
    assert_eq!(endpoints(default(&state), all), ["192.168.0.1:10001", "192.168.0.2:10001"]);
    let touched: Vec<String> = update.affected.endpoints.iter().map(spelled).collect();
    assert_eq!((touched, update.affected.destinations.len()), (vec![all.to_owned()], 0));
    assert_eq!(state.destinations_built() - before, 2, "the service and what is made of it");
    state.apply(&[present(in_state("west", "Unavailable"))]);
    assert_eq!(endpoints(default(&state), all), ["192.168.0.2:10001"]);
}

#[test]
fn what_global_calls_by_a_name_is_found_by_it() {
    let origin = [("kuma.io/origin", "global"), ("kuma.io/display-name", "all")];
    let stored = |name: &str, more: &[(&str, &str)]| {
        let spec = multi_zone(name, "backend", json!([{ "port": 80 }])).spec.to_json();
        resource(Kind::MeshMultiZoneService, name, &[&origin[..], more].concat(), spec)
    };
    let find = |state: &AllMeshes, name: &str| {
        let reference = json!({ "kind": "MeshMultiZoneService", "name": name, "port": 80 });
        let reference = serde_json::from_value(reference).unwrap();
        default(state).backend(&reference).map(|found| spelled(&found.id))
    };
    let mut state = seen([mesh("STRICT"), stored("all-x8fzv", &[])]);
    let all = Some("kri_mzsvc_default___all_80".to_owned());
    assert_eq!(find(&state, "all"), all);
    assert_eq!(find(&state, "all-x8fzv"), all);
    assert_eq!(find(&state, "none"), None);
    state.apply(&[present(stored("all-x8fzv", &[("kuma.io/zone", "west")]))]);
    assert_eq!(find(&state, "all"), None, "that of another zone is not meant");
    state.apply(&[present(resource(
        Kind::MeshMultiZoneService,
        "all",
        &[("kuma.io/zone", "east")],
        multi_zone("all", "backend", json!([{ "port": 80 }])).spec.to_json(),
    ))]);
    assert_eq!(find(&state, "all").as_deref(), Some("kri_mzsvc_default_east__all_80"));
}

#[test]
fn what_is_chosen_by_tags_is_called_where_an_ingress_lists_it() {
    let listed = |mesh: &str, version: &str, instances: u32| {
        let tags = json!({ "kuma.io/service": "backend", "version": version, "kuma.io/protocol": "http" });
        json!({ "mesh": mesh, "instances": instances, "tags": tags })
    };
    let services = json!([listed("default", "1", 2), listed("default", "2", 3), listed("other", "2", 5)]);
    let wanted = [
        json!({ "kuma.io/service": "backend" }),
        json!({ "kuma.io/service": "backend", "version": "2" }),
        json!({ "kuma.io/service": "backend", "version": "3" }),
    ];
    let mut state = seen([
        mesh("STRICT"),
        calling("web", &wanted),
        serving("dp", "10.0.0.7", "backend"),
        ingress("i-1", "west", "192.168.0.1", services.clone()),
    ]);
    let called = |state: &AllMeshes, id: &str| -> Vec<(String, u32, u32)> {
        let id = &destination(default(state), id).id;
        let found = &default(state).endpoints[id].0;
        found.iter().map(|e| (e.address.clone(), e.weight, e.priority)).collect()
    };
    let place = |address: &str, weight, priority| (address.to_owned(), weight, priority);
    assert_eq!(called(&state, "backend"), [place("10.0.0.7", 1, 0), place("192.168.0.1", 5, 0)]);
    assert_eq!(called(&state, "backend{version=2}"), [place("192.168.0.1", 3, 0)]);
    assert_eq!(called(&state, "backend{version=3}"), []);
    let ClientTls::Mesh { sni, .. } = &destination(default(&state), "backend{version=2}").tls else {
        panic!("plain")
    };
    assert_eq!(sni, "backend{mesh=default,version=2}");

    let mut aware = mesh("STRICT").spec.to_json();
    aware["routing"] = json!({ "localityAwareLoadBalancing": true });
    state.apply(&[present(resource(Kind::Mesh, "default", &[], aware))]);
    assert_eq!(called(&state, "backend"), [place("10.0.0.7", 1, 0), place("192.168.0.1", 5, 1)]);
}

#[test]
fn every_service_is_offered_by_its_tag_while_other_zones_can_enter() {
    let offered = |state: &AllMeshes| {
        let ids = default(state).destinations.keys().map(spelled);
        ids.filter(|id| !id.starts_with("kri_")).collect::<Vec<_>>()
    };
    let mut state =
        seen([mesh("STRICT"), serving("dp-1", "10.0.0.1", "a"), serving("dp-2", "10.0.0.2", "a")]);
    assert_eq!(offered(&state), Vec::<String>::new());
    state.apply(&[present(ingress("own", "east", "192.168.0.4", json!([])))]);
    assert_eq!(offered(&state), ["a"]);
    assert_eq!(endpoints(default(&state), "a"), ["10.0.0.1:80", "10.0.0.2:80"]);
    let counted: Vec<u32> = default(&state).instances.values().copied().collect();
    assert_eq!(counted, [2]);
    state.apply(&[gone(&serving("dp-1", "", "a")), present(serving("dp-2", "10.0.0.2", "b"))]);
    assert_eq!(offered(&state), ["b"]);
    let mut exclusive = mesh("STRICT").spec.to_json();
    exclusive["meshServices"] = json!({ "mode": "Exclusive" });
    state.apply(&[present(resource(Kind::Mesh, "default", &[], exclusive))]);
    assert_eq!(offered(&state), Vec::<String>::new());
}

#[test]
fn a_changed_ingress_costs_what_it_leads_to() {
    let names: Vec<String> = (0..50).map(|i| format!("s-{i:02}")).collect();
    let zones = ["west", "south"];
    let services = names.iter().flat_map(|name| zones.map(|zone| synchronised(name, zone, &[])));
    let local = names.iter().map(|name| service(&format!("l-{name}")));
    let listed = |service: &str, instances: u32| json!({ "mesh": "default", "instances": instances, "tags": { "kuma.io/service": service } });
    let all: Vec<Value> = names.iter().map(|name| listed(name, 1)).collect();
    let callers =
        names.iter().map(|name| calling(&format!("c-{name}"), &[json!({ "kuma.io/service": name })]));
    let gates = [
        ingress("i-1", "west", "192.168.0.1", json!(all)),
        ingress("i-2", "south", "192.168.0.2", json!([])),
    ];
    let all_of_them = [mesh("STRICT")].into_iter().chain(services).chain(local).chain(callers).chain(gates);
    let mut state = seen(all_of_them);
    let mut cost = |changed: Resource| {
        let before = state.destinations_built();
        let affected = state.apply(&[present(changed)]).pop().map(|update| update.affected);
        let touched: BTreeSet<_> = affected.map(|affected| affected.endpoints).unwrap_or_default();
        (state.destinations_built() - before, touched.len())
    };
    let mut one = all.clone();
    one[7] = listed("s-07", 2);
    assert_eq!(cost(ingress("i-1", "west", "192.168.0.1", json!(one))), (1, 1), "one service of a list");
    assert_eq!(cost(ingress("i-2", "south", "192.168.0.9", json!([]))), (50, 50), "one zone of two");
    assert_eq!(cost(ingress("own", "east", "192.168.0.4", json!([]))), (0, 0), "it leads to this zone");
}

#[test]
fn services_of_other_zones_are_reached_if_known_permissions_may_allow() {
    let managed = |name: &str| {
        let mut service = synchronised(name, "west", &[]);
        service.labels.insert("kuma.io/managed-by".to_owned(), "meshservice-generator".to_owned());
        service
    };
    let permission = |name: &str, target: Value, client: &str| {
        let from = json!([{ "targetRef": { "kind": "MeshService", "name": client }, "default": { "action": "Allow" } }]);
        resource(Kind::MeshTrafficPermission, name, &[], json!({ "targetRef": target, "from": from }))
    };
    let web = serving("web", "10.0.0.5", "web");
    let mut state = seen([
        mesh("STRICT"),
        managed("backend"),
        managed("other"),
        ingress("i-1", "west", "192.168.0.1", json!([])),
        web.clone(),
        permission("to-backend", json!({ "kind": "MeshService", "name": "backend" }), "web"),
    ]);
    let reached = |state: &AllMeshes| {
        let mesh = default(state);
        let class = topology::ClientClass::of(mesh, &mesh.dataplanes["web"]);
        let ids = mesh.access.destinations(&class);
        ids.into_iter().map(spelled).filter(|id| id.contains("west")).collect::<Vec<_>>()
    };
    assert_eq!(reached(&state), [WEST]);

    // Labels of Dataplanes in another zone are not known: the permission may be about any of them.
    let by_labels = json!({ "kind": "Dataplane", "labels": { "app": "other" } });
    state.apply(&[present(permission("by-labels", by_labels, "web"))]);
    assert_eq!(reached(&state), [WEST, "kri_msvc_default_west__other_80"]);
    state.apply(&[gone(&permission("by-labels", json!({ "kind": "Mesh" }), "web"))]);
    assert_eq!(reached(&state), [WEST]);

    // Nor are the permissions that the other zone keeps to itself.
    let mut says_so = ingress("i-1", "west", "192.168.0.1", json!([]));
    says_so.labels.insert("reachability.kuma.io/own-permissions".to_owned(), "true".to_owned());
    state.apply(&[present(says_so)]);
    assert_eq!(reached(&state), [WEST, "kri_msvc_default_west__other_80"]);
}
