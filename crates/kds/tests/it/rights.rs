//! A hostile zone and a hostile global control plane, row by row of the table in `docs/reference/kds.md`.

use kds::{
    Synced,
    receiver::Role,
    select::{Direction, WithdrawnZones},
};
use resources::{Kind, labels, naming::kds::hashed_name};
use serde_json::{Value, json};
use testkit::build::mesh;

use crate::{
    codec::resource,
    producers::timeout_to,
    receiving::arrives,
    world::{Plane, selection},
};

const FROM_WEST: [(&str, &str); 2] = [(labels::ORIGIN, "zone"), (labels::ZONE, "west")];

fn global() -> Plane {
    let global = Plane::new();
    global.put(mesh("default").build());
    global.put(resource(Kind::Zone, "", "west", &[], json!({})));
    global
}

/// The refusal of a policy that zone west sends to global under its right name.
pub fn zone_sends(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Vec<String> {
    let name = hashed_name("default", "p", Some("west"), None);
    let labels: Vec<_> = labels.iter().copied().chain([(labels::DISPLAY_NAME, "p")]).collect();
    arrives(&global(), Role::Global("west".into()), kind, "default", &name, &labels, spec)
}

/// The refusal of a policy of zone west that global sends to zone east.
pub fn global_sends(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Vec<String> {
    let east = Plane::new();
    east.put(mesh("default").build());
    let labels: Vec<_> = FROM_WEST.iter().chain(labels).copied().collect();
    arrives(&east, Role::Zone("east".into()), kind, "default", "p", &labels, spec)
}

/// An honest global that stores it does not pass it on either.
pub fn goes_on(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Option<Synced> {
    let labels: Vec<_> = FROM_WEST.iter().chain(labels).copied().collect();
    let stored = resource(kind, "default", "p", &labels, spec);
    selection(Direction::ToZone("east".into())).outgoing(&stored, &WithdrawnZones::default())
}

#[test]
fn other_policies_of_a_zone_reach_global_and_no_other_zone() {
    let spec = || timeout_to(json!({ "kind": "Mesh" }));
    for role in ["system", "consumer", "workload-owner", "PRODUCER", ""] {
        let role = [(labels::POLICY_ROLE, role)];
        assert_eq!(zone_sends(Kind::MeshTimeout, &role, spec()), Vec::<String>::new());
        let refused = global_sends(Kind::MeshTimeout, &role, spec());
        assert_eq!(refused, ["it is a policy of zone \"west\" for its own proxies"]);
        assert_eq!(goes_on(Kind::MeshTimeout, &role, spec()), None);
    }
}

#[test]
fn kinds_that_do_not_go_across_come_from_no_other_zone() {
    let trust =
        json!({ "trustDomain": "default", "caBundles": [{ "type": "Pem", "pem": { "value": "x" } }] });
    for kind in [Kind::MeshTrust, Kind::MeshIdentity, Kind::HostnameGenerator, Kind::MeshExternalService] {
        let spec = if kind == Kind::MeshTrust { trust.clone() } else { json!({}) };
        let refused = global_sends(kind, &[], spec.clone());
        assert_eq!(refused, [format!("no {kind} of a zone is for other zones")]);
        assert_eq!(goes_on(kind, &[], spec), None, "{kind}");
    }
}

#[test]
fn what_only_zones_have_does_not_come_from_global_itself() {
    let east = Plane::new();
    east.put(mesh("default").build());
    let ingress = json!({ "networking": { "address": "10.0.0.1", "port": 1, "advertisedAddress": "10.0.0.1",
        "advertisedPort": 1 } });
    let service = json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let address = json!({ "address": "10.0.0.1", "port": 1 });
    for (kind, of, spec) in [
        (Kind::ZoneIngress, "", ingress),
        (Kind::MeshService, "default", service),
        (Kind::MeshZoneAddress, "default", address),
    ] {
        let refused = arrives(&east, Role::Zone("east".into()), kind, of, "x", &[], spec);
        assert_eq!(refused, [format!("every {kind} is of a zone, and this one has no label kuma.io/zone")]);
    }
}

#[test]
fn a_zone_speaks_only_for_itself_at_global_and_in_other_zones() {
    let labels = [
        (labels::DISPLAY_NAME, "kv"),
        (labels::ZONE, "west"),
        (labels::MESH, "other"),
        (labels::DELETION_GRACE_PERIOD, "2020-01-01T00:00:00Z"),
    ];
    let own =
        ["my.name", &sni("kv", &[]), &sni("kv", &[(labels::ZONE, "west")]), "sni.msvc.default.west.kv.80"]
            .map(str::to_owned);
    let theirs = [
        sni("kv", &[(labels::ZONE, "north")]),
        sni("pay", &[]),
        sni("pay", &[]).replace(".ms", ".mzms"),
        "sni.msvc.default.north.kv.80".to_owned(),
        "sni.mzsvc.default.all.80".to_owned(),
    ];
    let values: Vec<_> = own.iter().chain(&theirs).map(|value| json!({ "value": value })).collect();
    let service = json!({ "ports": [{ "port": 80, "targetPort": 80, "snis": values }] });
    let name = hashed_name("default", "kv", Some("west"), None);
    let east = Plane::new();
    east.put(mesh("default").build());
    for (plane, role) in [(global(), Role::Global("west".into())), (east, Role::Zone("east".into()))] {
        let refused = arrives(&plane, role, Kind::MeshService, "default", &name, &labels, service.clone());
        assert_eq!(refused, Vec::<String>::new());
        let stored = plane.snapshot().of_kind(Kind::MeshService).next().unwrap().clone();
        assert_eq!(stored.label(labels::MESH), Some("default"));
        assert_eq!(stored.label(labels::DELETION_GRACE_PERIOD), None);
        let kept = &stored.spec.to_json()["ports"][0]["snis"];
        assert_eq!(*kept, json!(own.each_ref().map(|value| json!({ "value": value }))));
    }
}

fn sni(name: &str, data: &[(&str, &str)]) -> String {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    resources::naming::sni::hashed(name, "default", Kind::MeshService, 80, &data).unwrap()
}

#[test]
fn what_was_exported_from_a_zone_and_written_on_global_is_for_all_zones() {
    let exported = [(labels::ZONE, "west"), (labels::DISPLAY_NAME, "t")];
    let policy =
        resource(Kind::MeshTimeout, "default", "t", &exported, timeout_to(json!({ "kind": "Mesh" })));
    let secret = resource(Kind::Secret, "default", "key", &exported, json!({ "data": "aGk=" }));
    for zone in ["east", "west"] {
        let plane = Plane::new();
        plane.put(mesh("default").build());
        for written in [&policy, &secret] {
            let to_zone = selection(Direction::ToZone(zone.into()));
            let sent = to_zone.outgoing(written, &WithdrawnZones::default()).unwrap();
            let labels: Vec<_> = sent.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let role = Role::Zone(zone.into());
            let kind = sent.key.kind;
            let spec = sent.spec.to_json();
            let refused = arrives(&plane, role, kind, "default", &sent.key.name, &labels, spec);
            assert_eq!(refused, Vec::<String>::new(), "{zone}: {kind}");
        }
    }
    let labelled = [(labels::ZONE, "east")];
    let east = Plane::new();
    east.put(mesh("default").build());
    let role = Role::Zone("east".into());
    let secret = json!({ "data": "aGk=" });
    let refused = arrives(&east, role, Kind::Secret, "default", "of-kuma", &labelled, secret);
    assert_eq!(refused, Vec::<String>::new(), "a global control plane of Kuma sends the label");
}

#[test]
fn an_ingress_leads_to_the_zone_that_its_label_names() {
    let east = Plane::new();
    let ingress = json!({ "zone": "east", "networking": { "address": "10.0.0.1", "port": 1,
        "advertisedAddress": "10.0.0.1", "advertisedPort": 1 }, "availableServices": [
            { "mesh": "default", "instances": 1, "tags": { "kuma.io/service": "kv", "kuma.io/zone": "east" } }] });
    let refused = arrives(&east, Role::Zone("east".into()), Kind::ZoneIngress, "", "i", &FROM_WEST, ingress);
    assert_eq!(refused, Vec::<String>::new());
    let stored = east.snapshot().of_kind(Kind::ZoneIngress).next().unwrap().spec.to_json();
    assert_eq!(stored["zone"], "west");
    assert_eq!(stored["availableServices"][0]["tags"]["kuma.io/zone"], "west");
}

#[test]
fn labels_that_identify_are_names() {
    for (label, value) in [
        (labels::DISPLAY_NAME, "a b"),
        (labels::DISPLAY_NAME, "A"),
        (labels::K8S_NAMESPACE, "a_b"),
        (labels::K8S_NAMESPACE, "\u{1b}[31m"),
    ] {
        let spec = timeout_to(json!({ "kind": "Mesh" }));
        let role = Role::Global("west".into());
        let refused = arrives(&global(), role, Kind::MeshTimeout, "default", "p", &[(label, value)], spec);
        assert!(refused.len() == 1 && refused[0].contains("is not a name"), "{label}={value}: {refused:?}");
    }
}

#[test]
fn a_name_that_two_zones_come_to_is_that_of_the_one_without_a_namespace() {
    let global = global();
    let spec = |port: u32| json!({ "ports": [{ "port": port, "targetPort": 80 }] });
    let sends = |zone: &str, namespace: Option<&str>, port: u32| {
        let name = hashed_name("default", "pay", Some(zone), namespace);
        let namespace = namespace.map(|namespace| (labels::K8S_NAMESPACE, namespace));
        let labels: Vec<_> = [(labels::DISPLAY_NAME, "pay")].into_iter().chain(namespace).collect();
        let role = Role::Global(zone.into());
        arrives(&global, role, Kind::MeshService, "default", &name, &labels, spec(port))
    };
    let taken = "a resource of zone \"westshop\" has this name, and it is not zone \"west\"'s";
    global.put(resource(Kind::Zone, "", "westshop", &[], json!({})));
    assert_eq!(sends("west", Some("shop"), 1), Vec::<String>::new());
    assert_eq!(sends("westshop", None, 2), Vec::<String>::new());
    assert_eq!(sends("west", Some("shop"), 3), [taken]);
    let stored = global.snapshot().of_kind(Kind::MeshService).next().unwrap().clone();
    assert_eq!(global.names(Kind::MeshService).len(), 1);
    assert_eq!(stored.label(labels::ZONE), Some("westshop"));
    assert_eq!(stored.owner, Some(resources::Key::global(Kind::Zone, "westshop")));
}

#[test]
fn a_name_that_an_older_version_gave_away_goes_back_to_its_zone() {
    let global = global();
    global.put(resource(Kind::Zone, "", "good", &[], json!({})));
    let name = hashed_name("default", "pay", Some("good"), None);
    let spec = || json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let occupied = resource(Kind::MeshService, "default", &name, &FROM_WEST, spec());
    assert!(
        Role::Global("west".into()).check_stored(&occupied).unwrap_err().to_string().contains("is called")
    );
    global.put(occupied);
    let labels = [(labels::DISPLAY_NAME, "pay")];
    let refused =
        arrives(&global, Role::Global("good".into()), Kind::MeshService, "default", &name, &labels, spec());
    assert_eq!(refused, Vec::<String>::new());
    let stored = global.snapshot().of_kind(Kind::MeshService).next().unwrap().clone();
    assert_eq!(stored.label(labels::ZONE), Some("good"));
    assert_eq!(Role::Global("good".into()).check_stored(&stored), Ok(()));
}

#[test]
fn a_zone_has_the_names_of_its_own_resources_only() {
    let good = hashed_name("default", "pay", Some("good"), None);
    assert_eq!(good, "pay-77b64w297x477b9z");
    let role = || Role::Global("west".into());
    let spec = || json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let tries: [&[(&str, &str)]; 4] = [
        &[(labels::DISPLAY_NAME, "pay")],
        &[(labels::DISPLAY_NAME, "pay"), (labels::ZONE, "good")],
        &[],
        &[(labels::DISPLAY_NAME, &good)],
    ];
    for labels in tries {
        let refused = arrives(&global(), role(), Kind::MeshService, "default", &good, labels, spec());
        assert!(refused.len() == 1 && refused[0].contains("is called"), "{labels:?}: {refused:?}");
    }
    let namespace = [(labels::DISPLAY_NAME, "pay"), (labels::K8S_NAMESPACE, "shop")];
    let own = hashed_name("default", "pay", Some("west"), Some("shop"));
    let accepted = arrives(&global(), role(), Kind::MeshService, "default", &own, &namespace, spec());
    assert_eq!(accepted, Vec::<String>::new());
}

#[test]
fn a_global_gives_a_zone_no_keys_of_users_and_no_settings() {
    let zone = Plane::new();
    zone.put(mesh("default").build());
    let send = |kind: Kind, name: &str, spec: Value| {
        let labels = [(labels::KDS_SYNC, "enabled")];
        arrives(&zone, Role::Zone("east".into()), kind, "", name, &labels, spec)
    };
    let secrets = [
        "user-token-signing-key-1",
        "user-token-signing-key-2",
        "user-token-revocations",
        "admin-user-token",
        "envoy-admin-ca",
        "inter-cp-ca",
        "inter-cp-certificate",
        "zone-token-signing-key-1",
    ];
    for name in secrets {
        let refused = send(Kind::GlobalSecret, name, json!({ "data": "aGk=" }));
        assert_eq!(refused, [format!("no global control plane sends GlobalSecret {name:?} to a zone")]);
    }
    let refused = send(Kind::Config, "kuma-default-dns-vips", json!({ "config": "{}" }));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(zone.names(Kind::GlobalSecret).len() + zone.names(Kind::Config).len(), 0);
    let public = send(Kind::GlobalSecret, "zone-token-signing-public-key-1", json!({ "data": "aGk=" }));
    assert_eq!(public, Vec::<String>::new());
}
