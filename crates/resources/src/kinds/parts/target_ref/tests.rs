use serde_json::{Value, json};

use super::*;

const ALL: &[TargetRefKind] = &[
    TargetRefKind::Mesh,
    TargetRefKind::Dataplane,
    TargetRefKind::MeshSubset,
    TargetRefKind::MeshGateway,
    TargetRefKind::MeshService,
    TargetRefKind::MeshExternalService,
    TargetRefKind::MeshMultiZoneService,
    TargetRefKind::MeshServiceSubset,
    TargetRefKind::MeshHttpRoute,
];

fn check_with(allowed: Allowed<'_>, json: Value, expect: &[(&str, &str)]) {
    let target: TargetRef = serde_json::from_value(json.clone()).unwrap();
    let mut found = Violations::default();
    target.validate(allowed, &Path::root(), &mut found);
    let found = found.into_vec();
    let found: Vec<(&str, &str)> = found.iter().map(|v| (v.field.as_str(), v.message.as_str())).collect();
    assert_eq!(found, expect, "{json}");
}

fn check(json: Value, expect: &[(&str, &str)]) {
    check_with(Allowed::kinds(ALL), json, expect);
}

#[test]
fn references_that_select_something_are_valid() {
    for json in [
        json!({"kind": "Mesh", "proxyTypes": ["Sidecar", "Gateway"]}),
        json!({"kind": "Dataplane"}),
        json!({"kind": "Dataplane", "labels": {"app": "web"}}),
        json!({"kind": "Dataplane", "name": "dp-1", "namespace": "demo"}),
        json!({"kind": "MeshSubset", "tags": {"version": "v1"}, "proxyTypes": ["Sidecar"]}),
        json!({"kind": "MeshService", "name": "backend", "namespace": "demo", "sectionName": "http"}),
        json!({"kind": "MeshService", "labels": {"app": "web"}, "sectionName": "http"}),
        json!({"kind": "MeshServiceSubset", "name": "backend", "tags": {"version": "v1"}}),
        json!({"kind": "MeshGateway", "name": "edge"}),
        json!({"kind": "MeshExternalService", "name": "ext"}),
        json!({"kind": "MeshMultiZoneService", "labels": {"app": "web"}, "sectionName": "80"}),
        json!({"kind": "MeshHTTPRoute", "name": "route", "namespace": "demo"}),
    ] {
        check(json, &[]);
    }
}

#[test]
fn the_kind_is_required_and_one_the_policy_supports() {
    check(json!({}), &[("kind", "must be defined")]);
    check(json!({"kind": "MeshFoo"}), &[("kind", "value 'MeshFoo' is not supported")]);
    let only_mesh = Allowed::kinds(&[TargetRefKind::Mesh]);
    check_with(
        only_mesh,
        json!({"kind": "MeshService"}),
        &[("kind", "value 'MeshService' is not supported")],
    );
    let with_text = Allowed { unsupported: Some("only Mesh is allowed here"), ..only_mesh };
    check_with(with_text, json!({"kind": "MeshService"}), &[("kind", "only Mesh is allowed here")]);
}

