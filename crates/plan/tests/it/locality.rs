//! `localityAwareness` of a MeshLoadBalancingStrategy: who is called first, next and never.

use plan::Locality;
use testkit::zones;
use topology::Endpoint;

use crate::support::{SECURED, plan, unified};

/// The instances of `backend` in this zone; three other zones have an ingress each.
const INSTANCES: &str = r#"
type: Dataplane
mesh: default
name: near
networking: { address: 10.0.0.1, inbound: [{ port: 8080, tags: { kuma.io/service: backend, rack: r1, node: n1 } }] }
---
type: Dataplane
mesh: default
name: far
networking: { address: 10.0.0.2, inbound: [{ port: 8080, tags: { kuma.io/service: backend, rack: r1, node: n2 } }] }
"#;

const WEB: &str = r#"
type: Dataplane
mesh: default
name: web
labels: { rack: r1 }
networking:
  address: 127.0.0.2
  inbound: [{ port: 80, tags: { kuma.io/service: web, node: n1 } }]
  outbound: [{ port: 10001, backendRef: { kind: MeshMultiZoneService, name: all, port: 80 } }]
"#;

fn policy(conf: &str) -> String {
    format!(
        "type: MeshLoadBalancingStrategy\nmesh: default\nname: p\nspec:\n  targetRef: {{ kind: Mesh }}\n  to:\n\
         \x20   - targetRef: {{ kind: MeshMultiZoneService, name: all }}\n      default: {{ {conf} }}"
    )
}

/// Returns the endpoints as `web` sees them: address, priority, and its share if it has one.
fn seen(policy: &str) -> (Vec<String>, Option<u32>) {
    let remote = ["a", "b", "c"].map(|zone| zones::remote(zone, &format!("{zone}.example")));
    let plan = plan(
        &[SECURED, zones::ALL, INSTANCES, &remote[0], &remote[1], &remote[2], policy, WEB],
        &unified("web"),
    );
    assert_eq!(plan.findings(), []);
    let backend = &plan.outgoing.backends[0];
    let word = |endpoint: &Endpoint| {
        let Some(locality) = &backend.locality else {
            return Some(format!("{}@{}", endpoint.address, endpoint.priority));
        };
        let standing = locality.standing(endpoint)?;
        let share = standing.affinity.map(|affinity| format!("*{}", affinity.weight)).unwrap_or_default();
        Some(format!("{}@{}{share}", endpoint.address, standing.priority))
    };
    let words = backend.endpoints.0.iter().filter_map(word).collect();
    (words, backend.locality.as_deref().and_then(Locality::overprovisioning))
}

fn check(conf: &str, expected: &[&str], overprovisioning: Option<u32>) {
    let found = seen(&policy(conf));
    assert_eq!(found, (expected.iter().map(|&word| word.to_owned()).collect(), overprovisioning), "{conf}");
}

#[test]
fn the_own_zone_comes_first_unless_a_policy_says_otherwise() {
    let first = ["10.0.0.1@0", "10.0.0.2@0", "a.example@1", "b.example@1", "c.example@1"];
    assert_eq!(seen("").0, first);
    check("loadBalancer: { type: Random }", &first, None);
    check("localityAwareness: {}", &first, None);
    let all = ["10.0.0.1@0", "10.0.0.2@0", "a.example@0", "b.example@0", "c.example@0"];
    check("localityAwareness: { disabled: true }", &all, None);
}

#[test]
fn endpoints_of_the_own_zone_are_preferred_by_tags_of_the_client() {
    let tags = |weights: [&str; 2]| {
        let [node, rack] = weights;
        format!(
            "localityAwareness: {{ localZone: {{ affinityTags: [{{ key: node{node} }}, {{ key: rack{rack} }}, {{ key: none{node} }}] }} }}"
        )
    };
    // Other zones are not called: no rule lets traffic go there.
    check(&tags(["", ""]), &["10.0.0.1@0*900", "10.0.0.2@0*90"], Some(200));
    check(&tags([", weight: 7", ", weight: 3"]), &["10.0.0.1@0*7", "10.0.0.2@0*3"], Some(200));
}

#[test]
fn other_zones_follow_in_the_order_of_the_rules() {
    let failover = |rules: &str, more: &str| {
        format!("localityAwareness: {{ crossZone: {{ failover: [{rules}]{more} }} }}")
    };
    let own = ["10.0.0.1@0", "10.0.0.2@0"];
    let with = |others: &[&'static str]| [&own[..], others].concat();
    check(
        &failover("{ to: { type: Only, zones: [b] } }, { to: { type: Any } }", ""),
        &with(&["a.example@2", "b.example@1", "c.example@2"]),
        Some(200),
    );
    check(
        &failover("{ to: { type: AnyExcept, zones: [b] } }", ""),
        &with(&["a.example@1", "c.example@1"]),
        Some(200),
    );
    check(&failover("{ to: { type: None } }, { to: { type: Any } }", ""), &own, Some(200));
    // A rule for clients of another zone has no effect here, and keeps its place.
    let of_others = "{ from: { zones: [x] }, to: { type: Any } }, { to: { type: Only, zones: [c] } }";
    check(&failover(of_others, ""), &with(&["c.example@2"]), Some(200));
    let threshold = |percent: &str| format!(", failoverThreshold: {{ percentage: {percent} }}");
    check(
        &failover("{ to: { type: Any } }", &threshold("70")),
        &with(&["a.example@1", "b.example@1", "c.example@1"]),
        Some(100),
    );
    check(&failover("", &threshold("30")), &own, Some(300));
    check("localityAwareness: { crossZone: {} }", &own, Some(200));
}
