//! Policies in effect for destinations that are known by their tags only.

use resources::Kind;
use serde_json::{Value, json};

use super::{dp, meta, policy, rules, world};
use crate::world::{mesh, resource};

fn to(target: Value, default: Value) -> Value {
    json!({ "targetRef": target, "default": default })
}

#[tokio::test]
async fn destinations_by_tags_have_rules_where_services_are_not_all_resources() {
    let networking = json!({
        "address": "127.0.0.1",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }],
        "outbound": [{ "port": 10_001, "tags": { "kuma.io/service": "old" } }],
    });
    let entries = json!([
        to(json!({ "kind": "Mesh" }), json!({ "idleTimeout": "9s" })),
        to(json!({ "kind": "MeshService", "name": "old" }), json!({ "connectionTimeout": "1s" })),
    ]);
    let inspected = world([
        resource(dp(), &[], json!({ "networking": networking })),
        policy(Kind::MeshTimeout, "slow", json!({ "to": entries })),
    ])
    .await;
    assert_eq!(rules(&inspected).await["rules"][0]["toRules"], json!([]));
    inspected.world.put([mesh("default", "")]).await;
    let expect = json!([{
        "conf": { "idleTimeout": "9s", "connectionTimeout": "1s" },
        "matchers": [{ "key": "kuma.io/service", "not": false, "value": "old" }],
        "origin": [meta("MeshTimeout", "slow")],
    }]);
    assert_eq!(rules(&inspected).await["rules"][0]["toRules"], expect);
}

#[tokio::test]
async fn requests_of_a_policys_route_are_known_by_the_hash_of_its_matches() {
    let networking = json!({ "address": "10.0.0.1",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "old", "kuma.io/protocol": "http" } }],
        "outbound": [{ "port": 10, "tags": { "kuma.io/service": "old" } }] });
    let conf = |request: &str| json!({ "http": { "requestTimeout": request } });
    let to_all = |request: &str| json!([to(json!({ "kind": "Mesh" }), conf(request))]);
    let rule = json!({ "matches": [{ "path": { "type": "PathPrefix", "value": "/v2" } }], "default": {} });
    let routed =
        json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": "old" }, "rules": [rule] }] });
    let top = json!({ "kind": "MeshHTTPRoute", "name": "r" });
    let inspected = world([
        resource(dp(), &[], json!({ "networking": networking })),
        policy(Kind::MeshHTTPRoute, "r", routed),
        policy(Kind::MeshTimeout, "all", json!({ "to": to_all("9s") })),
        policy(Kind::MeshTimeout, "of-route", json!({ "targetRef": top, "to": to_all("2s") })),
    ])
    .await;
    inspected.world.put([mesh("default", "")]).await;
    let found = rules(&inspected).await;
    let hash = &found["httpMatches"][0]["hash"];
    let timeouts = found["rules"].as_array().unwrap().iter().find(|of| of["type"] == "MeshTimeout").unwrap();
    let service = json!({ "key": "kuma.io/service", "not": false, "value": "old" });
    let expect = json!([
        {
            "conf": conf("2s"),
            "matchers": [{ "key": "__rule-matches-hash__", "not": false, "value": hash }, service],
            "origin": [meta("MeshTimeout", "all"), meta("MeshTimeout", "of-route")],
        },
        { "conf": conf("9s"), "matchers": [service], "origin": [meta("MeshTimeout", "all")] },
    ]);
    assert_eq!(timeouts["toRules"], expect);
}
