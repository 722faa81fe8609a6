//! Faults are shown as what holds for which clients.

use api::{Inspect, inspect::policies::PoliciesOf};
use resources::{Key, Kind};
use serde_json::{Value, json};

use super::{Inspected, layout::exclusive};
use crate::world::resource;

#[tokio::test]
async fn faults_are_listed_by_tags_and_by_identity() {
    let fault = |status: u32| json!({ "http": [{ "abort": { "httpStatus": status, "percentage": "2.5" } }] });
    let section = json!({ "kind": "Dataplane", "sectionName": "8080" });
    let tags = json!({ "kind": "MeshServiceSubset", "name": "web", "tags": { "version": "v1" } });
    let client = json!({ "spiffeID": { "type": "Prefix", "value": "spiffe://default/" } });
    let from = json!({ "targetRef": section, "from": [
        { "targetRef": { "kind": "Mesh" }, "default": fault(500) }, { "targetRef": tags, "default": fault(501) },
    ] });
    let by_identity =
        json!({ "targetRef": section, "rules": [{ "matches": [client], "default": fault(502) }] });
    let policy =
        |name: &str, spec: Value| resource(Key::new(Kind::MeshFaultInjection, "default", name), &[], spec);
    let proxy = Key::new(Kind::Dataplane, "default", "dp-1");
    let networking = json!({ "address": "127.0.0.1", "inbound": [
        { "port": 8080, "name": "main-port", "tags": { "kuma.io/service": "foo" } }, { "port": 9090 },
    ] });
    let dataplane = resource(proxy.clone(), &[], json!({ "networking": networking }));
    let inspected = Inspected::new().await;
    let policies = [policy("mfi-1", from), policy("mfi-2", by_identity)];
    inspected.world.put([exclusive("STRICT"), dataplane].into_iter().chain(policies)).await;
    let meta =
        |name: &str| json!({ "labels": {}, "mesh": "default", "name": name, "type": "MeshFaultInjection" });
    let matchers = json!([
        { "key": "kuma.io/service", "not": false, "value": "web" }, { "key": "version", "not": false, "value": "v1" },
    ]);
    let inbound = json!({ "name": "main-port", "port": 8080, "tags": { "kuma.io/service": "foo" } });
    let found = serde_json::to_value(inspected.proxies.rules(&proxy).await.unwrap()).unwrap();
    let of_kind = &found["rules"][0];
    let origin = json!([meta("mfi-1")]);
    assert_eq!(of_kind["type"], "MeshFaultInjection");
    assert_eq!(
        of_kind["fromRules"],
        json!([{ "inbound": inbound, "rules": [
            { "conf": fault(501), "matchers": matchers, "origin": origin },
            { "conf": fault(500), "matchers": [], "origin": origin },
        ] }])
    );
    let origin = json!([{ "resourceMeta": meta("mfi-2"), "ruleIndex": 0 }]);
    let rule = json!({ "conf": [fault(502)], "match": client, "origin": origin });
    assert_eq!(of_kind["inboundRules"], json!([{ "inbound": inbound, "rules": [rule] }]));
    let of = PoliciesOf::Inbound("kri_dp_default___dp-1_main-port".parse().unwrap());
    let found = serde_json::to_value(inspected.proxies.policies(&proxy, &of).await.unwrap()).unwrap();
    let of_kind = &found["policies"][0];
    let kris = [json!({ "kri": "kri_mfi_default___mfi-2_" }), json!({ "kri": "kri_mfi_default___mfi-1_" })];
    assert_eq!(of_kind["origins"], json!(kris));
    assert_eq!(of_kind["rules"].as_array().unwrap().len(), 3);
}
