//! MeshServices that the control plane generated, and users who put their own over them.

use resources::kinds::mesh_service::{Identity, IdentityType, MeshService, State};

use super::*;

const GENERATED: &[(&str, &str)] = &[
    ("kuma.io/mesh", "default"),
    ("kuma.io/display-name", "backend"),
    ("kuma.io/managed-by", "meshservice-generator"),
    ("kuma.io/env", "universal"),
    ("kuma.io/zone", "east"),
    ("kuma.io/origin", "zone"),
];

/// A service of one port as the generator and the proxies have left it.
async fn generated(registrar: &Registrar) {
    let mut draft =
        service(json!([{"port": 8080, "name": "http", "targetPort": 8080, "appProtocol": "http"}]));
    draft.labels = labels(GENERATED);
    registrar.put(draft.clone()).await.unwrap();
    let stored = stored(registrar, &draft.key).unwrap();
    let mut resource = Resource::clone(&stored);
    let mut spec = resource.spec.get::<MeshService>().unwrap().clone();
    spec.state = State::Available;
    spec.identities = vec![Identity { type_: IdentityType::ServiceTag, value: "backend".to_owned() }];
    resource.spec = spec.into();
    let write = Write::Update { resource, expected: stored.version };
    registrar.store().write(vec![write]).await.unwrap();
}

fn own() -> Draft {
    service(json!([{"port": 8080, "name": "http", "targetPort": 8080, "appProtocol": "http"}, {"port": 81}]))
}

#[tokio::test]
async fn a_generated_service_is_taken_over_by_a_put_without_its_labels() {
    let registrar = registrar(zone(false)).await;
    generated(&registrar).await;
    let before = stored(&registrar, &own().key).unwrap();
    let put = registrar.put(own()).await.unwrap();
    assert_eq!(put.outcome, WriteEffect::Updated);
    let expected = "MeshService \"backend\" was generated from Dataplanes and is yours now: its ports no longer follow the \
                    Dataplanes, and it stays when they are gone. Delete it to have it generated again.";
    assert_eq!(put.warnings, [expected]);

    let after = stored(&registrar, &own().key).unwrap();
    assert_eq!(after.label("kuma.io/managed-by"), None);
    assert_eq!(after.kri("http"), before.kri("http"), "it has the name that it had");
    let spec = |resource: &Resource| resource.spec.get::<MeshService>().unwrap().clone();
    let before = spec(&before);
    let after = spec(&after);
    assert_eq!(after.ports[0].snis, before.ports[0].snis);
    assert_eq!((after.state, after.identities), (before.state, before.identities), "proxies go on as before");

    let again = registrar.put(own()).await.unwrap();
    assert_eq!((again.outcome, again.warnings), (WriteEffect::Unchanged, Vec::new()));
}

#[tokio::test]
async fn a_service_that_stays_generated_says_so_to_its_author() {
    let registrar = registrar(zone(false)).await;
    generated(&registrar).await;
    let mut changed = own();
    changed.labels = labels(GENERATED);
    let warnings = registrar.put(changed.clone()).await.unwrap().warnings;
    assert!(
        matches!(&warnings[..], [text] if text.contains("Leave out the label to keep your own")),
        "{warnings:?}"
    );
    assert_eq!(registrar.put(changed).await.unwrap().warnings, Vec::<String>::new(), "nothing was changed");
}

#[tokio::test]
async fn identities_that_an_author_lists_are_stored() {
    let registrar = registrar(zone(false)).await;
    generated(&registrar).await;
    let listed = json!({"type": "SpiffeID", "value": "spiffe://default/backend"});
    let spec = json!({"ports": [{"port": 8080}], "identities": [listed]});
    let own = json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": spec});
    let put = registrar.put(draft(own)).await.unwrap();
    assert_eq!(put.resource.spec.to_json()["identities"], json!([listed]));
}

#[tokio::test]
async fn the_name_that_a_resource_has_elsewhere_cannot_be_dropped() {
    let registrar = registrar(zone(false)).await;
    let mut named = own();
    named.labels = labels(&[("kuma.io/display-name", "elsewhere")]);
    registrar.put(named).await.unwrap();
    let found = violations(&registrar, own()).await;
    let expected = (
        r#"labels["kuma.io/display-name"]"#.to_owned(),
        r#"is immutable, cannot be removed (was "elsewhere")"#.to_owned(),
    );
    assert_eq!(found, [expected]);
}

#[tokio::test]
async fn what_the_name_of_a_resource_in_a_namespace_says_may_be_left_out() {
    let registrar = registrar(zone(false)).await;
    let in_kubernetes = json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshService",
        "metadata": {"name": "redis", "namespace": "kuma-demo"}, "spec": {"ports": [{"port": 80}]},
    });
    let put = registrar.put(draft(in_kubernetes.clone())).await.unwrap().resource;
    assert_eq!(put.kri("80").unwrap().to_string(), "kri_msvc_default_east_kuma-demo_redis_80");
    assert_eq!(
        put.spec.to_json()["ports"][0]["snis"][0]["value"],
        "a64067518fe826e27.redis.kuma-demo.80.default.ms"
    );
    let mut again = draft(in_kubernetes);
    again.labels.remove("kuma.io/display-name");
    assert_eq!(registrar.put(again).await.unwrap().outcome, WriteEffect::Unchanged);
}
