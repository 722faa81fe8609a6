//! Localities of endpoints, with and without a MeshLoadBalancingStrategy.

use serde_json::{Value, json};
use testkit::zones;
use xds::Type;

use crate::{
    support::{SECURED, unified},
    view::{shown, target},
};

/// The client.
const WEB: &str = r#"
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.2
  inbound: [{ port: 80, tags: { kuma.io/service: web, node: n1, rack: r1, region: west } }]
  outbound: [{ port: 10001, backendRef: { kind: MeshMultiZoneService, name: all, port: 80 } }]
"#;

fn near(address: &str, tags: &str) -> String {
    format!(
        "type: Dataplane\nmesh: default\nname: {address}\nnetworking: {{ address: {address}, inbound: [{{ port: 8080, \
         tags: {{ kuma.io/service: backend{tags} }} }}] }}"
    )
}

/// Groups of endpoints: zone, part of the zone, weight, priority, addresses; and the factor of overprovisioning.
fn groups(locality: &str) -> (Vec<Value>, Value) {
    let policy = format!(
        "type: MeshLoadBalancingStrategy\nmesh: default\nname: p\nspec: {{ targetRef: {{ kind: Mesh }}, to: [{{ \
         targetRef: {{ kind: MeshMultiZoneService, name: all }}, default: {{ localityAwareness: {locality} }} }}] }}"
    );
    let all = [
        near("10.0.0.1", ", node: n1, rack: r1, region: west"),
        near("10.0.0.2", ", node: n2, rack: r1, region: west"),
        near("10.0.0.3", ", node: n3, rack: r2, region: west"),
        near("10.0.0.4", ", node: n4, rack: r3, region: east"),
        zones::remote("north", "10.8.0.1"),
        zones::remote("south", "10.9.0.1"),
        policy,
    ];
    let documents: Vec<&str> =
        [SECURED, zones::ALL, WEB].into_iter().chain(all.iter().map(String::as_str)).collect();
    let endpoints = shown(&target(&documents, &unified("web")), Type::Endpoint, "kri_mzsvc_default___all_80");
    let address = |endpoint: &Value| endpoint["endpoint"]["address"]["socketAddress"]["address"].clone();
    let group = |group: &Value| {
        let addresses: Vec<Value> = group["lbEndpoints"].as_array().unwrap().iter().map(address).collect();
        let part = &group["locality"];
        json!([part["zone"], part["subZone"], group["loadBalancingWeight"], group["priority"], addresses])
    };
    let found = endpoints["endpoints"].as_array().into_iter().flatten().map(group).collect();
    (found, endpoints["policy"]["overprovisioningFactor"].clone())
}

#[test]
fn instances_like_the_client_get_a_multiple_of_the_traffic_of_others() {
    let like =
        |value: &str, weight: u32, address: &str| json!([Value::Null, value, weight, Value::Null, [address]]);
    let tags = |weights: [&str; 3]| {
        let [node, rack, region] = weights;
        format!(
            "{{ localZone: {{ affinityTags: [{{ key: node{node} }}, {{ key: rack{rack} }}, {{ key: region{region} }}] }} }}"
        )
    };
    let rest = json!([Value::Null, Value::Null, 1, Value::Null, ["10.0.0.4"]]);
    let (found, factor) = groups(&tags(["", "", ""]));
    let expected = [
        rest.clone(),
        like("node=n1", 900, "10.0.0.1"),
        like("rack=r1", 90, "10.0.0.2"),
        like("region=west", 9, "10.0.0.3"),
    ];
    assert_eq!((sorted(found), factor), (sorted(expected.to_vec()), json!(200)));
    let (found, _) = groups(&tags([", weight: 50", ", weight: 30", ", weight: 20"]));
    let expected = [
        rest,
        like("node=n1", 50, "10.0.0.1"),
        like("rack=r1", 30, "10.0.0.2"),
        like("region=west", 20, "10.0.0.3"),
    ];
    assert_eq!(sorted(found), sorted(expected.to_vec()));
}

#[test]
fn zones_have_the_priority_of_their_rule_without_gaps() {
    let zone = |zone: Value, priority: Value, addresses: &[&str]| {
        json!([zone, Value::Null, Value::Null, priority, addresses])
    };
    let own = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let failover = |rules: &str, more: &str| format!("{{ crossZone: {{ failover: [{rules}]{more} }} }}");
    let first_south = "{ from: { zones: [other] }, to: { type: None } }, { to: { type: Only, zones: [south] } }, \
                       { to: { type: Any } }";
    assert_eq!(
        groups(&failover(first_south, ", failoverThreshold: { percentage: 30 }")),
        (
            vec![
                zone(Value::Null, Value::Null, &own),
                zone(json!("south"), json!(1), &["10.9.0.1"]),
                zone(json!("north"), json!(2), &["10.8.0.1"]),
            ],
            json!(300)
        )
    );
    assert_eq!(
        groups("{ disabled: true }"),
        (
            vec![
                zone(Value::Null, Value::Null, &own),
                zone(json!("north"), Value::Null, &["10.8.0.1"]),
                zone(json!("south"), Value::Null, &["10.9.0.1"]),
            ],
            Value::Null
        )
    );
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(Value::to_string);
    values
}
