//! Dataplanes: what a zone adds to them, who may be in a mesh, and what a mesh with proxies in it outlives.

use super::*;

const MESH: &str = "default";

/// A registrar whose mesh has constraints.
async fn constrained(constraints: Value) -> Registrar {
    let registrar = registrar(zone(false)).await;
    constrain(&registrar, constraints).await;
    registrar
}

async fn constrain(registrar: &Registrar, constraints: Value) {
    let mesh = json!({"type": "Mesh", "name": MESH, "constraints": {"dataplaneProxy": constraints}});
    registrar.put(draft(mesh)).await.unwrap();
}

fn proxy(name: &str, tags: &[Value]) -> Draft {
    let inbound: Vec<Value> =
        tags.iter().enumerate().map(|(i, tags)| json!({"port": 80 + i, "tags": tags})).collect();
    draft(json!({"type": "Dataplane", "mesh": MESH, "name": name,
                 "networking": {"address": "127.0.0.1", "inbound": inbound}}))
}

async fn refusal(registrar: &Registrar, draft: Draft) -> String {
    match registrar.put(draft).await {
        Err(Refusal::NotAMember(text)) => text,
        other => panic!("expected to be kept out, got {other:?}"),
    }
}

async fn networking(registrar: &Registrar, draft: Draft) -> Value {
    registrar.put(draft).await.unwrap().resource.spec.to_json()["networking"].clone()
}

#[tokio::test]
async fn a_zone_writes_its_tag_on_inbounds_and_gateways_at_each_write() {
    let registrar = registrar(zone(false)).await;
    for tags in
        [json!({"kuma.io/service": "web"}), json!({"kuma.io/service": "web", "kuma.io/zone": "other"})]
    {
        let stored = networking(&registrar, proxy("dp", &[tags, json!({})])).await;
        let tags = json!({"kuma.io/service": "web", "kuma.io/zone": "east"});
        assert_eq!(stored["inbound"], json!([{"port": 80, "tags": tags}, {"port": 81}]));
    }
    let gateway = json!({"gateway": {"tags": {"kuma.io/service": "edge"}}});
    let gateway = dataplane("dp").address("127.0.0.1").networking(gateway);
    let stored = networking(&registrar, gateway.draft()).await;
    assert_eq!(stored["gateway"]["tags"], json!({"kuma.io/service": "edge", "kuma.io/zone": "east"}));

    let again = registrar.put(proxy("dp", &[json!({"kuma.io/service": "web"}), json!({})])).await.unwrap();
    assert_eq!(again.outcome, WriteEffect::Updated);
    let again = registrar.put(proxy("dp", &[json!({"kuma.io/service": "web"}), json!({})])).await.unwrap();
    assert_eq!(again.outcome, WriteEffect::Unchanged);
}

#[tokio::test]
async fn an_inbound_that_is_probed_is_not_ready_when_it_is_new() {
    let probed = || {
        let tags = json!({"kuma.io/service": "web"});
        let inbounds =
            json!([{"port": 80, "tags": tags, "serviceProbe": {"tcp": {}}}, {"port": 81, "tags": tags}]);
        dataplane("dp").address("127.0.0.1").networking(json!({"inbound": inbounds})).draft()
    };
    let states = |stored: &Value| {
        let inbounds = stored["inbound"].as_array().unwrap().clone();
        inbounds
            .iter()
            .map(|inbound| (inbound["state"].clone(), inbound["health"].clone()))
            .collect::<Vec<_>>()
    };
    let registrar = registrar(zone(false)).await;
    let stored = networking(&registrar, probed()).await;
    assert_eq!(states(&stored), [(json!("NotReady"), json!({})), (Value::Null, Value::Null)]);
    let stored = networking(&registrar, probed()).await;
    assert_eq!(states(&stored), [(Value::Null, Value::Null), (Value::Null, Value::Null)], "not on update");

    let registrar = with_mesh(registrar_with(zone(false), |setup| setup.health_discovery = false)).await;
    let stored = networking(&registrar, probed()).await;
    assert_eq!(states(&stored), [(Value::Null, Value::Null), (Value::Null, Value::Null)]);
}

#[tokio::test]
async fn a_proxy_meets_one_of_the_requirements_of_its_mesh_with_every_inbound() {
    let registrar = constrained(json!({"requirements": [
        {"tags": {"kuma.io/zone": "east", "team": "*"}}, {"tags": {"kuma.io/service": "legacy"}}]}))
    .await;
    let web = |team: &str| json!({"kuma.io/service": "web", "team": team});
    registrar.put(proxy("a", &[web("x"), json!({"kuma.io/service": "legacy"})])).await.unwrap();
    assert_eq!(
        refusal(&registrar, proxy("b", &[web("x"), json!({"kuma.io/service": "web"})])).await,
        r#"dataplane cannot be a member of mesh "default" because its tags "kuma.io/service=web kuma.io/zone=east" does not fulfill any requirements defined on the Mesh"#
    );
    // Without any tags there is nothing to look at.
    registrar.put(dataplane("dp").address("127.0.0.1").draft()).await.unwrap();
}

