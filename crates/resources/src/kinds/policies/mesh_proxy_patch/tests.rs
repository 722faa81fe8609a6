use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(modifications: Value, expect: &[(&str, &str)]) {
    let spec = json!({"default": {"appendModifications": modifications}});
    check(Kind::MeshProxyPatch, resource(spec), expect);
}

#[test]
fn a_full_patch_is_valid_and_survives_a_round_trip() {
    let spec = json!({
        "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
        "default": {"appendModifications": [
            {"cluster": {"operation": "Add", "value": "name: xyz\nconnectTimeout: 5s\n"}},
            {"cluster": {"match": {"origin": "inbound", "name": "a"}, "operation": "Patch", "value": "connectTimeout: 5s"}},
            {"cluster": {"match": {"name": "a"}, "operation": "Patch", "jsonPatches": [
                {"op": "add", "path": "/a", "value": {"b": [1]}},
                {"op": "replace", "path": "/a", "value": false},
                {"op": "remove", "path": "/a"},
                {"op": "move", "path": "/a", "from": "/b"},
                {"op": "copy", "path": "/a", "from": "/b"}
            ]}},
            {"listener": {"match": {"origin": "inbound", "name": "a", "tags": {"a": "b"}}, "operation": "Remove"}},
            {"networkFilter": {"match": {"origin": "inbound", "name": "tcp", "listenerName": "a",
                               "listenerTags": {"a": "b"}}, "operation": "AddBefore", "value": "name: x"}},
            {"httpFilter": {"operation": "AddFirst", "value": "name: x"}},
            {"httpFilter": {"match": {"name": "router"}, "operation": "AddAfter", "value": "name: x"}},
            {"virtualHost": {"match": {"origin": "outbound", "routeConfigurationName": "r"}, "operation": "Add",
                             "value": "{name: x, domains: ['*']}"}}
        ]}
    });
    valid(Kind::MeshProxyPatch, resource(spec.clone()));
    round_trips(Kind::MeshProxyPatch, spec);
}

#[test]
fn there_is_a_modification_and_each_changes_one_thing() {
    let empty = "spec.default.appendModifications";
    check(Kind::MeshProxyPatch, resource(json!({})), &[(empty, "must not be empty")]);
    violations(
        json!([{}, {"cluster": {"operation": "Remove"}, "listener": {"operation": "Remove"}}]),
        &[
            (
                "spec.default.appendModifications[0]",
                "exactly one modification can be defined at a time. Currently, 0 modifications are defined",
            ),
            (
                "spec.default.appendModifications[1]",
                "exactly one modification can be defined at a time. Currently, 2 modifications are defined",
            ),
        ],
    );
}

#[test]
fn the_target_selects_proxies() {
    let spec = json!({
        "targetRef": {"kind": "MeshGateway", "name": "edge", "tags": {"name": "listener-1"}},
        "default": {"appendModifications": [{"cluster": {"operation": "Remove"}}]}
    });
    check(
        Kind::MeshProxyPatch,
        resource(spec.clone()),
        &[("spec.targetRef.tags", "must not be set with kind MeshGateway")],
    );
    let mut owned = resource(spec);
    owned["labels"] = json!({"kuma.io/policy-role": "workload-owner"});
    check(Kind::MeshProxyPatch, owned, &[("spec.targetRef.kind", "value 'MeshGateway' is not supported")]);
    let old =
        draft(Kind::MeshProxyPatch, resource(json!({"targetRef": {"kind": "MeshSubset"}, "default": {}})));
    assert_eq!(
        old.spec.warnings(),
        ["MeshSubset value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"]
    );
}

#[test]
fn every_violation_on_clusters_listeners_and_virtual_hosts_is_reported() {
    let on_resources = r#"invalid operation. Available operations: "Add", "Patch", "Remove""#;
    for field in ["cluster", "listener"] {
        let at = |rest: &str| format!("spec.default.appendModifications[0].{field}{rest}");
        violations(
            json!([{field: {"operation": "Add", "match": {"name": "a"}}}]),
            &[(&at(".match"), "must not be defined"), (&at(".value"), "must be defined")],
        );
        violations(json!([{field: {"operation": "AddFirst"}}]), &[(&at(".operation"), on_resources)]);
        violations(json!([{field: {}}]), &[(&at(".operation"), on_resources)]);
    }
    let at = |rest: &str| format!("spec.default.appendModifications[0].virtualHost{rest}");
    violations(
        json!([{"virtualHost": {"operation": "Add", "match": {"name": "a"}, "value": "{name: x, domains: ['*']}"}}]),
        &[(&at(".match.name"), "must not be defined")],
    );
    violations(
        json!([{"virtualHost": {"operation": "Remove", "value": "name: x"}}]),
        &[(&at(".value"), "must not be defined")],
    );
}

