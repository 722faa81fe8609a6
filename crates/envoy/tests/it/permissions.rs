//! Permissions as Envoy decides them.

use policy::{ClientMatch, Effect, Permissions, Rule};
use serde_json::{Value, json};
use xds::Type;

use crate::{
    support::{SECURED, plan, unified, web},
    view::{check, shown},
};

fn rule(client: ClientMatch, effect: Effect, index: usize) -> Rule {
    let origin = format!("kri_mtp_default___rules_rule_{index}").parse().unwrap();
    Rule { client, effect, origin }
}

/// The filter that asks, of an inbound with this protocol.
fn filter(protocol: &str, rules: Vec<Rule>) -> Value {
    let web = web(&format!(
        "inbound: [{{ port: 80, tags: {{ kuma.io/service: web, kuma.io/protocol: {protocol} }} }}]"
    ));
    let mut plan = plan(&[SECURED, &web], &unified("web"));
    plan.own.inbounds[0].permissions = Some(Permissions { rules });
    let listener = shown(&envoy::Encoder::default().lower(&plan), Type::Listener, "self_80");
    let first = &listener["filterChains"][0]["filters"][0]["typedConfig"];
    if protocol == "tcp" { first.clone() } else { first["httpFilters"][0]["typedConfig"].clone() }
}

fn action(name: &str, action: Option<&str>) -> Value {
    let mut config = json!({"@type": "type.googleapis.com/envoy.config.rbac.v3.Action", "name": name});
    if let Some(action) = action {
        config["action"] = json!(action);
    }
    json!({"action": {"name": "envoy.filters.rbac.action", "typedConfig": config}})
}

fn uris(pattern: &str, text: &str) -> Value {
    let input = json!({
        "name": "envoy.matching.inputs.uri_san",
        "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.matching.common_inputs.ssl.v3.UriSanInput"},
    });
    json!({"singlePredicate": {"input": input, "valueMatch": {pattern: text}}})
}

fn has_uri(uri: &str) -> Value {
    json!({"orMatcher": {"predicate": [
        uris("exact", uri),
        uris("prefix", &format!("{uri},")),
        uris("suffix", &format!(",{uri}")),
        uris("contains", &format!(",{uri},")),
    ]}})
}

fn tags(pairs: &[(&str, &str)]) -> ClientMatch {
    ClientMatch::Tags(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[test]
fn nobody_may_call_without_a_rule() {
    for protocol in ["tcp", "http"] {
        check(
            &filter(protocol, Vec::new()),
            &[
                ("/matcher", json!({"onNoMatch": action("default", Some("DENY"))})),
                ("/shadowMatcher", Value::Null),
            ],
        );
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = vec![
        rule(tags(&[("kuma.io/service", "bad")]), Effect::Deny, 0),
        rule(tags(&[("kuma.io/zone", "east"), ("kuma.io/service", "good")]), Effect::Allow, 1),
        rule(ClientMatch::SpiffePrefix("spiffe://default/ns/".parse().unwrap()), Effect::Allow, 2),
        rule(ClientMatch::Anyone, Effect::Allow, 3),
        rule(ClientMatch::SpiffeExact("spiffe://default/late".parse().unwrap()), Effect::Deny, 4),
    ];
    let matcher = |index: usize, part: &str| format!("/matcher/matcherList/matchers/{index}/{part}");
    check(
        &filter("http", rules),
        &[
            ("/rulesStatPrefix", json!("self_80.")),
            (&matcher(0, "predicate"), has_uri("spiffe://default/bad")),
            (&matcher(0, "onMatch"), action("kri_mtp_default___rules_rule_0", Some("DENY"))),
            (
                &matcher(1, "predicate"),
                json!({"andMatcher": {"predicate": [has_uri("spiffe://default/good"), has_uri("kuma://kuma.io/zone/east")]}}),
            ),
            (&matcher(1, "onMatch"), action("kri_mtp_default___rules_rule_1", None)),
            (
                &matcher(2, "predicate"),
                json!({"orMatcher": {"predicate": [
                    uris("prefix", "spiffe://default/ns/"), uris("contains", ",spiffe://default/ns/"),
                ]}}),
            ),
            ("/matcher/matcherList/matchers/3", Value::Null),
            ("/matcher/onNoMatch", action("kri_mtp_default___rules_rule_3", None)),
        ],
    );
}

#[test]
fn shadow_denials_pass_and_are_counted() {
    let rules = vec![rule(tags(&[("kuma.io/service", "maybe")]), Effect::AllowWithShadowDeny, 0)];
    let decided = "/matcherList/matchers/0/onMatch";
    check(
        &filter("tcp", rules),
        &[
            ("/statPrefix", json!("self_80.")),
            ("/shadowRulesStatPrefix", Value::Null),
            (&format!("/matcher{decided}"), action("kri_mtp_default___rules_rule_0", None)),
            (&format!("/shadowMatcher{decided}"), action("kri_mtp_default___rules_rule_0", Some("DENY"))),
        ],
    );
}

#[test]
fn a_server_name_is_matched_together_with_an_identity() {
    let identity = ClientMatch::SpiffeExact("spiffe://default/a".parse().unwrap());
    let client = ClientMatch::Sni { sni: "a.example.com".to_owned(), spiffe: Some(Box::new(identity)) };
    check(
        &filter("tcp", vec![rule(client, Effect::Allow, 0)]),
        &[
            (
                "/matcher/matcherList/matchers/0/predicate/andMatcher/predicate/0/singlePredicate/valueMatch",
                json!({"exact": "a.example.com"}),
            ),
            (
                "/matcher/matcherList/matchers/0/predicate/andMatcher/predicate/1",
                has_uri("spiffe://default/a"),
            ),
        ],
    );
}

#[test]
fn the_filter_grows_with_the_rules_and_no_faster() {
    let many = |count: usize| {
        let rules =
            (0..count).map(|i| rule(tags(&[("kuma.io/service", &format!("s{i:04}"))]), Effect::Allow, i));
        let web = web("inbound: [{ port: 80, tags: { kuma.io/service: web } }]");
        let mut plan = plan(&[SECURED, &web], &unified("web"));
        plan.own.inbounds[0].permissions = Some(Permissions { rules: rules.collect() });
        envoy::Encoder::default().lower(&plan).of(Type::Listener).get("self_80").unwrap().body().len()
    };
    let empty = many(0);
    let thousand = many(1000);
    let two = many(2000);
    assert!(two - empty < (thousand - empty) * 21 / 10, "{empty} {thousand} {two}");
}
