use std::sync::Arc;

use policy::{Client, Effect, Permissions, PolicySelector, permission};
use resources::{Resource, naming::SpiffeId};
use serde_json::{Value, json};

use crate::support::{dataplane, inbound, mtp, proxy};

fn from(target: Value, action: &str) -> Value {
    json!({"targetRef": target, "default": {"action": action}})
}

fn anyone(action: &str) -> Value {
    from(json!({"kind": "Mesh"}), action)
}

fn service(name: &str, action: &str) -> Value {
    from(json!({"kind": "MeshService", "name": name}), action)
}

fn tagged(tags: Value, action: &str) -> Value {
    from(json!({"kind": "MeshSubset", "tags": tags}), action)
}

fn exact(id: &str) -> Value {
    json!({"spiffeID": {"type": "Exact", "value": id}})
}

fn prefix(id: &str) -> Value {
    json!({"spiffeID": {"type": "Prefix", "value": id}})
}

fn resolve(policies: &[Arc<Resource>], server: &Resource, index: usize) -> Permissions {
    permission::resolve(policies, server, inbound(server, index), &PolicySelector::default())
}

fn server() -> Arc<Resource> {
    proxy("server-1", &[&[("kuma.io/service", "server")]])
}

fn of(policies: &[Arc<Resource>]) -> Permissions {
    resolve(policies, &server(), 0)
}

fn named(service: &str) -> Client {
    Client::with_tags([("kuma.io/service", service)])
}

fn with_id(id: &str) -> Client {
    Client::with_spiffe_id(id.parse().unwrap())
}

/// Asserts the effect and the rule (`policy#index`) that decides; an empty rule stands for none.
#[track_caller]
fn decides(permissions: &Permissions, client: &Client, effect: Effect, rule: &str) {
    let decision = permissions.decide(client);
    let origin = decision.origin.as_ref().map(|kri| format!("{}#{}", kri.name, &kri.section[5..]));
    assert_eq!((decision.effect, origin.unwrap_or_default().as_str()), (effect, rule), "{client:?}");
}

use Effect::{Allow, AllowWithShadowDeny as Shadow, Deny};

#[test]
fn without_permissions_nobody_gets_in() {
    decides(&of(&[]), &named("a"), Deny, "");
    let elsewhere =
        mtp("p", json!({"targetRef": {"kind": "MeshService", "name": "other"}, "from": [anyone("Allow")]}));
    decides(&of(&[elsewhere]), &named("a"), Deny, "");
}

#[test]
fn the_alphabetically_first_policy_has_the_last_word() {
    let permissions = of(&[
        mtp(
            "rule-b",
            json!({"from": [service("ui", "Allow"), service("order", "Allow"), service("payment", "Allow")]}),
        ),
        mtp("rule-a", json!({"from": [service("payment", "Deny")]})),
    ]);
    decides(&permissions, &named("payment"), Deny, "rule-a#0");
    decides(&permissions, &named("ui"), Allow, "rule-b#0");
    decides(&permissions, &named("order"), Allow, "rule-b#1");
    decides(&permissions, &named("other"), Deny, "");
}

#[test]
fn sections_of_a_dataplane_have_their_own_permissions() {
    let server = dataplane(
        "server-1",
        &[],
        json!({"address": "127.0.0.1", "inbound": [
            {"port": 8080, "name": "main-port"}, {"port": 8081, "name": "secondary-port"}
        ]}),
    );
    let section = |name: &str| json!({"kind": "Dataplane", "sectionName": name});
    let policies = [
        mtp(
            "main",
            json!({"targetRef": section("main-port"),
                   "from": [anyone("Allow"), service("orders", "AllowWithShadowDeny")]}),
        ),
        mtp("secondary", json!({"targetRef": section("secondary-port"), "from": [anyone("Deny")]})),
    ];
    let main = resolve(&policies, &server, 0);
    let secondary = resolve(&policies, &server, 1);
    decides(&main, &named("orders"), Shadow, "main#1");
    decides(&main, &named("other"), Allow, "main#0");
    decides(&secondary, &named("orders"), Deny, "secondary#0");
}

