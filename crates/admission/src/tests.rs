//! Writes of users, seen through the registrar on a store in memory.

mod admission;
mod dataplanes;
mod reachability;
mod services;
mod snis;

use std::sync::Arc;

use resources::{Key, Kind, Resource, format};
use serde_json::{Value, json};
use store::{Committed, Memory, Store, Write};
use testkit::build::{dataplane, mesh};

use super::*;

const NOW: fn() -> Timestamp = || Timestamp::UNIX_EPOCH;

fn zone(federated: bool) -> ControlPlaneRole {
    ControlPlaneRole::Zone { name: "east".to_owned(), federated }
}

fn registrar_with(mode: ControlPlaneRole, change: impl FnOnce(&mut RuleSettings)) -> Registrar {
    let mut setup = setup(mode);
    change(&mut setup);
    Registrar::new(Arc::new(Memory::default()), setup)
}

fn setup(mode: ControlPlaneRole) -> RuleSettings {
    let companions: Companions = Box::new(|mesh, snapshot| {
        let key = Key::new(Kind::Secret, &mesh.key.name, &format!("of-{}", mesh.key.name));
        if snapshot.get(&key).is_some() {
            return Vec::new();
        }
        let policy =
            Draft::new(Key::new(Kind::MeshTimeout, &mesh.key.name, "all"), timeout("", json!({})).spec);
        vec![Companion::Known(policy), Companion::Secret { key, make: secret }]
    });
    RuleSettings {
        mode,
        disable_origin_label_validation: false,
        unsafe_delete: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        companions,
        check: |_, _, _| {},
        now: NOW,
    }
}

fn secret(key: &Key) -> Result<Draft, Error> {
    Ok(draft(json!({"type": "Secret", "mesh": &*key.mesh, "name": &*key.name, "data": "aGk="})))
}

/// A registrar whose store already has the mesh `default`.
async fn registrar(mode: ControlPlaneRole) -> Registrar {
    with_mesh(registrar_with(mode, |_| ())).await
}

async fn with_mesh(registrar: Registrar) -> Registrar {
    registrar.ensure(vec![mesh("default").draft()]).await.unwrap();
    registrar
}

fn draft(value: Value) -> Draft {
    format::parse(value).unwrap().draft
}

fn timeout(name: &str, labels: Value) -> Draft {
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]);
    draft(
        json!({"type": "MeshTimeout", "mesh": "default", "name": name, "labels": labels, "spec": {"to": to}}),
    )
}

