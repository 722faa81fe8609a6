use serde_json::json;

use super::*;
use crate::{
    format,
    kinds::testing,
    naming::{kds, sni},
};

fn parsed(value: Value) -> Parsed {
    let text = value.to_string();
    format::parse(value).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn failure(value: Value) -> String {
    match format::parse(value) {
        Ok(parsed) => panic!("accepted: {parsed:?}"),
        Err(error) => error.to_string(),
    }
}

/// A draft of any kind that says as much as the empty spec allows.
fn sample(kind: Kind, name: &str, labels: &[(&str, &str)]) -> Draft {
    let mut fields = Map::new();
    fields.insert("name".into(), name.into());
    fields.insert("mesh".into(), "shop".into());
    fields.insert("labels".into(), labels.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect());
    match kind {
        Kind::Secret | Kind::GlobalSecret => {
            fields.insert("data".into(), "dGVzdA==".into());
        }
        Kind::Config => {
            fields.insert("config".into(), "text".into());
        }
        kind if kind.descriptor().form == Form::Spec => {
            fields.insert("spec".into(), testing::least(kind));
        }
        _ => {}
    }
    fields.insert("type".into(), kind.name().into());
    format::universal::parse_as(kind, fields).unwrap_or_else(|error| panic!("{kind}: {error}")).draft
}

#[test]
fn every_kind_reads_back_what_it_wrote() {
    for &kind in Kind::ALL {
        let samples = [
            sample(kind, "web", &[]),
            sample(kind, "web.v1", &[("team", "a"), ("kuma.io/display-name", "web")]),
            sample(kind, "web", &[("k8s.kuma.io/namespace", "demo")]),
        ];
        for draft in samples {
            let rendered = render_draft(&draft, None);
            let read = parsed(rendered.clone());
            assert_eq!(read.draft, draft, "{rendered}");
            assert_eq!(read.unknown_fields, Vec::<String>::new(), "{rendered}");
        }
    }
}

#[test]
fn a_workloads_namespace_is_a_suffix_of_the_name() {
    for &kind in Kind::ALL.iter().filter(|&&kind| is_namespaced(kind)) {
        if matches!(kind, Kind::Secret | Kind::GlobalSecret | Kind::Config) {
            continue;
        }
        let namespace = ("k8s.kuma.io/namespace", "demo");
        let draft = sample(kind, "web.demo", &[namespace, ("kuma.io/display-name", "web")]);
        let rendered = render_draft(&draft, None);
        assert_eq!(rendered["metadata"]["name"], "web", "{kind}");
        assert_eq!(rendered["metadata"]["namespace"], "demo", "{kind}");
        assert_eq!(rendered["metadata"]["annotations"]["kuma.io/display-name"], "web", "{kind}");
        assert_eq!(parsed(rendered).draft, draft, "{kind}");
        // What users call it is what is left of the name.
        let unnamed = render_draft(&sample(kind, "web.demo", &[namespace]), None);
        assert_eq!(parsed(unnamed).draft, draft, "{kind}");
    }
    let cluster_wide = sample(Kind::Zone, "east.demo", &[("k8s.kuma.io/namespace", "demo")]);
    let rendered = render_draft(&cluster_wide, None);
    assert_eq!(rendered["metadata"]["name"], "east.demo");
    assert_eq!(rendered["metadata"].get("namespace"), None);
}

#[test]
fn the_namespace_is_the_systems_unless_the_caller_or_the_resource_has_one() {
    let namespace = |name, labels: &[(&str, &str)], asked| {
        render_draft(&sample(Kind::MeshTimeout, name, labels), asked)["metadata"]["namespace"].clone()
    };
    assert_eq!(namespace("web", &[], None), "kuma-system");
    assert_eq!(namespace("web", &[], Some("other")), "other");
    assert_eq!(namespace("web.demo", &[("k8s.kuma.io/namespace", "demo")], None), "demo");
    assert_eq!(namespace("web.demo", &[("k8s.kuma.io/namespace", "demo")], Some("other")), "other");
}

#[test]
fn what_is_shown_in_another_namespace_reads_back_as_living_there() {
    let draft = sample(Kind::MeshTimeout, "web.demo", &[("k8s.kuma.io/namespace", "demo")]);
    let moved = parsed(render_draft(&draft, Some("other"))).draft;
    assert_eq!(&*moved.key.name, "web.other");
    assert_eq!(moved.labels.get("k8s.kuma.io/namespace").map(String::as_str), Some("other"));
}

/// As the control plane of the zone `default` stores it.
fn stored(document: Value) -> Resource {
    let Draft { key, mut labels, spec } = parsed(document).draft;
    for (label, value) in [("kuma.io/origin", "zone"), ("kuma.io/zone", "default")] {
        labels.insert(label.to_owned(), value.to_owned());
    }
    let written = "2024-05-06T07:08:09Z".parse().unwrap();
    Resource { key, labels, created: written, modified: written, version: 1, owner: None, spec, status: None }
}

#[test]
fn a_namespace_is_once_in_the_kri_and_in_the_sni_of_its_resource() {
    let redis = stored(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshService",
        "metadata": {"name": "redis", "namespace": "kuma-demo"},
        "spec": {"ports": [{"port": 80}]},
    }));
    assert_eq!(redis.name(), "redis.kuma-demo");
    assert_eq!(redis.kri("80").unwrap().to_string(), "kri_msvc_default_default_kuma-demo_redis_80");
    let snis: Vec<String> = sni::accepted(&redis).into_iter().map(|accepted| accepted.value).collect();
    let hashed = "a64067518fe826e27.redis.kuma-demo.80.default.ms";
    assert_eq!(snis, [hashed, "sni.msvc.default.default.kuma-demo.redis.80"]);
    let fault = stored(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshFaultInjection",
        "metadata": {"name": "only-backend-api-inbound", "namespace": "kuma-demo"},
        "spec": {"targetRef": {"kind": "Dataplane", "labels": {"app": "backend"}, "sectionName": "backend-api"}},
    }));
    let kri = fault.kri("").unwrap().to_string();
    assert_eq!(kri, "kri_mfi_default_default_kuma-demo_only-backend-api-inbound_");
    // Another zone gets it under a name of its own, and calls it the same.
    let name = kds::hashed_name("default", redis.display_name(), Some("default"), Some("kuma-demo"));
    let mut elsewhere = redis.clone();
    elsewhere.key = Key::new(Kind::MeshService, "default", &name);
    elsewhere.labels.insert("kuma.io/origin".to_owned(), "global".to_owned());
    assert_eq!(elsewhere.kri(""), redis.kri(""));
    assert_eq!(sni::sni_name(&elsewhere, ""), sni::sni_name(&redis, ""));
}

