//! Dataplanes that a MeshService consists of.

use resources::{Kind, Resource};
use serde_json::{Value, json};

use crate::fixtures::{dataplane, endpoints, mesh, resource, snapshot};

fn redis(name: &str, address: &str, state: &str) -> Resource {
    let tags = json!({ "kuma.io/service": "redis", "app": "redis", "k8s.kuma.io/namespace": "kuma-demo" });
    let inbounds = json!([{ "port": 6379, "name": "redis", "tags": tags, "state": state }]);
    Resource { labels: [("team".to_owned(), "data".to_owned())].into(), ..dataplane(name, address, inbounds) }
}

/// The endpoints of a MeshService with the selector among two redis and something else.
fn check(selector: Value, target: Value, expect: &[&str]) {
    let spec = json!({ "selector": selector, "ports": [{ "port": 1, "targetPort": target }] });
    let other = dataplane("web", "10.0.0.9", json!([{ "port": 6379, "tags": { "kuma.io/service": "web" } }]));
    let snapshot = snapshot([
        mesh(""),
        redis("redis-01", "10.0.0.1", "Ready"),
        redis("redis-02", "10.0.0.2", "Ready"),
        redis("redis-03", "10.0.0.3", "NotReady"),
        redis("redis-04", "10.0.0.4", "Ignored"),
        other,
        resource(Kind::MeshService, "redis", &[], spec.clone()),
    ]);
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___redis_1"), expect, "{spec}");
}

#[test]
fn tags_of_one_inbound_select() {
    let both = json!({ "dataplaneTags": { "app": "redis", "k8s.kuma.io/namespace": "kuma-demo" } });
    check(both.clone(), json!(6379), &["10.0.0.1:6379", "10.0.0.2:6379"]);
    check(both.clone(), json!("redis"), &["10.0.0.1:6379", "10.0.0.2:6379"]);
    check(both.clone(), json!(80), &[]);
    check(both, json!("http"), &[]);
    check(json!({ "dataplaneTags": { "app": "redis", "version": "1" } }), json!(6379), &[]);
    check(json!({ "dataplaneTags": { "app": "*" } }), json!(6379), &["10.0.0.1:6379", "10.0.0.2:6379"]);
}

#[test]
fn a_reference_selects_the_dataplane_of_that_name() {
    check(json!({ "dataplaneRef": { "name": "redis-01" } }), json!(6379), &["10.0.0.1:6379"]);
    check(json!({ "dataplaneRef": { "name": "redis-03" } }), json!(6379), &[]);
    check(json!({ "dataplaneRef": { "name": "redis-77" } }), json!(6379), &[]);
}

#[test]
fn labels_select() {
    let labels = json!({ "dataplaneLabels": { "matchLabels": { "team": "data" } } });
    check(labels, json!(6379), &["10.0.0.1:6379", "10.0.0.2:6379"]);
    let labels = json!({ "dataplaneLabels": { "matchLabels": { "team": "web" } } });
    check(labels, json!(6379), &[]);
}

#[test]
fn a_reference_precedes_tags_and_tags_precede_labels() {
    let tags = json!({ "app": "redis" });
    let web = json!({ "name": "web" });
    let labels = json!({ "matchLabels": { "team": "web" } });
    check(
        json!({ "dataplaneRef": web, "dataplaneTags": tags, "dataplaneLabels": labels }),
        json!(6379),
        &["10.0.0.9:6379"],
    );
    check(
        json!({ "dataplaneTags": tags, "dataplaneLabels": labels }),
        json!(6379),
        &["10.0.0.1:6379", "10.0.0.2:6379"],
    );
}

#[test]
fn no_selector_and_no_target_select_nothing() {
    check(json!({}), json!(6379), &[]);
    check(json!({ "dataplaneTags": {} }), json!(6379), &[]);
    check(json!({ "dataplaneTags": { "app": "redis" } }), json!(null), &[]);
}

#[test]
fn an_unhealthy_inbound_in_the_older_spelling_serves_nothing() {
    let inbounds = json!([
        { "port": 1, "tags": { "kuma.io/service": "a" }, "health": { "ready": false } },
        { "port": 2, "tags": { "kuma.io/service": "a" }, "health": { "ready": true } },
    ]);
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "a" } },
        "ports": [{ "port": 1, "targetPort": 1 }, { "port": 2, "targetPort": 2 }]
    });
    let snapshot = snapshot([
        mesh(""),
        dataplane("a", "10.0.0.1", inbounds),
        resource(Kind::MeshService, "a", &[], spec),
    ]);
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___a_1"), Vec::<String>::new());
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___a_2"), ["10.0.0.1:2"]);
}

#[test]
fn two_services_on_one_port_of_different_addresses_are_kept_apart() {
    let inbounds = json!([
        { "address": "10.0.0.1", "port": 80, "tags": { "kuma.io/service": "a" } },
        { "address": "10.0.0.2", "port": 80, "tags": { "kuma.io/service": "b" } },
    ]);
    let a = crate::fixtures::service("a");
    let b = crate::fixtures::service("b");
    let snapshot = snapshot([mesh(""), dataplane("both", "10.0.0.1", inbounds), a, b]);
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___a_80"), ["10.0.0.1:80"]);
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___b_80"), ["10.0.0.2:80"]);
}