#[test]
fn every_violation_on_filters_is_reported() {
    for field in ["networkFilter", "httpFilter"] {
        let at = |rest: &str| format!("spec.default.appendModifications[0].{field}{rest}");
        for operation in ["AddFirst", "AddLast"] {
            violations(json!([{field: {"operation": operation}}]), &[(&at(".value"), "must be defined")]);
        }
        violations(
            json!([{field: {"operation": "AddBefore"}}]),
            &[
                (
                    &at(".match.name"),
                    "must be defined. You need to pick a filter before which this one will be added",
                ),
                (&at(".value"), "must be defined"),
            ],
        );
        violations(
            json!([{field: {"operation": "AddAfter", "value": "name: x"}}]),
            &[(
                &at(".match.name"),
                "must be defined. You need to pick a filter after which this one will be added",
            )],
        );
        violations(
            json!([{field: {"operation": "Patch", "value": "name: x"}}]),
            &[(&at(".match.name"), "must be defined")],
        );
        violations(
            json!([{field: {"operation": "Remove", "value": "name: x"}}]),
            &[(&at(".value"), "must not be defined")],
        );
        violations(
            json!([{field: {"operation": "Add"}}]),
            &[(
                &at(".operation"),
                r#"invalid operation. Available operations: "AddFirst", "AddLast", "AddBefore", "AddAfter", "Patch", "Remove""#,
            )],
        );
    }
}

#[test]
fn a_patch_is_a_value_or_a_json_patch() {
    let at = "spec.default.appendModifications[0].cluster";
    violations(
        json!([{"cluster": {"operation": "Patch"}}]),
        &[(at, "cluster must have exactly one defined: value, jsonPatches")],
    );
    violations(
        json!([{"cluster": {"operation": "Patch", "value": "a: b", "jsonPatches": [{"op": "remove", "path": "/a"}]}}]),
        &[(at, "cluster must have only one type defined: value, jsonPatches")],
    );
    for value in ["just text", "[1, 2]", "7"] {
        violations(
            json!([{"cluster": {"operation": "Patch", "value": value}}]),
            &[(
                "spec.default.appendModifications[0].cluster.value",
                "native Envoy resource is not valid: expected a YAML mapping",
            )],
        );
    }
}

#[test]
fn what_is_added_is_a_whole_resource_and_a_patch_may_be_a_part_of_one() {
    let not_valid = "native Envoy resource is not valid";
    for (field, message) in [
        ("cluster", "Cluster"),
        ("virtualHost", "VirtualHost"),
        ("networkFilter", "Filter"),
        ("httpFilter", "HttpFilter"),
    ] {
        let at = format!("spec.default.appendModifications[0].{field}.value");
        let filter = field.ends_with("Filter");
        let (add, named) = if filter { ("AddLast", json!({"name": "a"})) } else { ("Add", json!({})) };
        let nameless = format!("{not_valid}: invalid {message}.Name: value length must be at least 1 runes");
        for value in ["{}", "name: ''", "domains: ['*']"] {
            violations(json!([{field: {"operation": add, "value": value}}]), &[(&at, &nameless)]);
        }
        for value in ["{}", ""] {
            violations(json!([{field: {"operation": "Patch", "match": named, "value": value}}]), &[]);
        }
    }
    violations(
        json!([{"virtualHost": {"operation": "Add", "value": "name: a"}}]),
        &[(
            "spec.default.appendModifications[0].virtualHost.value",
            &format!("{not_valid}: invalid VirtualHost.Domains: value must contain at least 1 item(s)"),
        )],
    );
    violations(json!([{"listener": {"operation": "Add", "value": "{}"}}]), &[]);
    violations(
        json!([{"listener": {"operation": "Add", "value": "{\"name\": "}}]),
        &[("spec.default.appendModifications[0].listener.value", &format!("{not_valid}: unexpected EOF"))],
    );
}

#[test]
fn a_value_that_is_no_yaml_is_refused() {
    let spec =
        json!({"default": {"appendModifications": [{"cluster": {"operation": "Add", "value": "a: [1"}}]}});
    let found = draft(Kind::MeshProxyPatch, resource(spec)).validate().into_vec();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].field, "spec.default.appendModifications[0].cluster.value");
    assert!(found[0].message.starts_with("native Envoy resource is not valid: "), "{}", found[0].message);
}

#[test]
fn every_violation_of_a_json_patch_is_reported() {
    let at = |rest: &str| format!("spec.default.appendModifications[0].cluster.jsonPatches{rest}");
    violations(
        json!([{"cluster": {"operation": "Patch", "jsonPatches": [
            {"op": "test", "path": "/a"},
            {"op": "add", "path": "/a"},
            {"op": "remove", "path": "/", "value": 1, "from": "/b"},
            {"op": "move"}
        ]}}]),
        &[
            (&at("[0].op"), r#""op" must be one of ["add", "remove", "replace", "move", "copy"]"#),
            (&at("[1].value"), r#""value" must not be empty when "op" is one of ["add", "replace"]"#),
            (&at("[2].from"), r#""from" is allowed only when "op" is one of ["move", "copy"]"#),
            (&at("[2].value"), r#""value" is allowed only when "op" is one of ["add", "replace"]"#),
            (&at("[2].path"), "root path cannot be removed"),
            (&at("[3].from"), r#""from" must not be empty when "op" is one of ["move", "copy"]"#),
            (&at("[3].path"), "must be defined"),
        ],
    );
}
