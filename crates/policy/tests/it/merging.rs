use std::sync::Arc;

use policy::{Conf, MergedPolicy, conf};
use resources::{
    kinds::mesh_timeout,
    naming::Kri,
    policy::{MESH_HTTP_ROUTE, MESH_TCP_ROUTE, Shape},
};
use serde_json::{Value, json};

use crate::support::origins;

fn kri(name: &str) -> Kri {
    format!("kri_mtr_default___{name}_rule_0").parse().unwrap()
}

fn confs(values: &[Value]) -> Vec<Arc<Conf>> {
    let named = values.iter().enumerate().map(|(i, value)| (format!("p{}", i + 1), value));
    named.map(|(name, value)| Conf::new(kri(&name), value.clone())).collect()
}

fn one(values: &[Value], shape: Shape) -> Arc<MergedPolicy> {
    let merged = conf::merged(&confs(values), shape);
    assert_eq!(merged.len(), 1);
    merged[0].clone()
}

fn merged(values: &[Value]) -> Arc<MergedPolicy> {
    one(values, Shape::default())
}

#[test]
fn lists_replace_and_append_lists_grow_at_every_depth() {
    let conf = |inner: Value| json!({"fieldString": inner["fieldString"], "sub": inner.clone(), "strings": inner["strings"], "appendStrings": inner["appendStrings"]});
    let all = merged(&[
        conf(json!({"fieldString": "p1", "strings": ["p1"], "appendStrings": ["p1"]})),
        conf(json!({"fieldString": "p2", "strings": ["p2"], "appendStrings": ["p2"]})),
        json!({"strings": ["p3"], "appendStrings": ["p3"], "sub": {"strings": ["p3"], "appendStrings": ["p3"]}}),
    ]);
    let expect = json!({"fieldString": "p2", "strings": ["p3"], "appendStrings": ["p1", "p2", "p3"]});
    for (field, value) in expect.as_object().unwrap() {
        assert_eq!(&all.conf[field], value);
        assert_eq!(&all.conf["sub"][field], value);
    }
    assert_eq!(origins(&all.origins), ["p1#0", "p2#0", "p3#0"]);
}

#[test]
fn a_field_that_only_begins_like_append_replaces() {
    assert_eq!(merged(&[json!({"appendix": [1]}), json!({"appendix": [2]})]).conf, json!({"appendix": [2]}));
}

#[test]
fn null_removes_and_a_scalar_replaces_an_object() {
    let all = merged(&[json!({"a": {"x": 1, "y": 2}, "b": 3}), json!({"a": {"x": null}, "b": null})]);
    assert_eq!(all.conf, json!({"a": {"y": 2}}));
    assert_eq!(merged(&[json!({"a": {"x": 1}}), json!({"a": 5})]).conf, json!({"a": 5}));
}

#[test]
fn rules_with_equal_matches_merge_under_their_highest_policy() {
    let entry = |key: &str, conf: Value| json!({"matches": key, "default": conf});
    let values = [
        json!({"rules": [entry("L", json!({"A": true})), entry("L", json!({"B": true}))], "other": ["kept"]}),
        json!({"rules": [entry("R", json!({"B": true}))]}),
        json!({"rules": [entry("L", json!({"B": false}))]}),
    ];
    let all = one(&values, MESH_HTTP_ROUTE.merge);
    assert_eq!(
        all.conf,
        json!({
            "other": ["kept"],
            "rules": [entry("L", json!({"A": true, "B": false})), entry("R", json!({"B": true}))]
        })
    );
    assert_eq!(origins(&all.rules), ["p3#0", "p2#0"]);
}

#[test]
fn rules_that_replace_are_from_the_policy_that_has_the_last_word() {
    let rules =
        |by: &[&str]| json!({"rules": by.iter().map(|by| json!({"default": by})).collect::<Vec<_>>()});
    let all = one(&[rules(&["low", "low"]), rules(&["high"]), json!({})], MESH_TCP_ROUTE.merge);
    assert_eq!(all.conf, rules(&["high"]));
    assert_eq!(origins(&all.rules), ["p2#0"]);
    assert_eq!(origins(&all.origins), ["p1#0", "p2#0", "p3#0"]);
}

