//! Which MeshIdentity a Dataplane has, and what clients expect of a service then.

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{Affected, ClientTls, State};

use crate::fixtures::{dataplane, destination, mesh, present, resource, service, with_status};

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn identity(name: &str, labels: Value, ready: bool) -> Resource {
    let selector = json!({ "dataplane": { "matchLabels": labels } });
    let provider = json!({ "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } });
    let spec = json!({ "selector": selector, "spiffeID": { "trustDomain": name }, "provider": provider });
    let made = resource(Kind::MeshIdentity, name, &[], spec);
    let condition = json!({ "type": "Ready", "status": if ready { "True" } else { "False" } });
    with_status(made, json!({ "conditions": [condition] }))
}

fn trust(name: &str, domain: &str) -> Resource {
    let bundle = json!({ "type": "Pem", "pem": { "value": PEM } });
    resource(Kind::MeshTrust, name, &[], json!({ "trustDomain": domain, "caBundles": [bundle] }))
}

fn web() -> Resource {
    let labels = [("app", "web"), ("team", "shop"), ("kuma.io/workload", "web")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Resource { labels, ..dataplane("web", "10.0.0.1", json!([{ "port": 80 }])) }
}

fn chosen(identities: Vec<Resource>) -> Option<String> {
    let all = identities.into_iter().chain([mesh(""), web(), trust("t", "td")]);
    let mut state = State::default();
    state.apply(&all.map(present).collect::<Vec<_>>());
    let mesh = state.mesh("default").unwrap();
    mesh.spiffe_id_of(&web()).map(|id| id.to_string())
}

#[test]
fn the_identity_that_asks_for_the_most_labels_is_chosen_then_the_first_name() {
    let (none, one, two) = (json!({}), json!({ "app": "web" }), json!({ "app": "web", "team": "shop" }));
    let other = json!({ "app": "api", "team": "shop", "kuma.io/workload": "web" });
    let of = |domain: &str| Some(format!("spiffe://{domain}/workload/web"));
    assert_eq!(chosen(vec![]), None);
    assert_eq!(chosen(vec![identity("b", none.clone(), true), identity("a", none.clone(), true)]), of("a"));
    assert_eq!(chosen(vec![identity("a", none, true), identity("b", one.clone(), true)]), of("b"));
    assert_eq!(chosen(vec![identity("a", one.clone(), true), identity("b", two.clone(), true)]), of("b"));
    assert_eq!(chosen(vec![identity("a", one.clone(), true), identity("b", other, true)]), of("a"));
    assert_eq!(chosen(vec![identity("a", one, true), identity("b", two, false)]), None, "not ready");
}

#[test]
fn nobody_has_an_identity_that_nobody_would_believe() {
    let mut state = State::default();
    state.apply(&[present(mesh("")), present(web()), present(identity("a", json!({}), true))]);
    assert_eq!(state.mesh("default").unwrap().spiffe_id_of(&web()), None);
    let updates = state.apply(&[present(trust("t", "td"))]);
    assert!(updates[0].affected.whole_mesh);
    assert!(state.mesh("default").unwrap().spiffe_id_of(&web()).is_some());
    let same = state.apply(&[present(trust("t", "td")), present(identity("a", json!({}), true))]);
    assert!(same.iter().all(|update| update.affected == Affected::default()), "{same:?}");
}

#[test]
fn what_is_believed_is_by_trust_domain_with_that_of_the_mesh_while_it_has_mtls() {
    let domains = |mtls: &str| {
        let mut state = State::default();
        state.apply(&[present(mesh(mtls)), present(trust("a", "td-1")), present(trust("b", "td-2"))]);
        state.mesh("default").unwrap().trust_domains().unwrap()
    };
    assert_eq!(domains(""), ["td-1", "td-2"]);
    assert_eq!(domains("STRICT"), ["default", "td-1", "td-2"]);
}

#[test]
fn without_mtls_a_service_is_called_with_tls_once_its_proxies_have_certificates() {
    let mut state = State::default();
    state.apply(&[present(mesh("")), present(web()), present(trust("t", "td"))]);
    let tls = |state: &mut State, ready: &str, identities: Vec<Resource>| {
        let service = with_status(service("web"), json!({ "tls": { "status": ready } }));
        state.apply(&identities.into_iter().chain([service]).map(present).collect::<Vec<_>>());
        destination(state.mesh("default").unwrap(), "kri_msvc_default___web_80").tls.clone()
    };
    assert_eq!(tls(&mut state, "Ready", vec![]), ClientTls::Off, "nobody has an identity");
    let identity = || vec![identity("a", json!({}), true)];
    assert_eq!(tls(&mut state, "NotReady", identity()), ClientTls::Off);
    assert!(matches!(tls(&mut state, "Ready", identity()), ClientTls::Mesh { .. }));
}