#[test]
fn the_last_matching_entry_of_from_decides() {
    let permissions = of(&[mtp(
        "p",
        json!({"from": [
            anyone("Allow"),
            tagged(json!({"kuma.io/zone": "us-east"}), "Deny"),
            tagged(json!({"env": "dev"}), "Allow"),
            tagged(json!({"env": "prod"}), "Allow")
        ]}),
    )]);
    let (zone, other_zone) = (("kuma.io/zone", "us-east"), ("kuma.io/zone", "us-west"));
    for (tags, effect, rule) in [
        (vec![("env", "prod"), zone], Allow, "p#3"),
        (vec![("env", "dev"), zone], Allow, "p#2"),
        (vec![("env", "test"), zone], Deny, "p#1"),
        (vec![zone], Deny, "p#1"),
        (vec![("env", "prod"), other_zone], Allow, "p#3"),
        (vec![("env", "dev")], Allow, "p#2"),
        (vec![other_zone], Allow, "p#0"),
        (vec![], Allow, "p#0"),
    ] {
        decides(&permissions, &Client::with_tags(tags), effect, rule);
    }
}

#[test]
fn entries_about_different_tags_are_still_taken_in_order() {
    let permissions = of(&[mtp(
        "p",
        json!({"from": [
            tagged(json!({"version": "v1"}), "Allow"),
            tagged(json!({"kuma.io/zone": "us-east"}), "Deny"),
            tagged(json!({"env": "dev"}), "Allow")
        ]}),
    )]);
    let env = ("env", "dev");
    let version = ("version", "v1");
    let zone = ("kuma.io/zone", "us-east");
    for (tags, effect, rule) in [
        (vec![env, version, zone], Allow, "p#2"),
        (vec![version, zone], Deny, "p#1"),
        (vec![env, zone], Allow, "p#2"),
        (vec![env, version], Allow, "p#2"),
        (vec![zone], Deny, "p#1"),
        (vec![version], Allow, "p#0"),
        (vec![env], Allow, "p#2"),
        (vec![], Deny, ""),
    ] {
        decides(&permissions, &Client::with_tags(tags), effect, rule);
    }
}

#[test]
fn services_and_subsets_of_services_mix() {
    let subset =
        |version: &str| json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": version}});
    let permissions =
        of(&[mtp("p", json!({"from": [service("backend", "Allow"), from(subset("v1"), "Deny")]}))]);
    let web = |version| Client::with_tags([("kuma.io/service", "web"), ("version", version)]);
    decides(&permissions, &web("v1"), Deny, "p#1");
    decides(&permissions, &web("v2"), Deny, "");
    decides(&permissions, &named("backend"), Allow, "p#0");
    let any_version = of(&[mtp("p", json!({"from": [from(subset("*"), "Allow")]}))]);
    decides(&any_version, &web("v2"), Allow, "p#0");
    decides(&any_version, &named("web"), Deny, "");
}

#[test]
fn a_client_with_several_inbounds_has_the_tags_of_all() {
    let client = proxy(
        "c",
        &[&[("kuma.io/service", "a"), ("version", "v1")], &[("kuma.io/service", "b"), ("version", "v2")]],
    );
    let client = Client::of_dataplane(&client);
    assert_eq!(
        client.spiffe_ids.iter().map(SpiffeId::as_str).collect::<Vec<_>>(),
        ["spiffe://default/a", "spiffe://default/b"]
    );
    let permissions = of(&[mtp("p", json!({"from": [service("a", "Deny"), service("b", "Allow")]}))]);
    decides(&permissions, &client, Allow, "p#1");
}

#[test]
fn deny_wins_over_shadow_deny_over_allow_whatever_the_order_of_policies() {
    let rules = |conf: Value| json!({"rules": [{"default": conf}]});
    let top = json!({"kind": "MeshService", "name": "server"});
    let mut narrow = rules(json!({"allow": [exact("spiffe://m/evil"), exact("spiffe://m/odd")]}));
    narrow["targetRef"] = top;
    let permissions = of(&[
        mtp("a", narrow),
        mtp("b", rules(json!({"deny": [exact("spiffe://m/evil")]}))),
        mtp(
            "c",
            rules(json!({
                "allowWithShadowDeny": [exact("spiffe://m/odd"), exact("spiffe://m/evil")],
                "allow": [prefix("spiffe://m/")]
            })),
        ),
    ]);
    for (id, effect, rule) in [
        ("spiffe://m/evil", Deny, "b#0"),
        ("spiffe://m/odd", Shadow, "c#0"),
        ("spiffe://m/good", Allow, "c#0"),
        ("spiffe://other/good", Deny, ""),
    ] {
        decides(&permissions, &with_id(id), effect, rule);
    }
}

