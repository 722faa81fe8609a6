//! An egress stands for several zones: one that is lost takes no other one along.

use e2e::{eventually, service::call};
use serde_json::{Value, json};

use super::{EVERYWHERE, answered_by_all, balanced, everywhere, routed};
use crate::federated::{Federation, by_name};

/// Connections are made anew all the time.
fn short() -> Value {
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"http": {"maxConnectionDuration": "20ms"}}}]);
    json!({"type": "MeshTimeout", "mesh": "default", "name": "short", "spec": {"to": to}})
}

/// One failure is enough to call an endpoint no more, also if none is left.
fn strict() -> Value {
    let detection = json!({"interval": "1s", "baseEjectionTime": "60s", "maxEjectionPercent": 100,
        "healthyPanicThreshold": 0, "detectors": {"totalFailures": {"consecutive": 1}}});
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"outlierDetection": detection}}]);
    json!({"type": "MeshCircuitBreaker", "mesh": "default", "name": "strict", "spec": {"to": to}})
}

#[test]
fn a_zone_that_is_lost_behind_an_egress_takes_no_other_one_along() {
    let federation = Federation::start(&["east", "north", "west"], true);
    let global = &federation.global;
    global.put("/meshes/default", &routed(&json!({"zoneEgress": true})));
    global.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
    let alike = balanced(&json!({"disabled": true}));
    global.put("/meshes/default/meshloadbalancingstrategies/balance", &alike);
    global.put("/meshes/default/meshcircuitbreakers/strict", &strict());
    global.put("/meshes/default/meshtimeouts/short", &short());
    let _backends =
        ["north", "west"].map(|zone| federation.serve(zone, &format!("backend-{zone}"), "backend"));
    let (_gate, _) = federation.ingress("west");
    let (lost, _) = federation.ingress("north");
    let exit = federation.egress("east");
    let targets = [by_name("MeshMultiZoneService", "everywhere", 8080)];
    let (_web, address) = federation.client("east", "web", &targets);
    answered_by_all(address, 10001, &["backend-north", "backend-west"]);

    drop(lost);
    let failures = format!("cluster.{}.upstream_cx_connect_fail", EVERYWHERE.unified);
    eventually("the lost zone to be tried", || {
        let _ = call(address, 10001);
        exit.stat(&failures).is_ok_and(|count| count > 0)
    })
    .unwrap();
    answered_by_all(address, 10001, &["backend-west"]);
}
