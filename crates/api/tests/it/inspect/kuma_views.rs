//! Requests that `kumactl` of Kuma makes by default.

use api::Settings;
use contract::rules::{
    ClientRule, FromRules, ResourceMeta, RuleInbound, RuleOfProxy, RulesOfKind, TagMatcher,
};
use resources::{Kind, Labels};
use serde_json::json;

use super::{dataplane, with_dataplanes};
use crate::world::{World, zone};

fn tags(tags: &[(&str, &str)]) -> Labels {
    tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn matcher(key: &str, not: bool, value: &str) -> TagMatcher {
    TagMatcher { key: key.to_owned(), not, value: value.to_owned() }
}

/// The rules of a proxy: about a client, about a destination, and about the proxy as a whole.
pub fn rules() -> Vec<RulesOfKind> {
    let origin = || vec![ResourceMeta::of(&dataplane("default", "mtp-1"))];
    let none = |kind: Kind| RulesOfKind {
        from_rules: Vec::new(),
        inbound_rules: Vec::new(),
        proxy_rule: None,
        to_resource_rules: Vec::new(),
        to_rules: Vec::new(),
        r#type: kind.name().into(),
        warnings: Vec::new(),
    };
    let inbound = RuleInbound {
        name: String::new(),
        port: 80,
        tags: tags(&[("kuma.io/protocol", "http"), ("kuma.io/service", "web")]),
    };
    let matchers = vec![matcher("kuma.io/service", false, "client"), matcher("kuma.io/zone", true, "east")];
    let client = ClientRule { conf: json!({ "action": "Deny" }), matchers, origin: origin() };
    let matchers = vec![matcher("kuma.io/service", false, "redis")];
    let destination = ClientRule { conf: json!({ "idleTimeout": "1s" }), matchers, origin: origin() };
    vec![
        RulesOfKind {
            from_rules: vec![FromRules { inbound, rules: vec![client] }],
            ..none(Kind::MeshTrafficPermission)
        },
        RulesOfKind { to_rules: vec![destination], ..none(Kind::MeshTimeout) },
        RulesOfKind {
            proxy_rule: Some(RuleOfProxy { conf: json!({ "a": 1 }), origin: origin() }),
            ..none(Kind::MeshProxyPatch)
        },
    ]
}

async fn ruled() -> World {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let networking = json!({
        "address": "192.168.0.2", "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }],
        "outbound": [{ "port": 10001, "tags": { "kuma.io/service": "redis" } }],
    });
    world.store(Kind::Dataplane, "default", "ruled", json!({ "networking": networking })).await;
    world
}

#[tokio::test]
async fn rules_by_tags_are_listed_by_the_name_of_the_cluster() {
    let world = ruled().await;
    let origins = json!([{ "mesh": "default", "name": "mtp-1" }]);
    let expect = json!({ "total": 3, "items": [
        { "type": "SingleItem", "policyType": "MeshProxyPatch", "conf": { "a": 1 }, "origins": origins },
        {
            "type": "DestinationSubset", "name": "redis", "addresses": ["127.0.0.1:10001"], "service": "redis",
            "tags": { "kuma.io/service": "redis" }, "policyType": "MeshTimeout",
            "subset": { "kuma.io/service": "redis" }, "conf": { "idleTimeout": "1s" }, "origins": origins,
        },
        {
            "type": "ClientSubset", "name": "web-e816eaf96a14245f", "addresses": ["192.168.0.2:80"],
            "service": "web", "tags": { "kuma.io/protocol": "http", "kuma.io/service": "web" },
            "policyType": "MeshTrafficPermission",
            "subset": { "kuma.io/service": "client", "kuma.io/zone": "!east" },
            "conf": { "action": "Deny" }, "origins": origins,
        },
    ] });
    let answer = world.get("/meshes/default/dataplanes/ruled/rules").await.expect(200);
    assert_eq!(answer.json(), expect);
    let none = world.get("/meshes/default/dataplanes/web/rules").await.expect(200).json();
    assert_eq!(none, json!({ "total": 0, "items": [] }));
}

#[tokio::test]
async fn the_policies_of_a_proxy_are_listed_by_kind_without_what_they_say() {
    let world = ruled().await;
    let answer = world.get("/meshes/default/dataplanes/web/policies").await.expect(200).json();
    let policy = json!({
        "type": "MeshTimeout", "mesh": "default", "name": "mine", "creationTime": "1970-01-01T00:00:00Z",
        "modificationTime": "1970-01-01T00:00:00Z", "kri": "kri_mt_default___mine_",
    });
    let item = json!({ "type": "dataplane", "matchedPolicies": { "MeshTimeout": [policy] } });
    assert_eq!(answer, json!({ "kind": "SidecarDataplane", "total": 1, "items": [item] }));
    for view in ["policies", "rules"] {
        let missing = world.get(&format!("/meshes/default/dataplanes/none/{view}")).await;
        missing.expect_problem(404, "Could not retrieve a resource", "Not found");
    }
}

#[tokio::test]
async fn the_proxies_of_a_policy_are_listed_and_those_of_none_are_none() {
    let world = ruled().await;
    world.store(Kind::MeshTimeout, "default", "mine", json!({})).await;
    let path = "/meshes/default/meshtimeouts/mine";
    let answer = world.get(&format!("{path}/dataplanes")).await.expect(200).json();
    let item = json!({
        "kind": "SidecarDataplane", "dataplane": { "mesh": "default", "name": "one" },
        "attachments": [{ "type": "dataplane" }],
    });
    assert_eq!((&answer["total"], &answer["items"][0]), (&json!(3), &item));
    let none = world.get("/meshes/default/meshtimeouts/none/dataplanes").await.expect(200).json();
    assert_eq!(none, json!({ "total": 0, "items": [] }));
    // Both spellings, and no `next` where there is none.
    let [one, other] = ["_resources", "-resources"].map(|resources| format!("{path}/{resources}/dataplanes"));
    let answer = world.get(&one).await.expect(200).json();
    assert_eq!(world.get(&other).await.expect(200).json(), answer);
    assert_eq!((answer["total"].as_u64(), answer.get("next")), (Some(3), None));
    assert!(world.get(&format!("{one}?size=2")).await.expect(200).json()["next"].is_string());
    let missing = world.get("/meshes/default/meshtimeouts/none/_resources/dataplanes").await;
    missing.expect_problem(404, "Could not retrieve policy", "Not found");
}