#[test]
fn an_identity_and_a_server_name_must_both_match() {
    let sni = json!({"type": "Exact", "value": "backend.mesh"});
    let mut both = prefix("spiffe://m/");
    both["sni"] = sni.clone();
    let permissions = of(&[mtp(
        "p",
        json!({"rules": [{"default": {"allow": [both]}}, {"default": {"deny": [{"sni": {"type": "Exact", "value": "secret.mesh"}}]}}]}),
    )]);
    let asking = |id: &str, sni: &str| Client { sni: Some(sni.to_owned()), ..with_id(id) };
    decides(&permissions, &asking("spiffe://m/a", "backend.mesh"), Allow, "p#0");
    decides(&permissions, &asking("spiffe://n/a", "backend.mesh"), Deny, "");
    decides(&permissions, &asking("spiffe://m/a", "other.mesh"), Deny, "");
    decides(&permissions, &asking("spiffe://m/a", "secret.mesh"), Deny, "p#1");
    decides(&permissions, &with_id("spiffe://m/a"), Deny, "");
}

#[test]
fn policies_with_from_and_policies_with_rules_apply_together() {
    let permissions = of(&[
        mtp("from", json!({"from": [anyone("Deny"), service("web", "Allow"), service("evil", "Allow")]})),
        mtp(
            "rules",
            json!({"rules": [{"default": {
                "deny": [exact("spiffe://m/evil")],
                "allow": [exact("spiffe://m/api")]
            }}]}),
        ),
    ]);
    let client =
        |service: &str| Client { tags: named(service).tags, ..with_id(&format!("spiffe://m/{service}")) };
    decides(&permissions, &client("evil"), Deny, "rules#0");
    decides(&permissions, &client("web"), Allow, "from#1");
    decides(&permissions, &client("api"), Allow, "rules#0");
    decides(&permissions, &client("other"), Deny, "from#0");
}

#[test]
fn what_cannot_be_read_refuses() {
    let by_labels = |action| from(json!({"kind": "MeshService", "labels": {"app": "x"}}), action);
    let denying = of(&[mtp("p", json!({"from": [anyone("Allow"), by_labels("Deny")]}))]);
    decides(&denying, &named("a"), Deny, "p#1");
    let allowing = of(&[mtp("p", json!({"from": [by_labels("Allow")]}))]);
    decides(&allowing, &named("a"), Deny, "");
    let unknown = of(&[mtp("p", json!({"from": [anyone("Maybe")]}))]);
    decides(&unknown, &named("a"), Deny, "p#0");
    let odd = json!({"spiffeID": {"type": "Odd", "value": "spiffe://m/a"}});
    let rules = of(&[mtp("p", json!({"rules": [{"default": {"allow": [odd]}}]}))]);
    decides(&rules, &with_id("spiffe://m/a"), Deny, "");
}

#[test]
fn rules_that_can_never_decide_are_left_out() {
    let permissions = of(&[
        mtp("b", json!({"from": [service("a", "Deny"), anyone("Allow"), service("b", "Deny")]})),
        mtp("a", json!({"from": [service("b", "Allow")]})),
    ]);
    let kept: Vec<(String, Effect)> =
        permissions.rules.iter().map(|rule| (rule.client.to_string(), rule.effect)).collect();
    assert_eq!(kept, [("clients tagged kuma.io/service=b".to_owned(), Allow), ("anyone".to_owned(), Allow)]);
}

#[test]
fn decisions_are_explained_with_the_rule_that_makes_them() {
    let permissions = of(&[
        mtp("f", json!({"from": [service("a", "Allow"), service("b", "AllowWithShadowDeny")]})),
        mtp("r", json!({"rules": [{"default": {"deny": [prefix("spiffe://m/")]}}]})),
    ]);
    for (client, expect) in [
        (named("a"), "allowed: kri_mtp_default___f_rule_0 allows clients tagged kuma.io/service=a"),
        (
            named("b"),
            "allowed, but counted as denied: kri_mtp_default___f_rule_1 shadow-denies clients tagged kuma.io/service=b",
        ),
        (
            with_id("spiffe://m/x"),
            "denied: kri_mtp_default___r_rule_0 denies identities starting with spiffe://m/",
        ),
        (
            named("c"),
            "denied: none of the 3 rules of this inbound matches this client, and clients that no rule allows are denied",
        ),
    ] {
        assert_eq!(permissions.explain(&client), expect);
    }
    assert_eq!(
        of(&[]).explain(&named("a")),
        "denied: no MeshTrafficPermission applies to this inbound, and clients that no rule allows are denied"
    );
}

