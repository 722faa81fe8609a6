//! Identity of a Dataplane by MeshIdentity, and the identities that clients expect of a service then.

use std::collections::BTreeSet;

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{Affected, AllMeshes, ClientTls, DestinationId, VouchedLabels};

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
    let mut state = AllMeshes::default();
    state.apply(&all.map(present).collect::<Vec<_>>());
    let mesh = state.mesh("default").unwrap();
    mesh.spiffe_id_of(&web()).map(|id| id.to_string())
}

#[test]
fn the_identity_with_the_most_labels_is_chosen_then_the_first_name() {
    let none = json!({});
    let one = json!({ "app": "web" });
    let two = json!({ "app": "web", "team": "shop" });
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
    let mut state = AllMeshes::default();
    state.apply(&[present(mesh("")), present(web()), present(identity("a", json!({}), true))]);
    assert_eq!(state.mesh("default").unwrap().spiffe_id_of(&web()), None);
    let updates = state.apply(&[present(trust("t", "td"))]);
    assert!(updates[0].affected.whole_mesh);
    assert!(state.mesh("default").unwrap().spiffe_id_of(&web()).is_some());
    let same = state.apply(&[present(trust("t", "td")), present(identity("a", json!({}), true))]);
    assert!(same.iter().all(|update| update.affected == Affected::default()), "{same:?}");
}

#[test]
fn trust_is_by_domain_with_the_domain_of_the_mesh_while_it_has_mtls() {
    let domains = |mtls: &str| {
        let mut state = AllMeshes::default();
        state.apply(&[present(mesh(mtls)), present(trust("a", "td-1")), present(trust("b", "td-2"))]);
        state.mesh("default").unwrap().trust_domains().unwrap()
    };
    assert_eq!(domains(""), ["td-1", "td-2"]);
    assert_eq!(domains("STRICT"), ["default", "td-1", "td-2"]);
}

#[test]
fn a_service_is_called_with_tls_once_its_proxies_have_certificates() {
    let mut state = AllMeshes::default();
    state.apply(&[present(mesh("")), present(web()), present(trust("t", "td"))]);
    let tls = |state: &mut AllMeshes, ready: &str, identities: Vec<Resource>| {
        let service = with_status(service("web"), json!({ "tls": { "status": ready } }));
        state.apply(&identities.into_iter().chain([service]).map(present).collect::<Vec<_>>());
        destination(state.mesh("default").unwrap(), "kri_msvc_default___web_80").tls.clone()
    };
    assert_eq!(tls(&mut state, "Ready", vec![]), ClientTls::Off, "nobody has an identity");
    let identity = || vec![identity("a", json!({}), true)];
    assert_eq!(tls(&mut state, "NotReady", identity()), ClientTls::Off);
    assert!(matches!(tls(&mut state, "Ready", identity()), ClientTls::Mesh { .. }));
}

/// The labels of `web` that its identity names it by and that a token with these labels does not bind.
fn unvouched(labels: Value, path: &str, bound: &[(&str, &str)]) -> Vec<String> {
    let selector = json!({ "dataplane": { "matchLabels": labels } });
    let spec = json!({ "selector": selector, "spiffeID": { "trustDomain": "td", "path": path } });
    let mut state = AllMeshes::in_zone("east");
    let identity = resource(Kind::MeshIdentity, "a", &[], spec);
    state.apply(&[present(mesh("")), present(web()), present(identity)]);
    let value = |value: &str| BTreeSet::from([value.to_owned(), "another".to_owned()]);
    let bound = bound.iter().map(|(label, bound)| ((*label).to_owned(), value(bound))).collect();
    let vouched = VouchedLabels::Labels(std::sync::Arc::new(bound));
    let mesh = state.mesh("default").unwrap();
    assert_eq!(mesh.identities.unvouched(&web(), "east", &VouchedLabels::Everything), BTreeSet::new());
    mesh.identities.unvouched(&web(), "east", &vouched).into_iter().collect()
}

