//! Which endpoints are asked how they are, and which is called next.

use plan::{Applying, Calls, Class, Code, Dependency, ProxyPlan, Routing};
use resources::{Kind, kinds::mesh_load_balancing_strategy::LoadBalancerType};
use testkit::body::yaml_to_all;

use crate::{
    problems::texts,
    support::{BACKEND, PLAIN, mesh, plan, traits, web},
};

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend } }";

fn planned(policy: &str) -> ProxyPlan {
    plan(&[PLAIN, BACKEND, policy, &web(CALLS)], &traits("web"))
}

#[test]
fn a_destination_that_a_policy_cannot_check_is_named() {
    let plan = planned(&yaml_to_all("MeshHealthCheck", "{ tcp: {} }"));
    assert_eq!(
        texts(&plan.problems),
        [
            "kri_mhc_default___p_: endpoints of default_backend__east_msvc_80 are not checked: it speaks http, and the \
          policy checks tcp only"
        ]
    );
    let about = plan.problems[0].about.as_ref().map(ToString::to_string);
    assert_eq!(
        (plan.problems[0].code, about.as_deref()),
        (Code::UncheckedDestination, Some("kri_mhc_default___p_"))
    );
    let checked = |plan: &ProxyPlan| -> Vec<bool> {
        let checks = plan.backends.iter().map(|backend| backend.health.as_ref());
        checks.map(|checks| checks.is_some_and(|checks| checks.probe.is_some())).collect()
    };
    assert_eq!(checked(&plan), [true, false, true], "only port 80 speaks http");
    for fine in ["{ http: {} }", "{ http: { disabled: true }, tcp: {} }", "{ http: {}, tcp: {} }"] {
        assert_eq!(planned(&yaml_to_all("MeshHealthCheck", fine)).problems, [], "{fine}");
    }
}

#[test]
fn an_algorithm_and_what_it_hashes_are_planned_beside_preferences_between_zones() {
    let conf = "{ localityAwareness: { localZone: {} }, loadBalancer: { type: Maglev }, \
        hashPolicies: [{ type: Header, header: { name: x } }] }";
    let plan = planned(&yaml_to_all("MeshLoadBalancingStrategy", conf));
    assert_eq!(plan.problems, []);
    assert!(plan.backends.iter().all(|backend| backend.locality.is_some()));
    for backend in &plan.backends {
        assert_eq!(backend.balancer.as_ref().unwrap().type_, LoadBalancerType::Maglev);
    }
    for outbound in &plan.outbounds {
        let hashed = match &outbound.routing {
            Routing::Requests(routes) => routes[0].hashed.len(),
            Routing::Connections(_) => outbound.hashed.len(),
        };
        assert_eq!(hashed, 1, "{}", outbound.port);
    }
    let off = planned(&yaml_to_all("MeshLoadBalancingStrategy", "{ localityAwareness: { disabled: true } }"));
    assert_eq!(off.problems, []);
}

#[test]
fn an_entry_for_what_does_not_exist_is_named_and_waits_for_it() {
    let policy = |target: &str| {
        format!(
            "type: MeshTimeout\nmesh: default\nname: t\nlabels: {{ kuma.io/zone: east }}\n\
             spec: {{ to: [{{ targetRef: {{ {target} }}, default: {{ connectionTimeout: 7s }} }}] }}"
        )
    };
    let waits_for = |text: &str| match text {
        "" => Vec::new(),
        text => vec![format!("kri_mt_default_east__t_rule_0: there is no {text}")],
    };
    for (target, expected) in [
        ("kind: MeshService, name: gone", "MeshService \"gone\" in the zone and namespace of the policy"),
        (
            "kind: MeshService, name: backend, sectionName: gone",
            "MeshService \"backend\" with a port \"gone\" in the zone and namespace of the policy",
        ),
        (
            "kind: MeshService, labels: { team: gone }",
            "MeshService with labels {\"team\": \"gone\"} in the mesh",
        ),
        (
            "kind: MeshExternalService, name: gone",
            "MeshExternalService \"gone\" in the zone and namespace of the policy",
        ),
        ("kind: MeshHTTPRoute, name: gone", "MeshHTTPRoute \"gone\" in the zone and namespace of the policy"),
        ("kind: MeshService, name: backend", ""),
        ("kind: MeshService, labels: { team: shop }", ""),
        ("kind: Mesh", ""),
    ] {
        let plan = planned(&policy(target));
        assert_eq!(texts(&plan.problems), waits_for(expected), "{target}");
        let connect = plan.backends.iter().any(|backend| backend.timeouts.connect.as_secs() == 7);
        assert_eq!(connect, expected.is_empty(), "{target}");
    }
    // A service that is known by its tag is known.
    let by_tag = policy("kind: MeshService, name: backend").replace("kuma.io/zone: east", "a: b");
    assert_eq!(planned(&by_tag).problems, []);
}

#[test]
fn what_an_entry_waits_for_is_among_what_the_plan_was_made_from() {
    let policy = "type: MeshRetry\nmesh: default\nname: r\nlabels: { kuma.io/zone: east }\nspec:\n  to:\n\
        \x20 - { targetRef: { kind: MeshService, name: gone }, default: { tcp: { maxConnectAttempt: 1 } } }\n\
        \x20 - { targetRef: { kind: MeshService, labels: { team: gone } }, default: { tcp: { maxConnectAttempt: 1 } } }\n";
    let mesh = mesh(&[PLAIN, BACKEND, policy, &web(CALLS)]);
    let dataplane = mesh.dataplanes.get("web").unwrap();
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let reads = plan::outgoing(&mesh, &class).reads;
    let labels = [("team".to_owned(), "gone".to_owned())].into();
    for awaited in [
        Dependency::Resource("kri_msvc_default_east__gone_".parse().unwrap()),
        Dependency::Labelled(Kind::MeshService, labels),
    ] {
        assert!(reads.contains("default", &awaited), "{awaited:?} is not in {reads:?}");
    }
}