/// `client→server` for every pair of services a to d, all tagged alike, that may talk.
fn pairs(policies: &[Arc<Resource>]) -> String {
    let tags = |service| [("kuma.io/service", service), ("kuma.io/zone", "east"), ("version", "v1")];
    let services = ["a", "b", "c", "d"];
    let mut found = Vec::new();
    for to in services {
        let permissions = resolve(policies, &proxy(to, &[&tags(to)]), 0);
        let callers: String = services
            .into_iter()
            .filter(|from| permissions.decide(&Client::with_tags(tags(from))).is_allowed())
            .collect();
        if !callers.is_empty() {
            found.push(format!("{callers}→{to}"));
        }
    }
    found.join(" ")
}

#[test]
fn services_reach_each_other_as_their_permissions_say() {
    let to =
        |name: &str, from: Value| json!({"targetRef": {"kind": "MeshService", "name": name}, "from": from});
    let mesh = |from: Value| json!({"targetRef": {"kind": "Mesh"}, "from": from});
    let subset =
        |tags: Value, from: Value| json!({"targetRef": {"kind": "MeshSubset", "tags": tags}, "from": from});
    let all = "abcd→a abcd→b abcd→c abcd→d";
    let table: [(Vec<Value>, &str); 13] = [
        (vec![mesh(json!([anyone("Allow")]))], all),
        (vec![json!({"from": [anyone("Allow")]})], all),
        (vec![mesh(json!([anyone("Deny")]))], ""),
        (vec![], ""),
        (vec![to("b", json!([service("a", "Allow")]))], "a→b"),
        (vec![to("b", json!([service("a", "AllowWithShadowDeny")]))], "a→b"),
        (
            vec![
                to("b", json!([service("a", "Allow")])),
                to("c", json!([service("b", "AllowWithShadowDeny")])),
                to("d", json!([anyone("Allow")])),
            ],
            "a→b b→c abcd→d",
        ),
        (
            vec![mesh(json!([anyone("Allow")])), to("b", json!([service("a", "Deny")]))],
            "abcd→a bcd→b abcd→c abcd→d",
        ),
        (
            vec![mesh(json!([anyone("Allow")])), to("b", json!([anyone("Deny"), service("a", "Allow")]))],
            "abcd→a a→b abcd→c abcd→d",
        ),
        (vec![subset(json!({"kuma.io/zone": "east"}), json!([anyone("Allow")]))], all),
        (
            vec![
                json!({"targetRef": {"kind": "MeshServiceSubset", "name": "a", "tags": {"kuma.io/zone": "east"}},
                        "from": [anyone("Allow")]}),
            ],
            "abcd→a",
        ),
        (
            // The first policy is called aaa and wins.
            vec![
                subset(json!({"version": "v1"}), json!([anyone("Allow")])),
                subset(json!({"kuma.io/zone": "east"}), json!([anyone("Deny")])),
            ],
            all,
        ),
        (vec![mesh(json!([tagged(json!({"kuma.io/zone": "west"}), "Allow")]))], ""),
    ];
    for (specs, expect) in table {
        let names = ["aaa", "bbb", "ccc"];
        let policies: Vec<_> = names.into_iter().zip(specs).map(|(name, spec)| mtp(name, spec)).collect();
        assert_eq!(pairs(&policies), expect, "{policies:?}");
    }
}

#[test]
fn two_thousand_entries_are_resolved_in_linear_work() {
    let work = |entries: usize, policies: usize| {
        let per_policy = entries / policies;
        let all: Vec<_> = (0..policies)
            .map(|p| {
                let from: Vec<Value> =
                    (0..per_policy).map(|i| tagged(json!({"k": format!("{p}-{i}")}), "Allow")).collect();
                mtp(&format!("p{p}"), json!({ "from": from }))
            })
            .collect();
        let server = server();
        let (permissions, work) =
            permission::resolve_counting(&all, &server, inbound(&server, 0), &PolicySelector::default());
        assert_eq!(permissions.rules.len(), entries);
        work
    };
    for entries in [500, 1000, 2000] {
        assert_eq!(work(entries, 1).entries, 2 * entries);
        assert_eq!(work(entries, 1).comparisons, 0);
        let many = work(entries, entries);
        assert_eq!((many.policies, many.entries), (entries, 2 * entries));
        assert!(many.comparisons <= entries * 12, "{many:?}");
    }
}
