//! Reachability of what is not served in this zone alone: other zones, several zones, outside of the mesh; and on a global
//! control plane.

use std::sync::Arc;

use api::{Inspect, InspectError, inspect::access_question::AccessQuestion};
use contract::{
    access::{Access, AccessVerdict},
    reachability::ReachabilityVerdict,
};
use inspection::StoredProxies;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::{resource::permission, spec};

use super::{
    Inspected,
    reachability::{all, dataplane, mesh_with, one, proxy, with_address, world},
};
use crate::world::resource;

/// A MeshService of zone `west`, with the label `app: db`.
fn of_west(name: &str) -> Resource {
    // Made by the control plane of that zone, so that its servers surely have the tags.
    let made = ("kuma.io/managed-by", "meshservice-generator");
    let from_west = [("kuma.io/origin", "global"), ("kuma.io/zone", "west"), ("app", "db"), made];
    let mut service = with_address(name, "241.0.1.1");
    service.labels =
        from_west.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    service
}

/// The way into zone `west`, which has permissions of its own or has none.
fn ingress(own_permissions: bool) -> Resource {
    let says = [("reachability.kuma.io/own-permissions", "true")];
    let tags = json!({ "kuma.io/service": "legacy", "kuma.io/zone": "west" });
    let spec = json!({
        "zone": "west",
        "networking": { "address": "10.7.7.7", "port": 10001, "advertisedAddress": "192.0.2.7", "advertisedPort": 10001 },
        "availableServices": [{ "mesh": "default", "instances": 1, "tags": tags }],
    });
    let labels = if own_permissions { &says[..] } else { &[] };
    resource(Key::global(Kind::ZoneIngress, "west-in"), labels, spec)
}

fn everywhere(name: &str) -> Resource {
    let selector = json!({ "meshService": { "matchLabels": { "app": "db" } } });
    let spec = json!({ "selector": selector, "ports": [{ "port": 80, "appProtocol": "http" }] });
    resource(Key::new(Kind::MeshMultiZoneService, "default", name), &[], spec)
}

fn bank() -> Resource {
    let spec = json!({
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
        "endpoints": [{ "address": "bank.example.com", "port": 443 }],
    });
    resource(Key::new(Kind::MeshExternalService, "default", "bank"), &[], spec)
}

/// `web` may not call `db`, of which one instance is here; `far` is in zone `west`, and `bank` outside of the mesh.
async fn zones(own_permissions: bool) -> Inspected {
    let inspected = world("off").await;
    let mut db = with_address("db", "241.0.0.2");
    db.labels.insert("app".to_owned(), "db".to_owned());
    let legacy = json!([{ "port": 10_000, "tags": { "kuma.io/service": "legacy" } }]);
    let resources = [
        db,
        of_west("far"),
        ingress(own_permissions),
        everywhere("everywhere"),
        bank(),
        proxy("legacy-1", "legacy", &[], json!({})),
        proxy("web-9", "web", &[], json!({ "outbound": legacy })),
    ];
    inspected.world.put(resources).await;
    inspected
}

async fn access(inspected: &Inspected, to: &str, port: Option<&str>) -> Result<Access, InspectError> {
    let question = AccessQuestion {
        mesh: "default".to_owned(),
        from: "web".to_owned(),
        to: to.to_owned(),
        port: port.map(str::to_owned),
    };
    inspected.proxies.access(&question).await
}

#[tokio::test]
async fn services_elsewhere_are_explained_by_name_and_kri_as_in_the_list() {
    for own_permissions in [false, true] {
        let inspected = zones(own_permissions).await;
        // Without permissions of their own, servers of `west` are refused what no permission here allows.
        let far = if own_permissions { ReachabilityVerdict::Unknown } else { ReachabilityVerdict::Denied };
        for (kind, short, name, expected) in [
            ("MeshService", "msvc", "far", far),
            ("MeshMultiZoneService", "mzsvc", "everywhere", far),
            ("MeshExternalService", "extsvc", "bank", ReachabilityVerdict::Reachable),
        ] {
            let zone = if name == "far" { "west" } else { "" };
            for to in [name.to_owned(), format!("kri_{short}_default_{zone}__{name}_")] {
                let found = one(&inspected, "web-1", &to).await;
                assert_eq!(found.verdict, expected, "{own_permissions} {to}: {found:#?}");
                let reach = access(&inspected, &to, None).await.unwrap();
                assert_eq!((&*reach.to.kind, reach.to.dataplanes), (kind, None));
                assert_eq!(reach.reachability.as_ref().unwrap().verdict, expected, "{to}");
                assert_eq!(
                    reach.verdict == AccessVerdict::Denied,
                    expected == ReachabilityVerdict::Denied,
                    "{to}: {reach:#?}"
                );
            }
        }
        let legacy = one(&inspected, "web-9", "legacy").await;
        assert_eq!(legacy.verdict, far, "{legacy:#?}");
        assert_eq!(access(&inspected, "legacy", None).await.unwrap().reachability.unwrap().verdict, far);
        let mut compared = 0;
        // One lists what it calls, and the other is offered everything.
        for name in ["web-9", "web-1"] {
            for listed in all(&inspected, name).await.destinations {
                let to = listed.destination.trim_start_matches("kuma.io/service=");
                let found = one(&inspected, name, to).await;
                assert_eq!(listed.verdict, found.verdict, "{own_permissions} {}", listed.destination);
                assert_eq!(listed.refusing, found.refusing_total, "{own_permissions} {}", listed.destination);
                compared += 1;
            }
        }
        assert!(compared >= 6, "{compared}");
    }
}

