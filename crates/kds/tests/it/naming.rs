//! Directions of resources, and their names on the other side.

use kds::{
    Synced, mapping,
    select::{Direction, WithdrawnZones},
};
use resources::{
    Key, Kind, Resource, Status,
    kinds::{dataplane_insight::DataplaneInsight, secret::GlobalSecret},
    labels,
};
use serde_json::json;

use crate::{
    codec::resource,
    world::{Plane, selection},
};

fn to_zone(resource: &Resource) -> Option<Synced> {
    selection(Direction::ToZone("west".into())).outgoing(resource, &WithdrawnZones::default())
}

fn to_global(resource: &Resource) -> Option<Synced> {
    selection(Direction::ToGlobal("zone-1".into())).outgoing(resource, &WithdrawnZones::default())
}

fn timeout(name: &str, labels: &[(&str, &str)]) -> Resource {
    resource(Kind::MeshTimeout, "default", name, labels, json!({}))
}

fn service(name: &str, labels: &[(&str, &str)]) -> Resource {
    resource(Kind::MeshService, "default", name, labels, json!({}))
}

const FROM_EAST: [(&str, &str); 2] = [(labels::ORIGIN, "zone"), (labels::ZONE, "east")];

#[test]
fn a_zone_gets_a_policy_with_hashed_and_display_name_without_status() {
    let mut policy = timeout("default-timeout-global", &[("team", "a")]);
    policy.status = Some(Status::from_json(Kind::MeshTimeout, json!({})).unwrap());
    let synced = to_zone(&policy).unwrap();
    assert_eq!(&*synced.key.name, "default-timeout-global-54dbd4c66zwbcf9c");
    assert_eq!(mapping::wire_name(&synced.key), "default-timeout-global-54dbd4c66zwbcf9c.default");
    let expected =
        [(labels::DISPLAY_NAME, "default-timeout-global"), (labels::ORIGIN, "global"), ("team", "a")];
    assert_eq!(synced.labels, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(synced.status, None);
}

#[test]
fn global_gets_a_service_under_the_name_of_its_zone_and_without_its_plans() {
    let mut backend = service("redis-zone-1", &[(labels::DELETION_GRACE_PERIOD, "2026-01-01T00:00:00Z")]);
    backend.status =
        Some(Status::from_json(Kind::MeshService, json!({ "vips": [{ "ip": "241.0.0.1" }] })).unwrap());
    let synced = to_global(&backend).unwrap();
    assert_eq!(&*synced.key.name, "redis-zone-1-2v6wfvvcvbc9f55d");
    let expected =
        [(labels::DISPLAY_NAME, "redis-zone-1"), (labels::ORIGIN, "zone"), (labels::ZONE, "zone-1")];
    assert_eq!(synced.labels, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(synced.status, backend.status);
}

#[test]
fn what_crosses_zones_has_one_name_on_global_and_in_the_other_zones() {
    let on_global = to_global(&service("redis-zone-1", &[])).unwrap();
    let mut stored = service("x", &[]);
    (stored.key, stored.labels) = (on_global.key.clone(), on_global.labels);
    assert_eq!(to_zone(&stored).unwrap().key, on_global.key);
}

#[test]
fn names_on_the_wire_end_in_the_mesh_or_in_a_dot() {
    let zone = Key::global(Kind::Zone, "zone-1");
    assert_eq!(mapping::wire_name(&zone), "zone-1.");
    assert_eq!(mapping::key_of(Kind::Zone, "zone-1."), Some(zone));
    let dotted = Key::new(Kind::Secret, "default", "default.ca-builtin-cert-ca-1");
    assert_eq!(mapping::key_of(Kind::Secret, "default.ca-builtin-cert-ca-1.default"), Some(dotted));
    assert_eq!(mapping::key_of(Kind::Secret, "no-dot"), None);
    assert_eq!(mapping::key_of(Kind::Secret, ".default"), None);
}

#[test]
fn kinds_that_others_refer_to_by_name_keep_it() {
    for kind in [Kind::Mesh, Kind::Secret] {
        let kept = resource(kind, "default", "some-name", &[], json!({}));
        let synced = to_zone(&kept).unwrap();
        assert_eq!(synced.key, kept.key);
        assert_eq!(synced.labels.get(labels::DISPLAY_NAME), None);
    }
    assert_eq!(
        &*to_zone(&resource(Kind::HostnameGenerator, "", "foo", &[], json!({}))).unwrap().key.name,
        "foo-zxw6c95d42zfz9cc"
    );
}

#[test]
fn secrets_of_global_alone_stay_and_signing_keys_go_as_public_keys() {
    let secret = |name: &str| resource(Kind::GlobalSecret, "", name, &[], json!({ "data": "c2VjcmV0" }));
    for name in [
        "envoy-admin-ca",
        "admin-user-token",
        "inter-cp-ca",
        "user-token-revocations",
        "user-token-signing-key-1",
    ] {
        assert_eq!(to_zone(&secret(name)), None, "{name}");
    }
    let public = to_zone(&secret("zone-token-signing-key-7")).unwrap();
    assert_eq!(&*public.key.name, "zone-token-signing-public-key-7");
    assert_eq!(public.spec.get::<GlobalSecret>().unwrap().data.as_bytes(), b"public of secret");
    assert!(to_zone(&secret("zone-token-revocations")).is_some());
}

#[test]
fn of_the_settings_only_the_cluster_id_is_sent() {
    let setting = |name: &str, labels| resource(Kind::Config, "", name, labels, json!({ "config": "x" }));
    assert!(to_zone(&setting("kuma-cluster-id", &[])).is_some());
    assert!(to_zone(&setting("kuma-default-dns-vips", &[])).is_none());
    assert_eq!(to_zone(&setting("other", &[(labels::KDS_SYNC, "enabled")])), None);
}

#[test]
fn a_label_keeps_a_resource_where_it_is() {
    let here = [(labels::KDS_SYNC, "disabled")];
    assert_eq!(to_zone(&timeout("t", &here)), None);
    assert_eq!(to_global(&timeout("t", &here)), None);
}

#[test]
fn resources_of_enabled_zones_go_to_other_zones_and_not_home() {
    let backend = service("backend", &FROM_EAST);
    assert!(to_zone(&backend).is_some());
    let home = selection(Direction::ToZone("east".into()));
    assert_eq!(home.outgoing(&backend, &WithdrawnZones::default()), None);

    let global = Plane::new();
    global.put(resource(Kind::Zone, "", "east", &[], json!({ "enabled": false })));
    global.put(resource(Kind::Zone, "", "north", &[], json!({})));
    let off = WithdrawnZones::of(&global.snapshot());
    let west = selection(Direction::ToZone("west".into()));
    assert_eq!(west.outgoing(&backend, &off), None);
    let north = service("backend", &[(labels::ORIGIN, "zone"), (labels::ZONE, "north")]);
    assert!(west.outgoing(&north, &off).is_some());
}

#[test]
fn a_zone_that_stays_away_loses_its_ingresses_and_not_its_services() {
    let global = Plane::new();
    global.put(resource(Kind::Zone, "", "east", &[], json!({})));
    let ingress = resource(Kind::ZoneIngress, "", "in", &FROM_EAST, json!({}));
    let west = selection(Direction::ToZone("west".into()));
    for (absence, sent) in [(json!({ "withdrawn": true }), false), (json!({}), true)] {
        global.put(resource(Kind::ZoneInsight, "", "east", &[], json!({ "absence": absence })));
        let off = WithdrawnZones::of(&global.snapshot());
        assert_eq!(west.outgoing(&ingress, &off).is_some(), sent);
        assert!(west.outgoing(&service("backend", &FROM_EAST), &off).is_some());
    }
}

#[test]
fn of_the_policies_of_a_zone_others_get_those_of_producers() {
    let [origin, zone] = FROM_EAST;
    assert_eq!(to_zone(&timeout("t", &FROM_EAST)), None);
    assert_eq!(to_zone(&timeout("t", &[origin, zone, (labels::POLICY_ROLE, "consumer")])), None);
    let to = json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": "kv" }, "default": { "idleTimeout": "1s" } }] });
    let role = (labels::POLICY_ROLE, "producer");
    let producer = resource(Kind::MeshTimeout, "default", "t", &[origin, zone, role], to);
    assert_eq!(to_zone(&timeout("t", &[origin, zone, role])), None, "it is about no service");
    assert!(to_zone(&producer).is_some());
    let mut old = selection(Direction::ToZone("west".into()));
    old.producer_policies = false;
    assert_eq!(old.outgoing(&producer, &WithdrawnZones::default()), None);
}

#[test]
fn a_zone_sends_what_is_its_own_and_nothing_that_it_was_sent() {
    assert!(to_global(&service("backend", &[])).is_some());
    assert!(to_global(&service("backend", &[(labels::ORIGIN, "zone")])).is_some());
    assert_eq!(to_global(&service("backend", &[(labels::ORIGIN, "global")])), None);
    assert_eq!(to_global(&resource(Kind::Mesh, "", "default", &[], json!({}))), None);
    assert_eq!(to_global(&resource(Kind::Secret, "default", "s", &[], json!({}))), None);
}

#[test]
fn insights_go_without_the_count_of_their_writes() {
    let address = "10.0.0.1:5683";
    let spec = json!({ "subscriptions": [{ "id": "1", "generation": 7, "controlPlaneAddress": address }] });
    let synced = to_global(&resource(Kind::DataplaneInsight, "default", "web", &[], spec)).unwrap();
    let subscription = &synced.spec.get::<DataplaneInsight>().unwrap().subscriptions[0];
    assert_eq!((subscription.generation, subscription.control_plane_address.as_str()), (0, ""));
}

#[test]
fn labels_with_a_skipped_prefix_stay_behind() {
    let mut selection = selection(Direction::ToZone("west".into()));
    selection.skipped_labels = vec!["argocd.".to_owned()];
    let policy = timeout("t", &[("argocd.argoproj.io/instance", "x"), ("team", "a")]);
    let synced = selection.outgoing(&policy, &WithdrawnZones::default()).unwrap();
    assert_eq!(synced.labels.get("argocd.argoproj.io/instance"), None);
    assert!(synced.labels.contains_key("team"));
}

#[test]
fn every_kind_goes_the_way_of_the_table_and_meshes_come_first() {
    let down = Direction::ToZone("west".into());
    let up = Direction::ToGlobal("west".into());
    assert_eq!(down.wanted().next(), Some(Kind::Mesh));
    for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::ServiceInsight) {
        let sync = &kind.descriptor().sync;
        assert_eq!(down.wanted().any(|it| it == kind), sync.global_to_zones || sync.across_zones, "{kind}");
        assert_eq!(up.wanted().any(|it| it == kind), sync.zone_to_global, "{kind}");
    }
}