#[test]
fn rules_of_routes_come_by_falling_precedence_then_in_policy_order() {
    let entry = |key: &str, by: &str| json!({"matches": [key], "default": {"by": by}});
    let values = [
        json!({"rules": [entry("a", "low"), entry("b", "low"), entry("c", "low")]}),
        json!({"rules": [entry("d", "high"), entry("b", "high")]}),
    ];
    let all = one(&values, MESH_HTTP_ROUTE.merge);
    assert_eq!(
        all.conf["rules"],
        json!([entry("d", "high"), entry("b", "high"), entry("a", "low"), entry("c", "low")])
    );
    assert_eq!(origins(&all.rules), ["p2#0", "p2#0", "p1#0", "p1#0"]);
}

#[test]
fn a_grouping_list_gives_each_of_its_values_a_conf() {
    let rule = |key: &str| json!({"matches": key, "default": {}});
    let values = [
        json!({"hostnames": ["a", "b"], "rules": [rule("1")]}),
        json!({"hostnames": ["b"], "rules": [rule("2")]}),
        json!({"rules": [rule("3")]}),
    ];
    let groups = conf::merged(&confs(&values), MESH_HTTP_ROUTE.merge);
    let found: Vec<(Value, Vec<String>)> =
        groups.iter().map(|group| (group.conf.clone(), origins(&group.origins))).collect();
    assert_eq!(
        found,
        [
            (json!({"hostnames": ["a"], "rules": [rule("1")]}), vec!["p1#0".to_owned()]),
            (
                json!({"hostnames": ["b"], "rules": [rule("2"), rule("1")]}),
                vec!["p1#0".to_owned(), "p2#0".to_owned()]
            ),
            (json!({"rules": [rule("3")]}), vec!["p3#0".to_owned()]),
        ]
    );
}

#[test]
fn arrays_of_backends_and_tags_replace_as_a_whole() {
    let all = merged(&[
        json!({"backends": [{"type": "Zipkin"}], "tags": [{"name": "team", "literal": "core"}]}),
        json!({"backends": [{"type": "Datadog"}], "tags": [{"name": "team", "literal": "support"}]}),
    ]);
    assert_eq!(
        all.conf,
        json!({"backends": [{"type": "Datadog"}], "tags": [{"name": "team", "literal": "support"}]})
    );
    assert_eq!(origins(&all.origins), ["p1#0", "p2#0"]);
}

#[test]
fn nothing_merges_to_nothing() {
    assert!(conf::merged(&[], Shape::default()).is_empty());
    assert!(conf::merged(&[], MESH_HTTP_ROUTE.merge).is_empty());
}

#[test]
fn the_same_entries_are_merged_and_read_once() {
    let of = |timeout: &str| json!({"connectionTimeout": timeout});
    let all = confs(&[of("1s"), of("2s"), of("3s")]);
    let first = &conf::merged(&all, Shape::default())[0];
    assert!(Arc::ptr_eq(first, &conf::merged(&all, Shape::default())[0]));
    let read = || first.typed::<mesh_timeout::Conf>().unwrap();
    assert!(Arc::ptr_eq(&read(), &read()));
    let fewer = &conf::merged(&all[1..], Shape::default())[0];
    assert_eq!(origins(&fewer.origins), ["p2#0", "p3#0"], "other entries add up to something else");
}

#[test]
fn what_was_merged_goes_when_one_of_the_policies_has_another_version() {
    let mut lower = Conf::new(kri("lower"), json!({"connectionTimeout": "1s"}));
    let higher = Conf::new(kri("higher"), json!({"idleTimeout": "1s"}));
    for version in 0..100 {
        let before = Arc::downgrade(&conf::merged(&[lower.clone(), higher.clone()], Shape::default())[0]);
        lower = Conf::new(kri("lower"), json!({"connectionTimeout": format!("{version}s")}));
        let merged = conf::merged(&[lower.clone(), higher.clone()], Shape::default());
        assert_eq!(merged[0].conf["connectionTimeout"], json!(format!("{version}s")));
        assert!(before.upgrade().is_none(), "version {version}");
    }
}

#[test]
fn a_conf_that_cannot_be_read_says_whose_it_is() {
    let error = merged(&[json!({"http": 5})]).typed::<mesh_timeout::Conf>().unwrap_err();
    assert!(error.starts_with("kri_mtr_default___p1_rule_0: cannot be read: invalid type"), "{error}");
}
