use policy::{PolicyView, inbound};
use resources::Kind;
use serde_json::{Value, json};

use crate::support::{origins, resource, timeout, view};

fn listed(policies: &[PolicyView]) -> Vec<String> {
    origins(inbound::rules(policies).iter().map(|rule| &rule.conf.origin))
}

#[test]
fn rules_and_from_are_listed_apart_and_fold_in_order() {
    let policies = [
        timeout("aaaaaa", &[], json!({"rules": [{"default": {"idleTimeout": "10s"}}]})),
        timeout(
            "bbbbbb",
            &[],
            json!({"from": [{"targetRef": {"kind": "Mesh"},
                "default": {"idleTimeout": "1m40s", "connectionTimeout": "1m41s"}}]}),
        ),
        timeout(
            "cccccc",
            &[],
            json!({"rules": [{"default": {"idleTimeout": "3m20s", "http": {"requestTimeout": "3m22s"}}}]}),
        ),
    ];
    assert_eq!(listed(&policies), ["cccccc#0", "bbbbbb#0", "aaaaaa#0"]);
    let folded = inbound::fold_unconditional(&inbound::rules(&policies)).unwrap();
    assert_eq!(
        folded.conf,
        json!({"idleTimeout": "10s", "http": {"requestTimeout": "3m22s"}, "connectionTimeout": "1m41s"})
    );
    assert_eq!(origins(&folded.origins), ["cccccc#0", "bbbbbb#0", "aaaaaa#0"]);
}

#[test]
fn rules_are_ordered_by_origin_and_role() {
    let rule = || json!({"rules": [{"default": {"idleTimeout": "10s"}}]});
    let origin = |name, origin| timeout(name, &[("kuma.io/origin", origin)], rule());
    let by_origin = [origin("zone", "zone"), timeout("none", &[], rule()), origin("global", "global")];
    assert_eq!(listed(&by_origin), ["global#0", "none#0", "zone#0"]);
    let role = |name| timeout(name, &[("kuma.io/policy-role", name)], rule());
    let by_role = [role("consumer"), role("system"), role("producer")];
    assert_eq!(listed(&by_role), ["system#0", "producer#0", "consumer#0"]);
}

#[test]
fn each_match_is_a_rule_and_the_most_specific_come_first() {
    let id = |kind: &str, value: &str| json!({"type": kind, "value": value});
    let policy = timeout(
        "t",
        &[],
        json!({"rules": [
            {"default": {"idleTimeout": "1s"}},
            {"matches": [{"sni": id("Exact", "a.mesh")}, {"spiffeID": id("Prefix", "spiffe://m/")}],
             "default": {"http": {"requestTimeout": "2s"}}},
            {"matches": [{"spiffeID": id("Exact", "spiffe://m/a")},
                         {"spiffeID": id("Exact", "spiffe://m/b"), "sni": id("Exact", "a.mesh")}],
             "default": {"http": {"requestTimeout": "3s"}}}
        ]}),
    );
    let found: Vec<(Value, String)> = inbound::rules([&policy])
        .into_iter()
        .map(|rule| (serde_json::to_value(rule.client).unwrap(), rule.conf.origin.section.clone()))
        .collect();
    let rule = |i: usize| format!("rule_{i}");
    assert_eq!(
        found,
        [
            (json!({"spiffeID": id("Exact", "spiffe://m/b"), "sni": id("Exact", "a.mesh")}), rule(2)),
            (json!({"spiffeID": id("Exact", "spiffe://m/a")}), rule(2)),
            (json!({"spiffeID": id("Prefix", "spiffe://m/")}), rule(1)),
            (json!({"sni": id("Exact", "a.mesh")}), rule(1)),
            (Value::Null, rule(0)),
        ]
    );
}

#[test]
fn from_of_policies_about_single_clients_is_no_rule() {
    let permission = crate::support::mtp(
        "p",
        json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]}),
    );
    assert_eq!(listed(&[view(&permission)]), Vec::<String>::new());
}

#[test]
fn entries_of_from_are_listed_from_the_highest_precedence_to_the_lowest() {
    let fault = |name: &str, from: Value| {
        let from: Vec<Value> =
            from.as_array().unwrap().iter().map(|target| json!({"targetRef": target})).collect();
        view(&resource(Kind::MeshFaultInjection, name, &[], json!({"from": from})))
    };
    let policies = [
        fault("b", json!([{"kind": "Mesh"}, {"kind": "MeshService", "name": "web"}])),
        fault(
            "a",
            json!([{"kind": "MeshSubset", "tags": {"team": "x"}}, {"kind": "MeshService", "labels": {"a": "b"}}]),
        ),
    ];
    let found = inbound::from(&policies);
    assert_eq!(origins(found.iter().map(|rule| &rule.conf.origin)), ["a#1", "a#0", "b#1", "b#0"]);
    let clients: Vec<Option<String>> =
        found.iter().map(|rule| Some(rule.client.as_ref()?.to_string())).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        clients,
        [None, some("clients tagged team=x"), some("clients tagged kuma.io/service=web"), some("anyone")]
    );
}
