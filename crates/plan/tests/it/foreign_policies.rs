//! Policies of producers in other zones are about services of those zones, whatever tags services have here.

use plan::{ProxyPlan, RouteAction, Routing};

use crate::{
    shop::beside_shop,
    support::{mesh_in, traits, web},
};

const CALLS: &str = "outbound: [{ port: 10002, tags: { kuma.io/service: shop } }]";

/// A policy of a producer in this zone or another one, as zone east stores it.
fn of_producer(kind: &str, zone: &str, entry: &str) -> String {
    let origin = if zone == "east" { "zone" } else { "global" };
    format!(
        "type: {kind}\nmesh: default\nname: p\nlabels: {{ kuma.io/zone: {zone}, kuma.io/origin: {origin}, \
         kuma.io/policy-role: producer }}\nspec: {{ to: [{entry}] }}"
    )
}

/// The plan of a client of `shop` in zone east.
fn planned(policies: &[&str]) -> ProxyPlan {
    plan::for_proxy(&mesh_in("east", &beside_shop(policies, &web(CALLS))), &traits("web")).unwrap()
}

fn clusters(plan: &ProxyPlan) -> Vec<&str> {
    match &plan.outgoing.outbounds[0].routing {
        Routing::Connections(shares) => shares.iter().map(|share| share.cluster.as_str()).collect(),
        Routing::Requests(routes) => match &routes[0].action {
            RouteAction::Forward(shares) => shares.iter().map(|share| share.cluster.as_str()).collect(),
            RouteAction::Redirect(_) => vec!["redirect"],
        },
    }
}

#[test]
fn a_tag_that_two_zones_use_is_no_reason_to_obey_the_other_zone() {
    let entry = "{ targetRef: { kind: MeshService, name: shop }, default: { connectionTimeout: 17s } }";
    let seconds = |zone: &str| {
        let plan = planned(&[&of_producer("MeshTimeout", zone, entry)]);
        plan.outgoing.backends[0].timeouts.connect.as_secs()
    };
    assert_eq!(seconds("east"), 17);
    assert_ne!(seconds("west"), 17);
}

#[test]
fn a_route_of_another_zone_leads_nowhere_by_tags() {
    let rule = "matches: [{ path: { type: PathPrefix, value: / } }], \
                default: { backendRefs: [{ kind: MeshService, name: backend }] }";
    let to = |name: &str| format!("{{ targetRef: {{ kind: MeshService, {name} }}, rules: [{{ {rule} }}] }}");
    let plan_with = |zone: &str| planned(&[&of_producer("MeshHTTPRoute", zone, &to("name: shop"))]);
    assert_eq!(clusters(&plan_with("east")), ["backend"]);
    assert_eq!(clusters(&plan_with("west")), ["shop"]);
}

#[test]
fn a_route_of_another_zone_does_not_lead_to_tags_of_this_one() {
    // `backend` is no MeshService of zone west, and a tag here.
    let service = "type: MeshService\nmesh: default\nname: kv-west\n\
        labels: { kuma.io/zone: west, kuma.io/origin: global, kuma.io/display-name: kv }\n\
        spec: { state: Available, ports: [{ port: 80, targetPort: 80, appProtocol: http }] }";
    let web = web("outbound: [{ port: 10002, backendRef: { kind: MeshService, \
                   labels: { kuma.io/display-name: kv }, port: 80 } }]");
    let entry = "{ targetRef: { kind: MeshService, name: kv }, rules: [{ \
                 matches: [{ path: { type: PathPrefix, value: / } }], \
                 default: { backendRefs: [{ kind: MeshService, name: shop }] } }] }";
    let route = of_producer("MeshHTTPRoute", "west", entry);
    let documents = beside_shop(&[service, &route], &web);
    let plan = plan::for_proxy(&mesh_in("east", &documents), &traits("web")).unwrap();
    assert!(!clusters(&plan).contains(&"shop"), "{:?}", plan.outgoing.outbounds);
    assert!(plan.findings().iter().any(|finding| finding.text.contains("none of its backends")), "{plan:?}");
}