#[test]
fn a_policy_has_its_mesh_in_a_label() {
    let read = parsed(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout",
        "metadata": {
            "name": "slow", "namespace": "demo", "uid": "x", "resourceVersion": "1", "generation": 3,
            "labels": {"kuma.io/mesh": "shop", "team": "a"},
            "annotations": {"kuma.io/display-name": "slow", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {},
    }));
    assert_eq!(read.draft.key, Key::new(Kind::MeshTimeout, "shop", "slow.demo"));
    let labels: Vec<(&str, &str)> = read.draft.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(labels, [("k8s.kuma.io/namespace", "demo"), ("kuma.io/display-name", "slow"), ("team", "a")]);
    assert_eq!(read.unknown_fields, Vec::<String>::new());

    let read = parsed(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout", "metadata": {"name": "slow"}, "spec": {},
    }));
    assert_eq!(read.draft.key, Key::new(Kind::MeshTimeout, "default", "slow"));
}

#[test]
fn an_older_kind_has_its_mesh_beside_the_metadata() {
    let read = parsed(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "Dataplane", "mesh": "shop",
        "metadata": {"name": "web", "namespace": "demo"}, "spec": {},
    }));
    assert_eq!(read.draft.key, Key::new(Kind::Dataplane, "shop", "web.demo"));
    let rendered = render_draft(&read.draft, None);
    assert_eq!(rendered["mesh"], "shop");
    let read = parsed(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "Zone", "mesh": "default", "metadata": {"name": "east"},
    }));
    assert_eq!(read.draft.key, Key::global(Kind::Zone, "east"));
    assert_eq!(read.unknown_fields, Vec::<String>::new());
}