fn service(ports: Value) -> Draft {
    draft(json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": {"ports": ports}}))
}

fn sidecar() -> Draft {
    dataplane("dp").address("127.0.0.1").inbound(80).service("web").draft()
}

fn labels(pairs: &[(&str, &str)]) -> resources::Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn stored(registrar: &Registrar, key: &Key) -> Option<Arc<Resource>> {
    registrar.store().snapshot().unwrap().get(key).cloned()
}

async fn violations(registrar: &Registrar, draft: Draft) -> Vec<(String, String)> {
    match registrar.put(draft).await {
        Err(Refusal::Invalid(found) | Refusal::Immutable(found)) => {
            found.into_vec().into_iter().map(|v| (v.field, v.message)).collect()
        }
        other => panic!("expected violations, got {other:?}"),
    }
}

#[tokio::test]
async fn a_mesh_comes_with_its_companions_and_takes_them_along() {
    let registrar = registrar(zone(false)).await;
    let companion = Key::new(Kind::Secret, "default", "of-default");
    assert_eq!(stored(&registrar, &companion).unwrap().owner, Some(Key::global(Kind::Mesh, "default")));
    registrar.delete(&Key::global(Kind::Mesh, "default")).await.unwrap();
    assert_eq!(stored(&registrar, &companion), None);
}

#[tokio::test]
async fn a_mesh_whose_companions_fail_is_not_made() {
    let registrar = registrar_with(zone(false), |setup| {
        setup.companions = Box::new(|mesh, _| {
            let key = Key::new(Kind::Secret, &mesh.key.name, "key");
            let make = |_: &Key| Err(Error::Unavailable("no randomness".to_owned()));
            vec![Companion::Secret { key, make }]
        });
    });
    let mesh = draft(json!({"type": "Mesh", "name": "m"}));
    assert!(registrar.put(mesh.clone()).await.unwrap_err().to_string().contains("no randomness"));
    assert_eq!(stored(&registrar, &mesh.key), None);
}

#[tokio::test]
async fn a_put_says_whether_it_created_updated_or_changed_nothing() {
    let registrar = registrar(zone(false)).await;
    let mut changed = timeout("t", json!({}));
    assert_eq!(registrar.put(changed.clone()).await.unwrap().outcome, WriteEffect::Created);
    let before = stored(&registrar, &changed.key).unwrap();
    assert_eq!(registrar.put(changed.clone()).await.unwrap().outcome, WriteEffect::Unchanged);
    assert_eq!(stored(&registrar, &changed.key).unwrap().version, before.version);
    changed.labels = labels(&[("team", "a")]);
    assert_eq!(registrar.put(changed.clone()).await.unwrap().outcome, WriteEffect::Updated);
    assert_eq!(stored(&registrar, &changed.key).unwrap().label("team"), Some("a"));
}

#[tokio::test]
async fn a_resource_needs_its_mesh() {
    let registrar = registrar_with(zone(false), |_| ());
    let refusal = registrar.put(timeout("t", json!({}))).await.unwrap_err();
    assert!(matches!(refusal, Refusal::MeshMissing(mesh) if mesh == "default"));
}

#[tokio::test]
async fn zones_label_what_originates_there() {
    let registrar = registrar(zone(false)).await;
    let put = registrar.put(timeout("t", json!({"team": "a"}))).await.unwrap();
    let expected = [
        ("kuma.io/env", "universal"),
        ("kuma.io/mesh", "default"),
        ("kuma.io/origin", "zone"),
        ("kuma.io/zone", "east"),
        ("team", "a"),
    ];
    assert_eq!(put.resource.labels, labels(&expected));
}

#[tokio::test]
async fn what_a_zone_has_for_itself_is_called_without_the_zone() {
    let documents = || {
        let networking = json!({"address": "192.0.2.1", "port": 10001});
        let generator = json!({"template": "{{ .DisplayName }}.mesh", "selector": {"meshService": {}}});
        let labels = json!({"kuma.io/origin": "zone"});
        [
            (json!({"type": "Zone", "name": "east"}), "z"),
            (json!({"type": "HostnameGenerator", "name": "east", "labels": labels, "spec": generator}), "hg"),
            (json!({"type": "ZoneIngress", "name": "east", "networking": networking}), "zi"),
            (json!({"type": "ZoneEgress", "name": "east", "networking": networking}), "ze"),
        ]
    };
    for (federated, proxies_say_zone) in [(false, ""), (true, "east")] {
        let registrar = registrar(zone(federated)).await;
        for (document, short) in documents() {
            let admitted = registrar.ensure(vec![draft(document)]).await.unwrap();
            let zone = if short.starts_with("zi") || short.starts_with("ze") { proxies_say_zone } else { "" };
            let stored = stored(&registrar, &admitted[0]).unwrap();
            assert_eq!(stored.kri("").unwrap().to_string(), format!("kri_{short}__{zone}__east_"));
        }
    }
}

#[tokio::test]
async fn a_zone_that_was_said_stays_where_it_is_not_said_any_more() {
    let registrar = registrar(zone(false)).await;
    let ingress = |labels: Value| {
        let networking = json!({"address": "192.0.2.1", "port": 10001});
        draft(json!({"type": "ZoneIngress", "name": "gate", "labels": labels, "networking": networking}))
    };
    registrar.put(ingress(json!({"kuma.io/zone": "east"}))).await.unwrap();
    let put = registrar.put(ingress(json!({}))).await.unwrap();
    assert_eq!((put.outcome, put.resource.label("kuma.io/zone")), (WriteEffect::Unchanged, Some("east")));
}

#[tokio::test]
async fn global_labels_only_the_mesh() {
    let registrar = registrar(ControlPlaneRole::Global).await;
    let put = registrar.put(timeout("t", json!({}))).await.unwrap();
    assert_eq!(put.resource.labels, labels(&[("kuma.io/mesh", "default")]));
}

#[tokio::test]
async fn proxies_are_labelled_by_what_they_are() {
    let registrar = registrar(zone(false)).await;
    let put = registrar.put(sidecar()).await.unwrap();
    assert_eq!(put.resource.label("kuma.io/proxy-type"), Some("sidecar"));
    // A delegated gateway is a program of its own with a sidecar.
    for (kind, expect) in [("DELEGATED", "sidecar"), ("BUILTIN", "gateway")] {
        let gateway = json!({"type": kind, "tags": {"kuma.io/service": "edge"}});
        let gateway = dataplane("dp").address("127.0.0.1").networking(json!({"gateway": gateway}));
        let put = registrar.put(gateway.draft()).await.unwrap();
        assert_eq!(put.resource.label("kuma.io/proxy-type"), Some(expect));
    }
}

#[tokio::test]
async fn every_violation_of_spec_name_and_labels_is_reported_at_once() {
    let registrar = registrar(zone(false)).await;
    let mut bad = timeout("Bad_Name", json!({"kuma.io/zone": "west", "": "x"}));
    bad.spec = draft(json!({"type": "MeshTimeout", "name": "x", "spec": {}})).spec;
    let fields: Vec<String> = violations(&registrar, bad).await.into_iter().map(|(field, _)| field).collect();
    for field in ["spec", "name", r#"labels["kuma.io/zone"]"#, r#"labels[""]"#] {
        assert!(fields.iter().any(|f| f == field), "{field} in {fields:?}");
    }
}

#[tokio::test]
async fn old_names_with_underscores_can_be_updated_but_not_created() {
    let registrar = registrar(zone(false)).await;
    let old = timeout("old_name", json!({}));
    let refused = violations(&registrar, old.clone()).await;
    assert_eq!(refused[0].0, "name");
    registrar.ensure(vec![old.clone()]).await.unwrap();
    let mut changed = old;
    changed.labels = labels(&[("team", "b")]);
    assert_eq!(registrar.put(changed).await.unwrap().outcome, WriteEffect::Updated);
}

#[tokio::test]
async fn origin_and_zone_never_change() {
    let registrar = registrar(zone(false)).await;
    registrar.put(timeout("t", json!({}))).await.unwrap();
    let found = violations(&registrar, timeout("t", json!({"kuma.io/origin": "global"}))).await;
    let expected = (
        r#"labels["kuma.io/origin"]"#.to_owned(),
        r#"is immutable, cannot be changed from "zone" to "global""#.to_owned(),
    );
    assert!(found.contains(&expected), "{found:?}");
    let removed = (
        r#"labels["kuma.io/zone"]"#.to_owned(),
        r#"is immutable, cannot be removed (was "east")"#.to_owned(),
    );
    assert!(found.contains(&removed), "{found:?}");
}

#[tokio::test]
async fn labels_must_fit_the_control_plane() {
    let origin = r#"labels["kuma.io/origin"]"#;
    for (mode, given, field, message) in [
        (
            ControlPlaneRole::Global,
            json!({"kuma.io/origin": "zone"}),
            origin,
            "the origin label must be set to 'global'",
        ),
        (zone(true), json!({}), origin, "the origin label must be set to 'zone'"),
        (zone(false), json!({"kuma.io/origin": "moon"}), origin, r#"unknown resource origin "moon""#),
        (
            zone(false),
            json!({"kuma.io/zone": "west"}),
            r#"labels["kuma.io/zone"]"#,
            "kuma.io/zone label should have east value",
        ),
        (
            zone(false),
            json!({"kuma.io/mesh": "other"}),
            r#"labels["kuma.io/mesh"]"#,
            "kuma.io/mesh label must not differ from mesh set on resource",
        ),
        (
            zone(false),
            json!({"kuma.io/policy-role": "producer"}),
            r#"labels["kuma.io/policy-role"]"#,
            "kuma.io/policy-role label should have system value, got producer",
        ),
    ] {
        let registrar = registrar(mode.clone()).await;
        let found = violations(&registrar, timeout("t", given)).await;
        assert_eq!(found, [(field.to_owned(), message.to_owned())], "{mode:?}");
    }
}

#[tokio::test]
async fn origin_labels_are_not_checked_when_told_so() {
    let registrar =
        with_mesh(registrar_with(zone(true), |setup| setup.disable_origin_label_validation = true)).await;
    assert_eq!(registrar.put(timeout("t", json!({}))).await.unwrap().outcome, WriteEffect::Created);
}

#[tokio::test]
async fn a_federated_zone_deletes_only_what_originates_there() {
    let registrar = registrar(zone(true)).await;
    let local = timeout("local", json!({"kuma.io/origin": "zone"}));
    registrar.put(local.clone()).await.unwrap();
    registrar.ensure(vec![timeout("synced", json!({"kuma.io/origin": "global"}))]).await.unwrap();
    registrar.delete(&local.key).await.unwrap();
    let refusal = registrar.delete(&Key::new(Kind::MeshTimeout, "default", "synced")).await.unwrap_err();
    assert!(refusal.to_string().contains("the origin label must be set to 'zone'"), "{refusal}");
}

#[tokio::test]
async fn kinds_are_read_only_where_they_do_not_originate() {
    for (mode, draft, says) in [
        (
            ControlPlaneRole::Global,
            sidecar(),
            "On global control plane you can not modify dataplane resources",
        ),
        (
            zone(true),
            draft(json!({"type": "Mesh", "name": "m"})),
            "On zone control plane you can only modify zone resources",
        ),
        (
            zone(false),
            draft(json!({"type": "MeshInsight", "name": "m"})),
            "On zone control plane you can only modify zone resources",
        ),
    ] {
        let registrar = registrar(mode).await;
        match registrar.put(draft).await {
            Err(Refusal::ReadOnly(text)) => assert!(text.starts_with(says), "{text}"),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_mesh_with_dataplanes_stays_unless_told_otherwise() {
    let mesh = Key::global(Kind::Mesh, "default");
    let safe = registrar(zone(false)).await;
    safe.put(sidecar()).await.unwrap();
    let refusal = safe.delete(&mesh).await.unwrap_err();
    assert_eq!(refusal.to_string(), "mesh: unable to delete mesh, there are still some dataplanes attached");
    assert!(stored(&safe, &mesh).is_some());

    let reckless = with_mesh(registrar_with(zone(false), |setup| setup.unsafe_delete = true)).await;
    reckless.put(sidecar()).await.unwrap();
    reckless.delete(&mesh).await.unwrap();
    assert_eq!(stored(&reckless, &sidecar().key), None);
}

#[tokio::test]
async fn a_secret_in_use_by_a_ca_stays() {
    let registrar = registrar(zone(false)).await;
    let ca = json!({"name": "ca-1", "type": "provided", "conf": {"cert": {"secret": "cert"}, "key": {"secret": "key"}}});
    let mtls = json!({"enabledBackend": "ca-1", "backends": [ca]});
    for name in ["cert", "key", "other"] {
        registrar
            .put(draft(json!({"type": "Secret", "mesh": "default", "name": name, "data": "aGk="})))
            .await
            .unwrap();
    }
    registrar.put(draft(json!({"type": "Mesh", "name": "default", "mtls": mtls}))).await.unwrap();
    let refusal = registrar.delete(&Key::new(Kind::Secret, "default", "key")).await.unwrap_err();
    assert!(refusal.to_string().contains(r#"in use in Mesh "default" in mTLS backend "ca-1""#), "{refusal}");
    registrar.delete(&Key::new(Kind::Secret, "default", "other")).await.unwrap();
}

#[tokio::test]
async fn an_online_zone_stays() {
    let registrar = registrar_with(ControlPlaneRole::Global, |_| ());
    registrar.put(draft(json!({"type": "Zone", "name": "east", "enabled": true}))).await.unwrap();
    let online = json!({"type": "ZoneInsight", "name": "east",
        "subscriptions": [{"id": "1", "globalInstanceId": "g", "connectTime": "2026-01-01T00:00:00Z"}]});
    registrar.ensure(vec![draft(online)]).await.unwrap();
    let refusal = registrar.delete(&Key::global(Kind::Zone, "east")).await.unwrap_err();
    assert!(refusal.to_string().starts_with("zone: unable to delete Zone"), "{refusal}");
}

#[tokio::test]
async fn an_insight_goes_with_what_it_reports_on() {
    let registrar = registrar(zone(false)).await;
    registrar.put(sidecar()).await.unwrap();
    let insight = draft(json!({"type": "DataplaneInsight", "mesh": "default", "name": "dp"}));
    registrar.ensure(vec![insight.clone()]).await.unwrap();
    registrar.delete(&sidecar().key).await.unwrap();
    assert_eq!(stored(&registrar, &insight.key), None);
}

fn snis(resource: &Resource) -> Vec<Vec<String>> {
    let spec = resource.spec.get::<resources::kinds::mesh_service::MeshService>().unwrap();
    spec.ports.iter().map(|p| p.snis.iter().map(|s| s.value.clone()).collect()).collect()
}

#[tokio::test]
async fn services_get_their_snis_and_keep_them() {
    let registrar = registrar(zone(false)).await;
    let put = registrar.put(service(json!([{"port": 80}, {"port": 443}]))).await.unwrap();
    let expected = ["a601e0c00295a9fbe.backend.80.default.ms", "a601e0c00295a9fbe.backend.443.default.ms"];
    assert_eq!(snis(&put.resource), expected.map(|sni| vec![sni.to_owned()]));

    let rotating = json!([{"port": 80, "snis": [{"value": "fresh.example"}, {"value": expected[0]}]}]);
    let put = registrar.put(service(rotating)).await.unwrap();
    let rotated = vec![vec!["fresh.example".to_owned(), expected[0].to_owned()]];
    assert_eq!(snis(&put.resource), rotated);

    let put = registrar.put(service(json!([{"port": 80, "name": "http"}]))).await.unwrap();
    assert_eq!(snis(&put.resource), rotated, "an author who gives no list keeps what is stored");
}

#[tokio::test]
async fn names_that_cannot_be_dialled_are_warned_about() {
    let registrar = registrar(zone(false)).await;
    let put = registrar.put(service(json!([{"port": 80, "name": "with.dot"}]))).await.unwrap();
    assert_eq!(put.outcome, WriteEffect::Created);
    assert!(
        put.warnings.iter().any(|w| w.starts_with(r#"Invalid MeshService SNI (port "80")"#)),
        "{:?}",
        put.warnings
    );
}

#[tokio::test]
async fn what_changed_meanwhile_is_a_conflict() {
    let registrar = registrar(zone(false)).await;
    let mut draft = timeout("t", json!({}));
    let first = registrar.put(draft.clone()).await.unwrap().resource;
    draft.labels = labels(&[("a", "b")]);
    registrar.put(draft).await.unwrap();
    let stale = Write::Update { resource: (*first).clone(), expected: first.version };
    assert!(matches!(registrar.store().write(vec![stale]).await, Err(Error::Conflict { .. })));
}