#[test]
fn a_token_must_bind_every_label_that_a_spiffe_id_follows_from() {
    let by_app = "/app/{{ label \"app\" }}";
    assert_eq!(unvouched(json!({}), by_app, &[]), ["app"]);
    assert_eq!(unvouched(json!({}), by_app, &[("app", "api")]), ["app"]);
    assert_eq!(unvouched(json!({}), by_app, &[("team", "shop")]), ["app"]);
    assert!(unvouched(json!({}), by_app, &[("app", "web")]).is_empty());
    let by_both = "/{{ label \"team\" }}/{{ .Workload }}";
    assert_eq!(unvouched(json!({}), by_both, &[]), ["kuma.io/workload", "team"]);
    assert_eq!(unvouched(json!({}), by_both, &[("team", "shop")]), ["kuma.io/workload"]);
    // The selector gives the name as much as the path does.
    assert_eq!(unvouched(json!({ "app": "web" }), "/payments", &[]), ["app"]);
    assert!(unvouched(json!({ "app": "web" }), "/payments", &[("app", "web")]).is_empty());
    assert!(unvouched(json!({}), "/payments", &[]).is_empty(), "everyone is this");
}

#[test]
fn no_template_reads_a_label_that_the_token_need_not_bind() {
    for path in [
        "/{{ index . \"Workload\" }}",
        "/{{ with .Workload }}{{ . }}{{ end }}",
        "/{{ label (printf \"kuma.io/%s\" \"workload\") }}",
        "/{{ if eq .Workload \"web\" }}payments{{ else }}other{{ end }}",
        "/{{ if eq (label \"kuma.io/workload\") \"web\" }}payments{{ else }}other{{ end }}",
    ] {
        assert_eq!(unvouched(json!({}), path, &[("app", "web")]), ["kuma.io/workload"], "{path}");
    }
}

#[test]
fn the_control_plane_answers_for_where_a_dataplane_is() {
    let own = |zone: &str| {
        let spec = json!({ "selector": { "dataplane": {} },
            "spiffeID": { "trustDomain": "td", "path": "/{{ label \"kuma.io/zone\" }}" } });
        let mut state = AllMeshes::in_zone("east");
        let identity = resource(Kind::MeshIdentity, "a", &[], spec);
        let mut web = web();
        web.labels.insert("kuma.io/zone".to_owned(), zone.to_owned());
        state.apply(&[present(mesh("")), present(web.clone()), present(identity)]);
        let nothing = VouchedLabels::Labels(std::sync::Arc::default());
        state.mesh("default").unwrap().identities.unvouched(&web, "east", &nothing)
    };
    assert_eq!(own("east"), BTreeSet::new());
    assert_eq!(own("west"), BTreeSet::from(["kuma.io/zone".to_owned()]));
}

#[test]
fn servers_that_tags_choose_are_expected_to_be_who_their_identities_say() {
    let tagged = |state: &AllMeshes| {
        let mesh = state.mesh("default").unwrap();
        let mut all = mesh.destinations.values().filter(|to| matches!(to.id, DestinationId::Tags(_)));
        match &all.next().unwrap().tls {
            ClientTls::Mesh { spiffe_ids, .. } => spiffe_ids.clone(),
            ClientTls::Off => panic!("no TLS"),
        }
    };
    let mut web = web();
    let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": "web" } }]);
    web.spec = dataplane("web", "10.0.0.1", inbound).spec;
    let networking = json!({ "address": "10.0.0.2",
        "outbound": [{ "port": 10001, "tags": { "kuma.io/service": "web" } }] });
    let client = resource(Kind::Dataplane, "client", &[], json!({ "networking": networking }));
    let mut state = AllMeshes::default();
    state.apply(&[mesh("STRICT"), web.clone(), client, trust("t", "td")].map(present));
    assert_eq!(tagged(&state), ["spiffe://default/web"]);
    // Clients know the new one before a server has it.
    state.apply(&[present(identity("a", json!({}), false))]);
    assert_eq!(tagged(&state), ["spiffe://a/workload/web", "spiffe://default/web"]);
    web.labels.insert("kuma.io/workload".to_owned(), "shop".to_owned());
    state.apply(&[present(web)]);
    assert_eq!(tagged(&state), ["spiffe://a/workload/shop", "spiffe://default/web"]);
    state.apply(&[present(identity("a", json!({ "app": "api" }), true))]);
    assert_eq!(tagged(&state), ["spiffe://default/web"]);
}
