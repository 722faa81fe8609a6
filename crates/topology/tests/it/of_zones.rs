//! The mesh as a global control plane sees it: with the services and the proxies of all zones.

use std::collections::BTreeSet;

use resources::{Kind, Resource, naming::kds::hashed_name};
use serde_json::{Value, json};
use testkit::resource::with_labels;
use topology::{AllMeshes, MeshSnapshot};

use crate::fixtures::{endpoints, mesh, present, resource, snapshot};

/// A resource as `zone` sends it to the global control plane.
fn sent(zone: &str, kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    let stored = hashed_name("default", name, Some(zone), None);
    let given = [("kuma.io/origin", "zone"), ("kuma.io/zone", zone), ("kuma.io/display-name", name)];
    resource(kind, &stored, &[&given, labels].concat(), spec)
}

fn proxy(zone: &str, address: &str) -> Resource {
    let tags = json!({ "kuma.io/service": "kv", "kuma.io/zone": zone });
    let networking = json!({ "address": address, "inbound": [{ "port": 80, "tags": tags }] });
    sent(zone, Kind::Dataplane, "kv-1", &[("app", "kv")], json!({ "networking": networking }))
}

fn kv(zone: &str, selector: &Value) -> Resource {
    let spec = json!({ "selector": selector, "ports": [{ "port": 80, "targetPort": 80 }] });
    sent(zone, Kind::MeshService, "kv", &[], spec)
}

fn selectors() -> [Value; 3] {
    [
        json!({ "dataplaneTags": { "kuma.io/service": "kv" } }),
        json!({ "dataplaneLabels": { "matchLabels": { "app": "kv" } } }),
        json!({ "dataplaneRef": { "name": "kv-1" } }),
    ]
}

fn of_zone(snapshot: &MeshSnapshot, zone: &str) -> Vec<String> {
    endpoints(snapshot, &format!("kri_msvc_default_{zone}__kv_80"))
}

#[test]
fn a_service_of_a_zone_consists_of_the_proxies_of_that_zone() {
    for selector in selectors() {
        let proxies = [proxy("east", "10.0.0.1"), proxy("west", "10.0.0.2")];
        let services = [kv("east", &selector), kv("west", &selector), kv("south", &selector)];
        let seen = snapshot(proxies.into_iter().chain(services).chain([mesh("STRICT")]));
        assert_eq!(of_zone(&seen, "east"), ["10.0.0.1:80"], "{selector}");
        assert_eq!(of_zone(&seen, "west"), ["10.0.0.2:80"], "{selector}");
        assert_eq!(of_zone(&seen, "south"), Vec::<String>::new(), "{selector}");
    }
}

#[test]
fn a_proxy_that_comes_or_goes_later_is_that_of_its_zone_too() {
    for selector in selectors() {
        let mut state = AllMeshes::default();
        state.apply(&[mesh("STRICT"), kv("east", &selector), kv("west", &selector)].map(present));
        let west = proxy("west", "10.0.0.2");
        state.apply(&[present(west.clone())]);
        let seen = state.mesh("default").unwrap();
        assert_eq!([of_zone(seen, "east"), of_zone(seen, "west")], [vec![], vec!["10.0.0.2:80".to_owned()]]);
        let inbound = topology::matching::inbounds(&west)[0].clone();
        let served: BTreeSet<String> =
            state.served_at(&west, &inbound).iter().map(crate::fixtures::spelled).collect();
        assert_eq!(served, BTreeSet::from(["kri_msvc_default_west__kv_80".to_owned()]), "{selector}");
    }
}

#[test]
fn a_selector_of_another_zone_selects_nothing_as_in_its_own_zone() {
    let elsewhere = [
        json!({ "dataplaneTags": { "kuma.io/service": "kv", "kuma.io/zone": "west" } }),
        json!({ "dataplaneLabels": { "matchLabels": { "app": "kv", "kuma.io/zone": "west" } } }),
    ];
    for selector in elsewhere {
        let proxies = [proxy("east", "10.0.0.1"), proxy("west", "10.0.0.2")];
        let seen = snapshot(proxies.into_iter().chain([kv("east", &selector), mesh("STRICT")]));
        assert_eq!(of_zone(&seen, "east"), Vec::<String>::new(), "{selector}");
    }
}

#[test]
fn in_its_zone_a_service_has_all_proxies_that_it_selects() {
    // Stored before the zone got its name.
    let before = with_labels(proxy("default", "10.0.0.1"), &[("kuma.io/zone", "default"), ("app", "kv")]);
    let mut state = AllMeshes::in_zone("east");
    state.apply(&[mesh("STRICT"), kv("east", &selectors()[1]), before].map(present));
    assert_eq!(of_zone(state.mesh("default").unwrap(), "east"), ["10.0.0.1:80"]);
}

#[test]
fn an_identity_is_given_in_the_zones_whose_trust_says_so() {
    let with_workload = |zone: &str, address: &str| {
        let mut proxy = proxy(zone, address);
        proxy.labels.insert("kuma.io/workload".to_owned(), "kv".to_owned());
        proxy
    };
    let east = with_workload("east", "10.0.0.1");
    let west = with_workload("west", "10.0.0.2");
    let provider = json!({ "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } });
    let spec = json!({ "selector": { "dataplane": {} }, "provider": provider });
    let identity = resource(Kind::MeshIdentity, "all", &[("kuma.io/origin", "global")], spec.clone());
    let trust = |zone: &str| {
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bundle = json!({ "type": "Pem", "pem": { "value": pem } });
        let domain = format!("default.{zone}.mesh.local");
        sent(zone, Kind::MeshTrust, "all", &[], json!({ "trustDomain": domain, "caBundles": [bundle] }))
    };
    let mut state = AllMeshes::default();
    state.apply(&[mesh(""), east.clone(), west.clone(), identity].map(present));
    let given = |state: &AllMeshes, proxy: &Resource| {
        state.mesh("default").unwrap().spiffe_id_of(proxy).map(|id| id.to_string())
    };
    assert_eq!(given(&state, &east), None, "no zone has brought it into effect");
    state.apply(&[present(trust("east"))]);
    let of_kv = |zone: &str| Some(format!("spiffe://default.{zone}.mesh.local/workload/kv"));
    assert_eq!((given(&state, &east), given(&state, &west)), (of_kv("east"), None));
    state.apply(&[present(trust("west"))]);
    assert_eq!((given(&state, &east), given(&state, &west)), (of_kv("east"), of_kv("west")));

    // That of a zone is for its own proxies.
    let labels = json!({ "matchLabels": { "app": "kv" } });
    let own =
        json!({ "selector": { "dataplane": labels }, "spiffeID": { "path": "/own" }, "provider": provider });
    state.apply(&[present(sent("east", Kind::MeshIdentity, "own", &[], own))]);
    let own = Some("spiffe://default.east.mesh.local/own".to_owned());
    assert_eq!((given(&state, &east), given(&state, &west)), (own, of_kv("west")));
}