#[tokio::test]
async fn a_permission_for_another_zone_is_for_global_and_selects_one_service() {
    let inspected = zones(false).await;
    let change = one(&inspected, "web-1", "far").await.change.unwrap();
    let [offered] = change.resources.as_slice() else { panic!("{change:?}") };
    assert_eq!(
        offered["spec"]["targetRef"],
        json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "far" } })
    );
    assert!(offered["labels"].get("kuma.io/origin").is_none(), "{offered}");
    assert!(
        change.text.contains("zone \"west\"") && change.text.contains("global control plane"),
        "{change:?}"
    );
    let key = Key::new(Kind::MeshTrafficPermission, "default", offered["name"].as_str().unwrap());
    inspected.world.put([resource(key, &[], offered["spec"].clone())]).await;
    assert_eq!(
        one(&inspected, "web-1", "far").await.verdict,
        ReachabilityVerdict::Unknown,
        "as far as is known here"
    );
    assert_eq!(one(&inspected, "web-1", "db").await.verdict, ReachabilityVerdict::Denied);
}

#[tokio::test]
async fn a_port_is_asked_about_alone() {
    let inspected = world("enforce").await;
    let two = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "two" } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }, { "port": 81, "targetPort": 81 }],
    });
    let key = Key::new(Kind::MeshService, "default", "two");
    let two = Resource { status: with_address("two", "241.0.0.9").status, ..resource(key, &[], two) };
    let tags = json!({ "kuma.io/service": "two" });
    let inbounds = json!([{ "port": 80, "tags": tags }, { "port": 81, "tags": tags }]);
    let mut server = proxy("two-1", "two", &[], json!({ "inbound": inbounds }));
    server.labels.insert("app".to_owned(), "two".to_owned());
    let at_80 = json!({ "kind": "Dataplane", "labels": { "app": "two" }, "sectionName": "80" });
    inspected.world.put([two, server, permission("two", at_80, &[(spec::service("web"), "Allow")])]).await;
    for (port, expected) in [("80", ReachabilityVerdict::Reachable), ("81", ReachabilityVerdict::Trimmed)] {
        let reach = access(&inspected, "two", Some(port)).await.unwrap();
        assert_eq!(reach.reachability.as_ref().unwrap().verdict, expected, "{port}: {reach:#?}");
        let by_kri = access(&inspected, "kri_msvc_default___two_", Some(port)).await.unwrap();
        assert_eq!(by_kri.reachability.unwrap().verdict, expected, "{port}");
    }
    let error = access(&inspected, "kri_msvc_default___two_", Some("7")).await.unwrap_err();
    assert!(error.to_string().contains("is not called at port \"7\"; it is at 80, 81"), "{error}");
}

#[tokio::test]
async fn a_destination_that_the_dataplane_does_not_list_is_said_to_be_missing() {
    let inspected = world("enforce").await;
    let listing = |field: &str, list: Value| {
        let mut redirect = json!({ "redirectPortInbound": 15_006, "redirectPortOutbound": 15_001 });
        redirect[field] = list;
        proxy("web-2", "web", &[], json!({ "transparentProxying": redirect }))
    };
    let docs = json!({ "refs": [{ "kind": "MeshService", "name": "docs", "port": 80 }] });
    for (field, list) in [("reachableBackends", docs), ("reachableServices", json!(["docs"]))] {
        inspected.world.put([listing(field, list)]).await;
        let found = one(&inspected, "web-2", "kv").await;
        assert_eq!(found.verdict, ReachabilityVerdict::Reachable);
        assert!(found.missing.as_ref().is_some_and(|why| why.contains(field)), "{found:#?}");
    }
    assert_eq!(one(&inspected, "web-1", "kv").await.missing, None);
}

#[tokio::test]
async fn a_client_without_an_identity_is_denied_in_the_list_as_alone() {
    let inspected = world("off").await;
    let inbound = json!([{ "port": 80 }]);
    inspected.world.put([proxy("stranger", "x", &[], json!({ "inbound": inbound }))]).await;
    let list = all(&inspected, "stranger").await;
    for listed in &list.destinations {
        let found = one(&inspected, "stranger", &listed.destination).await;
        assert_eq!(listed.verdict, found.verdict, "{}", listed.destination);
    }
    assert_eq!((list.counts.reachable, list.counts.denied), (0, 4), "{list:#?}");
}

#[tokio::test]
async fn a_global_refers_to_the_zone_of_the_proxy_and_knows_its_mode() {
    let inspected = world("off").await;
    let of_mode = [("east.reachability.kuma.io/mode", "enforce")];
    let zone = [("kuma.io/zone", "east"), ("kuma.io/origin", "zone")];
    let web = proxy("web-1", "web", &zone, json!({}));
    inspected.world.put([mesh_with(&of_mode, true), web]).await;
    let world = &inspected.world;
    let proxies = StoredProxies::on_global(world.store.clone(), world.push.clone(), Arc::default());
    let answer = proxies.reachability(&dataplane("web-1"), None).await;
    let text = format!("{:?}", answer.unwrap_err());
    assert!(text.contains("zone \\\"east\\\"") && text.contains("is not connected"), "{text}");
    let question = AccessQuestion {
        mesh: "default".to_owned(),
        from: "web-1".to_owned(),
        to: "db".to_owned(),
        port: None,
    };
    assert_eq!(
        proxies.access(&question).await.unwrap().reachability.unwrap().verdict,
        ReachabilityVerdict::Trimmed
    );
    // A proxy of another zone is not trimmed.
    let zone = [("kuma.io/zone", "west"), ("kuma.io/origin", "zone")];
    inspected.world.put([proxy("web-1", "web", &zone, json!({}))]).await;
    assert_eq!(
        proxies.access(&question).await.unwrap().reachability.unwrap().verdict,
        ReachabilityVerdict::Denied
    );
}