#[tokio::test]
async fn a_proxy_matches_no_restriction_of_its_mesh() {
    let registrar =
        constrained(json!({"restrictions": [{"tags": {"team": "x", "kuma.io/zone": "*"}}]})).await;
    registrar.put(proxy("a", &[json!({"kuma.io/service": "web", "team": "y"})])).await.unwrap();
    let kept_out = r#"dataplane cannot be a member of mesh "default" because its tags "kuma.io/service=web kuma.io/zone=east team=x" matches restricted tags "kuma.io/zone=* team=x" defined on the Mesh"#;
    let restricted = json!({"kuma.io/service": "web", "team": "x"});
    assert_eq!(refusal(&registrar, proxy("b", std::slice::from_ref(&restricted))).await, kept_out);
    assert_eq!(
        refusal(&registrar, proxy("a", std::slice::from_ref(&restricted))).await,
        kept_out,
        "an update"
    );
    let gateway = json!({"gateway": {"tags": restricted}});
    let gateway = dataplane("dp").address("127.0.0.1").networking(gateway).draft();
    assert_eq!(refusal(&registrar, gateway).await, kept_out);
}

#[tokio::test]
async fn new_constraints_leave_proxies_alone_until_they_are_written_again() {
    let registrar = registrar(zone(false)).await;
    let web = || proxy("a", &[json!({"kuma.io/service": "web"})]);
    registrar.put(web()).await.unwrap();
    constrain(&registrar, json!({"requirements": [{"tags": {"team": "x"}}]})).await;
    assert!(stored(&registrar, &web().key).is_some());
    refusal(&registrar, web()).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_dataplane_is_told_before_who_may_be_in_the_mesh() {
    let registrar = constrained(json!({"requirements": [{"tags": {"team": "x"}}]})).await;
    let found = violations(&registrar, dataplane("dp").draft()).await;
    assert_eq!(found, [("networking.address".to_owned(), "address can't be empty".to_owned())]);
}

#[tokio::test]
async fn a_policy_outside_a_namespace_gets_no_role() {
    let registrar = registrar(zone(false)).await;
    let put = registrar.put(timeout("t", json!({}))).await.unwrap();
    assert_eq!(put.resource.label("kuma.io/policy-role"), None);
}

#[tokio::test]
async fn a_mesh_that_was_found_empty_is_not_deleted_once_a_proxy_is_in_it() {
    let registrar = registrar(zone(false)).await;
    let mesh = Key::global(Kind::Mesh, MESH);
    let web = || proxy("web", &[json!({"kuma.io/service": "web"})]);
    let before = registrar.store().snapshot().unwrap();
    let deletion = registrar.rules().admit_delete(&mesh, &before).unwrap();
    let arrival = registrar.rules().admit(web(), &before, NOW()).unwrap().pending;
    registrar.put(web()).await.unwrap();
    let refused = registrar.commit(deletion.clone()).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Store(Error::InUse { key, .. }) if *key == mesh), "{refused}");

    registrar.delete(&web().key).await.unwrap();
    registrar.commit(deletion).await.unwrap();
    let refused = registrar.commit(arrival).await.unwrap_err();
    assert!(matches!(refused, Refusal::Store(Error::OwnerMissing { .. })), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_proxy_is_lost_with_its_mesh() {
    let registrar = Arc::new(registrar(zone(false)).await);
    let mesh = Key::global(Kind::Mesh, MESH);
    for round in 0..50 {
        let name = format!("dp-{round}");
        let tags = json!({"kuma.io/service": "web"});
        let write = {
            let registrar = registrar.clone();
            let draft = proxy(&name, &[tags]);
            tokio::spawn(async move { registrar.put(draft).await.map(drop) })
        };
        let delete = {
            let registrar = registrar.clone();
            let mesh = mesh.clone();
            tokio::spawn(async move { registrar.delete(&mesh).await })
        };
        let written = write.await.unwrap();
        let deleted = delete.await.unwrap();
        let proxy = Key::new(Kind::Dataplane, MESH, &name);
        match (written, deleted) {
            (Ok(()), Err(Refusal::Invalid(found))) => {
                let expect = "mesh: unable to delete mesh, there are still some dataplanes attached";
                assert_eq!(found.to_string(), expect);
                assert!(stored(&registrar, &proxy).is_some(), "round {round}: an acknowledged proxy is lost");
                registrar.delete(&proxy).await.unwrap();
            }
            (Err(Refusal::MeshMissing(mesh)), Ok(())) => assert_eq!(mesh, MESH),
            other => panic!("round {round}: {other:?}"),
        }
        registrar.ensure(vec![draft(json!({"type": "Mesh", "name": MESH}))]).await.unwrap();
    }
}