#[test]
fn a_proxys_insight_is_all_status() {
    let rendered = render_draft(&sample(Kind::DataplaneInsight, "web", &[]), None);
    assert!(rendered.get("status").is_some() && rendered.get("spec").is_none(), "{rendered}");
}

#[test]
fn secrets_are_kubernetes_secrets() {
    let rendered = render_draft(&sample(Kind::Secret, "ca", &[]), None);
    assert_eq!(
        rendered,
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "ca", "namespace": "kuma-system", "labels": {"kuma.io/mesh": "shop"}},
            "type": "system.kuma.io/secret", "data": {"value": "dGVzdA=="},
        })
    );
    let rendered = render_draft(&sample(Kind::GlobalSecret, "ca", &[]), None);
    assert_eq!(rendered["type"], "system.kuma.io/global-secret");
    assert_eq!(rendered["metadata"].get("labels"), None);
    let plain = parsed(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "system.kuma.io/secret",
        "metadata": {"name": "ca"}, "stringData": {"value": "test"},
    }));
    assert_eq!(plain.draft.key, Key::new(Kind::Secret, "default", "ca"));
    assert_eq!(plain.draft.spec.to_json(), json!({"data": "dGVzdA=="}));
}

#[test]
fn what_is_not_ours_is_refused_with_a_reason() {
    let check = |value: Value, expect: &str| {
        let message = failure(value.clone());
        assert!(message.contains(expect), "{value}: {message}");
    };
    check(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}), "apps/v1");
    check(json!({"apiVersion": "kuma.io/v1alpha1", "kind": "meshtimeout", "metadata": {}}), "MeshTimeout");
    check(json!({"apiVersion": "kuma.io/v1alpha1", "kind": "Secret", "metadata": {}}), "v1");
    check(json!({"apiVersion": "kuma.io/v1alpha1", "metadata": {}}), "kind");
    check(json!({"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh"}), "metadata");
    check(json!({"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh", "metadata": []}), "metadata");
    check(
        json!({"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh", "metadata": {"name": 1}}),
        "metadata.name",
    );
    check(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {}}), "Opaque");
    check(
        json!({"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout", "metadata": {"name": "a"}, "spec": 1}),
        "spec",
    );
}

#[test]
fn unknown_fields_are_named_from_the_root() {
    let read = parsed(json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout",
        "metadata": {"name": "a", "nmae": "b"}, "spec": {"bogus": 1}, "extra": true,
    }));
    assert_eq!(read.unknown_fields, ["metadata.nmae", "extra", "spec.bogus"]);
}

#[test]
fn a_stored_resource_shows_when_it_was_created_and_its_status() {
    let draft = sample(Kind::MeshService, "web", &[]);
    let resource = Resource {
        key: draft.key,
        labels: draft.labels,
        created: "2024-05-06T07:08:09.123456789Z".parse().unwrap(),
        modified: "2024-05-06T07:08:09Z".parse().unwrap(),
        version: 1,
        owner: None,
        spec: draft.spec,
        status: Some(crate::Status::from_json(Kind::MeshService, json!({})).unwrap()),
    };
    let rendered = render(&resource, None);
    assert_eq!(rendered["metadata"]["creationTimestamp"], "2024-05-06T07:08:09Z");
    assert!(rendered.get("status").is_some(), "{rendered}");
    assert_eq!(parsed(rendered).unknown_fields, Vec::<String>::new());
}

#[test]
fn labels_that_are_no_mapping_of_strings_are_said_to_be_so() {
    let universal = |labels: Value| json!({"type": "Mesh", "name": "shop", "labels": labels});
    let kubernetes = |field: &str, value: Value| json!({"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh", "metadata": {"name": "shop", field: value}});
    let check = |value: Value, expect: &str| assert_eq!(failure(value), expect);
    check(universal(json!(["a"])), r#""labels" must be a mapping"#);
    check(universal(json!({"a": 1})), r#""labels[\"a\"]" must be a string"#);
    check(kubernetes("labels", json!("a")), r#""metadata.labels" must be a mapping"#);
    check(kubernetes("annotations", json!(1)), r#""metadata.annotations" must be a mapping"#);
    check(kubernetes("name", json!(1)), r#""metadata.name" must be a string"#);
}
