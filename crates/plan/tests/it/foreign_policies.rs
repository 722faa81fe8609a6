//! Policies of producers in other zones are about services of those zones, whatever tags services have here.

use plan::{Action, ProxyPlan, Routing};

use crate::support::{BACKEND, PLAIN, mesh_in, traits, web};

/// A service of this zone that is known by its tags only.
const SHOP: &str = r#"
type: Dataplane
mesh: default
name: shop
networking:
  address: 127.0.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: shop, kuma.io/protocol: http } }]
"#;
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
    let web = web(CALLS);
    let documents: Vec<&str> =
        [PLAIN, BACKEND, SHOP].into_iter().chain(policies.iter().copied()).chain([web.as_str()]).collect();
    plan::for_proxy(&mesh_in("east", &documents), &traits("web")).unwrap()
}

fn clusters(plan: &ProxyPlan) -> Vec<&str> {
    match &plan.outbounds[0].routing {
        Routing::Connections(shares) => shares.iter().map(|share| share.cluster.as_str()).collect(),
        Routing::Requests(routes) => match &routes[0].action {
            Action::Forward(shares) => shares.iter().map(|share| share.cluster.as_str()).collect(),
            Action::Redirect(_) => vec!["redirect"],
        },
    }
}

#[test]
fn a_tag_that_two_zones_use_is_no_reason_to_obey_the_other_zone() {
    let entry = "{ targetRef: { kind: MeshService, name: shop }, default: { connectionTimeout: 17s } }";
    let seconds = |zone: &str| {
        let plan = planned(&[&of_producer("MeshTimeout", zone, entry)]);
        plan.backends[0].timeouts.connect.as_secs()
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
fn a_route_of_another_zone_to_its_own_service_does_not_lead_to_tags_of_this_one() {
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
    let documents = [PLAIN, BACKEND, SHOP, service, &route, &web];
    let plan = plan::for_proxy(&mesh_in("east", &documents), &traits("web")).unwrap();
    assert!(!clusters(&plan).contains(&"shop"), "{:?}", plan.outbounds);
    assert!(plan.problems.iter().any(|problem| problem.text.contains("none of its backends")), "{plan:?}");
}
