use policy::{
    Merged, Shape,
    merge::{merge, merge_grouped},
};
use resources::{Kind, naming::Kri};
use serde_json::{Value, json};

use crate::support::origins;

fn kri(name: &str) -> Kri {
    format!("kri_mtr_default___{name}_rule_0").parse().unwrap()
}

fn confs(values: &[Value]) -> Vec<(Kri, &Value)> {
    values.iter().enumerate().map(|(i, value)| (kri(&format!("p{}", i + 1)), value)).collect()
}

fn merged(values: &[Value]) -> Merged {
    merge(confs(values), Shape::default()).unwrap()
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
    assert_eq!(all.origin_of("/sub/fieldString"), Some(&kri("p2")));
    assert_eq!(all.origin_of("/strings"), Some(&kri("p3")));
    assert_eq!(all.origin_of("/appendStrings/1"), Some(&kri("p2")));
}

#[test]
fn a_field_that_only_begins_like_append_replaces() {
    assert_eq!(merged(&[json!({"appendix": [1]}), json!({"appendix": [2]})]).conf, json!({"appendix": [2]}));
}

#[test]
fn null_removes_and_a_scalar_replaces_an_object_with_the_origins_in_it() {
    let all = merged(&[json!({"a": {"x": 1, "y": 2}, "b": 3}), json!({"a": {"x": null}, "b": null})]);
    assert_eq!(all.conf, json!({"a": {"y": 2}}));
    assert_eq!(all.values.keys().collect::<Vec<_>>(), ["/a/y"]);
    let all = merged(&[json!({"a": {"x": 1}}), json!({"a": 5})]);
    assert_eq!(all.values.into_iter().collect::<Vec<_>>(), [("/a".to_owned(), kri("p2"))]);
}

#[test]
fn keyed_lists_merge_entries_with_equal_keys_at_the_place_of_the_last() {
    let entry = |key: &str, conf: Value| json!({"matches": key, "default": conf});
    let values = [
        json!({"rules": [entry("L", json!({"A": true})), entry("L", json!({"B": true}))], "other": ["kept"]}),
        json!({"rules": [entry("R", json!({"B": true}))]}),
        json!({"rules": [entry("L", json!({"B": false}))]}),
    ];
    let shape = Shape { first_wins: false, ..Shape::of(Kind::MeshHTTPRoute) };
    let all = merge(confs(&values), shape).unwrap();
    assert_eq!(
        all.conf,
        json!({
            "other": ["kept"],
            "rules": [entry("R", json!({"B": true})), entry("L", json!({"A": true, "B": false}))]
        })
    );
    assert_eq!(all.origin_of("/rules/1/default/A"), Some(&kri("p1")));
    assert_eq!(all.origin_of("/rules/1/default/B"), Some(&kri("p3")));
}

#[test]
fn rules_of_routes_come_from_the_highest_precedence_to_the_lowest_each_policy_in_its_own_order() {
    let entry = |key: &str, by: &str| json!({"matches": [key], "default": {"by": by}});
    let values = [
        json!({"rules": [entry("a", "low"), entry("b", "low"), entry("c", "low")]}),
        json!({"rules": [entry("d", "high"), entry("b", "high")]}),
    ];
    let all = merge(confs(&values), Shape::of(Kind::MeshHTTPRoute)).unwrap();
    assert_eq!(
        all.conf["rules"],
        json!([entry("d", "high"), entry("b", "high"), entry("a", "low"), entry("c", "low")])
    );
    assert_eq!(all.origin_of("/rules/1/matches"), Some(&kri("p2")));
    assert_eq!(all.origin_of("/rules/3/matches"), Some(&kri("p1")));
}

#[test]
fn a_grouping_list_gives_each_of_its_values_a_conf() {
    let rule = |key: &str| json!({"matches": key, "default": {}});
    let values = [
        json!({"hostnames": ["a", "b"], "rules": [rule("1")]}),
        json!({"hostnames": ["b"], "rules": [rule("2")]}),
        json!({"rules": [rule("3")]}),
    ];
    let groups = merge_grouped(confs(&values), Shape::of(Kind::MeshHTTPRoute));
    let found: Vec<(Value, Vec<String>)> =
        groups.into_iter().map(|group| (group.conf, origins(&group.origins))).collect();
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
    assert_eq!(merge([], Shape::default()), None);
    assert_eq!(merge_grouped([], Shape::of(Kind::MeshHTTPRoute)), []);
}
