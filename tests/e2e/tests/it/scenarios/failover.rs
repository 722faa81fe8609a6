//! In which order zones are called when instances stop.

use serde_json::json;

use super::{answered_by_all, balanced, everywhere};
use crate::federated::{Federation, by_name};

#[test]
fn zones_follow_each_other_in_the_order_of_the_policy_as_instances_stop() {
    let federation = Federation::start(&["east", "north", "west"], true);
    let serve = |zone: &str| federation.serve(zone, &format!("backend-{zone}"), "backend");
    let [east, west, _north] = ["east", "west", "north"].map(serve);
    let _gates = ["north", "west"].map(|zone| federation.ingress(zone));
    let (_web, at) = federation.client("east", "web", &[by_name("MeshMultiZoneService", "everywhere", 8080)]);
    federation.global.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
    let policy = "/meshes/default/meshloadbalancingstrategies/balance";
    // The first rule is for clients of another zone.
    let rules = json!([
        {"from": {"zones": ["west"]}, "to": {"type": "Any"}},
        {"to": {"type": "Only", "zones": ["west"]}},
        {"from": {"zones": ["east"]}, "to": {"type": "AnyExcept", "zones": ["west"]}}
    ]);
    federation.global.put(policy, &balanced(&json!({"crossZone": {"failover": rules}})));
    answered_by_all(at, 10001, &["backend-east"]);
    drop(east);
    answered_by_all(at, 10001, &["backend-west"]);
    drop(west);
    answered_by_all(at, 10001, &["backend-north"]);
    let _east = serve("east");
    answered_by_all(at, 10001, &["backend-east"]);
}
