use resources::{
    Kind, Resource,
    naming::{SpiffeId, SpiffePrefix},
};
use serde_json::{Value, json};

use super::resource;

fn dataplane(labels: &[(&str, &str)], networking: Value) -> Resource {
    resource(Kind::Dataplane, "m", "dp-1", labels, json!({ "networking": networking }))
}

fn inbounds(tags: &[Value]) -> Value {
    let inbounds: Vec<Value> =
        tags.iter().enumerate().map(|(i, tags)| json!({ "port": 80 + i, "tags": tags })).collect();
    json!({ "inbound": inbounds })
}

#[track_caller]
fn has(dataplane: &Resource, expect: &[&str]) {
    let ids = SpiffeId::of_dataplane(dataplane);
    assert_eq!(ids.iter().map(SpiffeId::as_str).collect::<Vec<_>>(), expect);
}

#[test]
fn a_dataplane_is_each_of_its_services() {
    let [web, api] = ["web", "api"].map(|service| json!({ "kuma.io/service": service, "version": "v1" }));
    has(&dataplane(&[], inbounds(&[web.clone(), api, web])), &["spiffe://m/api", "spiffe://m/web"]);
    has(
        &dataplane(&[], json!({ "gateway": { "tags": { "kuma.io/service": "edge" } } })),
        &["spiffe://m/edge"],
    );
}

#[test]
fn a_dataplane_without_a_service_is_its_workload() {
    let workload = [("kuma.io/workload", "batch")];
    has(&dataplane(&workload, inbounds(&[json!({ "version": "v1" })])), &["spiffe://m/batch"]);
    has(&dataplane(&workload, inbounds(&[json!({ "kuma.io/service": "web" })])), &["spiffe://m/web"]);
    has(&dataplane(&[("kuma.io/workload", "")], inbounds(&[json!({})])), &[]);
    has(&dataplane(&[], inbounds(&[json!({ "version": "v1" })])), &[]);
}

#[test]
fn a_text_that_is_an_identity_reads_back_unchanged() {
    for text in ["spiffe://default/web", "spiffe://default.east.mesh.local/ns/demo/sa/web", "spiffe://m"] {
        assert_eq!(text.parse::<SpiffeId>().unwrap().to_string(), text);
    }
    for text in ["", "web", "https://m/web", "spiffe://", "spiffe://m/", "spiffe://m/a//b", "spiffe://M/a"] {
        assert!(text.parse::<SpiffeId>().is_err(), "{text}");
    }
}

#[test]
fn a_prefix_means_the_identities_that_start_with_it() {
    let id: SpiffeId = "spiffe://default.east.mesh.local/workload/web".parse().unwrap();
    for (prefix, expect) in [
        ("spiffe://default.east.mesh.local/", true),
        ("spiffe://default.east.mesh.local/workload/w", true),
        ("spiffe://default.east.mesh.local/workload/w/", false),
        ("spiffe://default/", false),
    ] {
        assert_eq!(prefix.parse::<SpiffePrefix>().unwrap().matches(&id), expect, "{prefix}");
    }
    let of_mesh = SpiffePrefix::of_trust_domain("default");
    assert!(of_mesh.matches(&SpiffeId::of_service("default", "web")));
    assert!(!of_mesh.matches(&SpiffeId::of_service("default-2", "web")), "another mesh");
    assert!(of_mesh.includes(&"spiffe://default/ns/".parse().unwrap()));
    assert!(!of_mesh.includes(&"spiffe://default".parse().unwrap()), "the shorter one means more");
}
