//! Health checks of endpoints, and the choice of the next one.

use plan::{Applying, Calls, Class, Code, Dependency, ProxyPlan, Routing};
use resources::{Kind, kinds::mesh_load_balancing_strategy::LoadBalancerType};
use testkit::body::yaml_to_all;

use crate::{
    findings::texts,
    planned::{Planned, planned},
    support::{BACKEND, PLAIN, mesh, traits, web},
};

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend } }";

fn caller() -> Planned {
    planned().backend().web(CALLS)
}

#[test]
fn a_destination_that_a_policy_cannot_check_is_named() {
    let plan = caller().with(&[&yaml_to_all("MeshHealthCheck", "{ tcp: {} }")]).plan();
    assert_eq!(
        texts(&plan.findings()),
        [
            "kri_mhc_default___p_: endpoints of default_backend__east_msvc_80 are not checked: it speaks http, and the \
          policy checks tcp only"
        ]
    );
    let about = plan.findings()[0].about.as_ref().map(ToString::to_string);
    assert_eq!(
        (plan.findings()[0].code, about.as_deref()),
        (Code::UncheckedDestination, Some("kri_mhc_default___p_"))
    );
    let checked = |plan: &ProxyPlan| -> Vec<bool> {
        let checks = plan.outgoing.backends.iter().map(|backend| backend.health.as_ref());
        checks.map(|checks| checks.is_some_and(|checks| checks.probe.is_some())).collect()
    };
    assert_eq!(checked(&plan), [true, false, true], "only port 80 speaks http");
    for fine in ["{ http: {} }", "{ http: { disabled: true }, tcp: {} }", "{ http: {}, tcp: {} }"] {
        assert_eq!(caller().with(&[&yaml_to_all("MeshHealthCheck", fine)]).plan().findings(), [], "{fine}");
    }
}

#[test]
fn an_algorithm_and_its_hashes_are_planned_beside_zone_preferences() {
    let conf = "{ localityAwareness: { localZone: {} }, loadBalancer: { type: Maglev }, \
        hashPolicies: [{ type: Header, header: { name: x } }] }";
    let plan = caller().with(&[&yaml_to_all("MeshLoadBalancingStrategy", conf)]).plan();
    assert_eq!(plan.findings(), []);
    assert!(plan.outgoing.backends.iter().all(|backend| backend.locality.is_some()));
    for backend in &plan.outgoing.backends {
        assert_eq!(backend.balancer.as_ref().unwrap().type_, LoadBalancerType::Maglev);
    }
    for outbound in &plan.outgoing.outbounds {
        let hashed = match &outbound.routing {
            Routing::Requests(routes) => routes[0].hashed.len(),
            Routing::Connections(_) => outbound.hashed.len(),
        };
        assert_eq!(hashed, 1, "{}", outbound.port);
    }
    let off = caller()
        .with(&[&yaml_to_all("MeshLoadBalancingStrategy", "{ localityAwareness: { disabled: true } }")])
        .plan();
    assert_eq!(off.findings(), []);
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
        let plan = caller().with(&[&policy(target)]).plan();
        assert_eq!(texts(&plan.findings()), waits_for(expected), "{target}");
        let connect = plan.outgoing.backends.iter().any(|backend| backend.timeouts.connect.as_secs() == 7);
        assert_eq!(connect, expected.is_empty(), "{target}");
    }
    // A service that is known by its tag is known.
    let by_tag = policy("kind: MeshService, name: backend").replace("kuma.io/zone: east", "a: b");
    assert_eq!(caller().with(&[&by_tag]).plan().findings(), []);
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