#[test]
fn a_mesh_takes_only_proxy_types() {
    check(
        json!({"kind": "Mesh", "name": "m", "mesh": "m", "tags": {"a": "b"}, "labels": {"a": "b"},
               "namespace": "n", "sectionName": "s"}),
        &[
            ("name", "using name with kind Mesh is not yet supported"),
            ("mesh", "must not be set with kind Mesh"),
            ("tags", "must not be set with kind Mesh"),
            ("labels", "must not be set with kind Mesh"),
            ("namespace", "must not be set with kind Mesh"),
            ("sectionName", "must not be set with kind Mesh"),
        ],
    );
    check(json!({"kind": "Mesh", "proxyTypes": []}), &[("proxyTypes", "must not be empty")]);
    check(
        json!({"kind": "Mesh", "proxyTypes": ["Ingress"]}),
        &[("proxyTypes", r#""proxyTypes" must be one of ["Sidecar", "Gateway"]"#)],
    );
}

#[test]
fn labels_or_a_name_choose_a_dataplane_and_sections_in_inbound_policies() {
    check(
        json!({"kind": "Dataplane", "name": "d", "labels": {"a": "b"}, "tags": {"a": "b"}, "mesh": "m",
               "proxyTypes": ["Sidecar"], "sectionName": "http"}),
        &[
            ("tags", "must not be set with kind Dataplane"),
            ("mesh", "must not be set with kind Dataplane"),
            ("proxyTypes", "must not be set with kind Dataplane"),
            ("labels", "either labels or name and namespace must be specified"),
            ("sectionName", "can only be used with inbound policies"),
        ],
    );
    let inbound = Allowed { inbound_policy: true, ..Allowed::kinds(ALL) };
    check_with(inbound, json!({"kind": "Dataplane", "sectionName": "http"}), &[]);
}

#[test]
fn a_subset_takes_well_formed_tags() {
    check(
        json!({"kind": "MeshSubset", "name": "n", "mesh": "m", "labels": {"a": "b"}, "namespace": "n",
               "sectionName": "s", "tags": {"": "x", "a b": "", "tag1": "invalidValue?"}}),
        &[
            ("name", "must not be set with kind MeshSubset"),
            ("mesh", "must not be set with kind MeshSubset"),
            ("tags", "tag name must be non-empty"),
            (
                r#"tags["a b"]"#,
                "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
            ),
            (r#"tags["a b"]"#, "tag value must be non-empty"),
            (
                r#"tags["tag1"]"#,
                "tag value must consist of alphanumeric characters, dots, dashes and underscores",
            ),
            ("labels", "must not be set with kind MeshSubset"),
            ("namespace", "must not be set with kind MeshSubset"),
            ("sectionName", "must not be set with kind MeshSubset"),
        ],
    );
}

#[test]
fn services_and_routes_are_chosen_by_name_or_labels() {
    for kind in ["MeshService", "MeshHTTPRoute", "MeshExternalService"] {
        check(json!({"kind": kind}), &[("", "name or labels must be set")]);
        check(json!({"kind": kind, "labels": {"a": "b"}}), &[]);
        check(
            json!({"kind": kind, "name": "Back?", "mesh": "m", "tags": {"a": "b"}, "proxyTypes": ["Sidecar"]}),
            &[
                (
                    "name",
                    "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'.",
                ),
                ("mesh", &format!("must not be set with kind {kind}")),
                ("tags", &format!("must not be set with kind {kind}")),
                ("proxyTypes", &format!("must not be set with kind {kind}")),
            ],
        );
    }
    let both = |kind| json!({"kind": kind, "name": "n", "labels": {"a": "b"}});
    check(both("MeshService"), &[("labels", "either labels or name and namespace must be specified")]);
    check(both("MeshHTTPRoute"), &[("labels", "either labels or name and namespace must be specified")]);
    check(both("MeshExternalService"), &[("labels", "either labels or name must be specified")]);
    for kind in ["MeshHTTPRoute", "MeshExternalService"] {
        check(
            json!({"kind": kind, "name": "n", "sectionName": "s"}),
            &[("sectionName", &format!("must not be set with kind {kind}"))],
        );
    }
}

#[test]
fn service_subsets_and_gateways_are_chosen_by_name_and_tags() {
    for kind in ["MeshServiceSubset", "MeshGateway"] {
        check(
            json!({"kind": kind, "mesh": "m", "proxyTypes": ["Sidecar"], "labels": {"a": "b"},
                   "namespace": "n", "sectionName": "s"}),
            &[
                ("name", &format!("must be set when kind is {kind}")),
                ("mesh", &format!("must not be set with kind {kind}")),
                ("proxyTypes", &format!("must not be set with kind {kind}")),
                ("labels", &format!("must not be set with kind {kind}")),
                ("namespace", &format!("must not be set with kind {kind}")),
                ("sectionName", &format!("must not be set with kind {kind}")),
            ],
        );
    }
    check(
        json!({"kind": "MeshServiceSubset", "name": "a", "tags": {"version": "?"}}),
        &[(
            r#"tags["version"]"#,
            "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"",
        )],
    );
    let with_tags = json!({"kind": "MeshGateway", "name": "edge", "tags": {"name": "listener-1"}});
    check(with_tags.clone(), &[("tags", "must not be set with kind MeshGateway")]);
    check_with(Allowed { gateway_listener_tags: true, ..Allowed::kinds(ALL) }, with_tags, &[]);
}

#[test]
fn a_backend_of_several_zones_needs_a_port() {
    let check = |json: Value, expected: &str| {
        let backend: BackendRef = serde_json::from_value(json).unwrap();
        let mut found = Violations::default();
        backend.validate(&[TargetRefKind::MeshMultiZoneService], &Path::new("b"), &mut found);
        assert_eq!(found.to_string(), expected);
    };
    check(json!({"kind": "MeshMultiZoneService", "name": "x", "port": 80}), "");
    check(
        json!({"kind": "MeshMultiZoneService", "name": "x"}),
        "b.port: must be defined with kind MeshMultiZoneService",
    );
    check(json!({"kind": "Mesh"}), "b.kind: value 'Mesh' is not supported");
}

#[test]
fn gateways_are_included_unless_proxy_types_leave_them_out() {
    for (json, expected) in [
        (json!({"kind": "Mesh"}), true),
        (json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), false),
        (json!({"kind": "MeshSubset", "proxyTypes": ["Gateway"]}), true),
        (json!({"kind": "MeshGateway"}), true),
        (json!({"kind": "MeshHTTPRoute"}), true),
        (json!({"kind": "Dataplane"}), false),
        (json!({"kind": "MeshService"}), false),
    ] {
        let target: TargetRef = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(target.includes_gateways(), expected, "{json}");
    }
}

#[test]
fn kinds_that_dataplane_replaced_are_warned_about() {
    for (kind, expected) in [
        (
            "MeshService",
            Some("MeshService value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"),
        ),
        (
            "MeshSubset",
            Some("MeshSubset value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"),
        ),
        (
            "MeshHTTPRoute",
            Some(
                "MeshHTTPRoute value for 'targetRef.kind' is deprecated, use MeshHTTPRoute in spec.to[].targetRef",
            ),
        ),
        (
            "MeshGateway",
            Some("MeshGateway value for 'targetRef.kind' selects no proxy: there are no built-in gateways"),
        ),
        ("Mesh", None),
        ("Dataplane", None),
    ] {
        let target = TargetRef { kind: kind.into(), ..TargetRef::default() };
        assert_eq!(top_level_warnings(Some(&target)), expected.into_iter().collect::<Vec<_>>(), "{kind}");
    }
    assert!(top_level_warnings(None).is_empty());
}
