//! Routes of traffic to and from destinations that are known by their tags only.

use std::sync::Arc;

use plan::{
    Applying, Calls, Class, Code, Dependency, ProxyPlan, RouteAction, RouteFilter, Routing, meanings,
};
use topology::DestinationId;

use crate::{
    planned::{Planned, planned},
    shop::{SHOP, beside_shop},
    support::{mesh, traits, unified, web},
};

/// The part of the service `backend` with the tag `version: v1`, as the naming document hashes it.
const V1: &str = "backend-154693772bc47249";

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, tags: { kuma.io/service: shop } }";

fn route(kind: &str, target: &str, rule: &str) -> String {
    format!(
        "type: {kind}\nmesh: default\nname: r\nlabels: {{ kuma.io/zone: east }}\n\
         spec: {{ to: [{{ targetRef: {{ kind: MeshService, name: {target} }}, rules: [{rule}] }}] }}"
    )
}

const V2: &str = "matches: [{ path: { type: PathPrefix, value: /v2 } }]";

fn caller() -> Planned {
    planned().backend().with(&[SHOP]).web(CALLS)
}

/// `name: cluster*weight …` of the first route of an outbound, or of its connections.
fn shares(plan: &ProxyPlan, outbound: usize) -> String {
    let (name, shares) = match &plan.outgoing.outbounds[outbound].routing {
        Routing::Connections(shares) => ("connections", shares),
        Routing::Requests(routes) => match &routes[0].action {
            RouteAction::Forward(shares) => (routes[0].name.as_str(), shares),
            RouteAction::Redirect(_) => return "redirect".to_owned(),
        },
    };
    let shares: Vec<String> = shares.iter().map(|s| format!("{}*{}", s.cluster, s.weight)).collect();
    format!("{name}: {}", shares.join(" "))
}

#[test]
fn backends_and_mirrors_may_be_subsets_of_a_service_in_both_schemes() {
    let subset = "kind: MeshServiceSubset, name: backend, tags: { version: v1 }";
    // A service with several ports and none named is the one that tags tell.
    let policy = route(
        "MeshHTTPRoute",
        "backend, sectionName: http",
        &format!(
            "{{ {V2}, default: {{ backendRefs: [{{ {subset}, weight: 9 }}, {{ kind: MeshService, name: backend }}], \
             filters: [{{ type: RequestMirror, requestMirror: {{ backendRef: {{ {subset} }} }} }}] }} }}"
        ),
    );
    for (traits, name) in [
        (traits("web"), "kri_mhttpr_default_east__r_"),
        (unified("web"), "kri_mhttpr_default_east__r_rule_0"),
    ] {
        let plan = caller().with(&[&policy]).traits(&traits).plan();
        assert_eq!(plan.findings(), []);
        assert_eq!(shares(&plan, 0), format!("{name}: {V1}*9 backend*1"));
        let Routing::Requests(routes) = &plan.outgoing.outbounds[0].routing else { panic!("{plan:?}") };
        assert!(matches!(&routes[0].changes[..], [RouteFilter::Mirror { cluster, .. }] if cluster == V1));
        let part = plan.outgoing.backends.iter().find(|backend| backend.cluster == V1).unwrap();
        let endpoints: Vec<u32> = part.endpoints.0.iter().map(|endpoint| endpoint.port).collect();
        assert_eq!(endpoints, [8080], "only one of the inbounds has the tag");
    }
}

#[test]
fn a_service_that_is_a_resource_with_one_port_is_meant_before_its_tags() {
    let next = "type: MeshService\nmesh: default\nname: shop\nlabels: { kuma.io/zone: east }\nspec:\n\
        \x20 selector: { dataplaneTags: { kuma.io/service: shop } }\n  ports: [{ port: 80, targetPort: 8080 }]";
    let rule = format!("{{ {V2}, default: {{ backendRefs: [{{ kind: MeshService, name: shop }}] }} }}");
    let policy = route("MeshHTTPRoute", "backend, sectionName: http", &rule);
    let rule = "kri_mhttpr_default_east__r_rule_0";
    assert_eq!(
        shares(&caller().with(&[&policy]).traits(&unified("web")).plan(), 0),
        format!("{rule}: shop*1")
    );
    assert_eq!(
        shares(&caller().with(&[&policy, next]).traits(&unified("web")).plan(), 0),
        format!("{rule}: kri_msvc_default_east__shop_80*1")
    );
}

#[test]
fn routes_are_about_destinations_by_tags_too_and_named_by_what_they_match() {
    let rule = format!(
        "{{ {V2}, default: {{ backendRefs: [{{ kind: MeshServiceSubset, name: shop, tags: {{ version: v2 }} }}] }} }}"
    );
    let policy = route("MeshHTTPRoute", "shop", &rule);
    let timeout = "type: MeshTimeout\nmesh: default\nname: t\nspec: { to: [{ targetRef: { kind: MeshService, name: shop }, \
                   default: { http: { requestTimeout: 3s } } }] }";
    for traits in [traits("web"), unified("web")] {
        let plan = caller().with(&[&policy, timeout]).traits(&traits).plan();
        assert_eq!(plan.findings(), []);
        let Routing::Requests(routes) = &plan.outgoing.outbounds[1].routing else { panic!("{plan:?}") };
        let name = "KldmwZ+/l5tQEgy/2vn75jYPWeovQEMf2DhYYk/FCMI=";
        assert_eq!(shares(&plan, 1), format!("{name}: shop-cddfc82e02626fc6*1"));
        assert_eq!(routes[0].timeouts.request.as_secs(), 3);
        assert_eq!(routes[0].origin.as_ref().unwrap().to_string(), "kri_mhttpr_default_east__r_rule_0");
        assert_eq!((routes.len(), &routes[1].origin), (2, &None), "the rest goes to the service");
        let known = meanings(&plan, &"kri_dp_default_east__web_".parse().unwrap());
        let policy = known[name].kri.as_ref().unwrap().to_string();
        assert_eq!(policy, "kri_mhttpr_default_east__r_", "the name leads back to the policy");
    }
    let section = route("MeshHTTPRoute", "shop, sectionName: http", &rule);
    assert!(shares(&caller().with(&[&section]).plan(), 1).ends_with(": shop*1"), "tags have no ports");
}

#[test]
fn a_policy_of_a_route_is_for_its_requests_to_tags_too() {
    let of_route = |kind: &str, conf: &str| {
        format!(
            "type: {kind}\nmesh: default\nname: of-route\nlabels: {{ kuma.io/zone: east }}\n\
             spec: {{ targetRef: {{ kind: MeshHTTPRoute, name: r }}, to: [{{ targetRef: {{ kind: Mesh }}, default: {conf} }}] }}"
        )
    };
    let timeout = of_route("MeshTimeout", "{ http: { requestTimeout: 2s } }");
    let retry = of_route("MeshRetry", "{ http: { numRetries: 7 } }");
    let all = "type: MeshTimeout\nmesh: default\nname: all\nspec: { to: [{ targetRef: { kind: Mesh }, \
               default: { http: { requestTimeout: 9s, streamIdleTimeout: 8s } } }] }";
    let own = route("MeshHTTPRoute", "shop", &format!("{{ {V2}, default: {{}} }}"));
    let other = own.replace("name: r\n", "name: other\n").replace("/v2", "/v3");
    // By what is matched: seconds of a request and of a pause in it, and whether it is tried again.
    let treated = |policies: &[&str]| -> Vec<(String, u64, u64, bool)> {
        let plan = caller().with(policies).plan();
        assert_eq!(plan.findings(), []);
        let Routing::Requests(routes) = &plan.outgoing.outbounds[1].routing else { panic!("{plan:?}") };
        let treated = routes.iter().map(|route| {
            let path = route.matched.path.as_ref().unwrap().value.clone();
            let times = route.timeouts;
            (path, times.request.as_secs(), times.stream_idle.as_secs(), route.retry.is_some())
        });
        let mut treated: Vec<_> = treated.collect();
        treated.sort();
        treated
    };
    let expect = |of_all: [(u64, u64); 3], retried: bool| {
        let paths = ["/", "/v2", "/v3"].into_iter().zip(of_all).enumerate();
        paths.map(|(at, (path, (a, b)))| (path.to_owned(), a, b, retried && at == 1)).collect::<Vec<_>>()
    };
    assert_eq!(treated(&[&own, &other, &timeout, &retry]), expect([(0, 0), (2, 1800), (0, 0)], true));
    assert_eq!(treated(&[&own, &other, &timeout, all]), expect([(9, 8), (2, 8), (9, 8)], false));
    // It says nothing about a route to another service, whatever that one matches.
    let elsewhere = route("MeshHTTPRoute", "backend", &format!("{{ {V2}, default: {{}} }}"));
    let same = own.replace("name: r\n", "name: same\n");
    let found = treated(&[&elsewhere, &same, &timeout, &retry]);
    assert_eq!(found, [("/".to_owned(), 0, 0, false), ("/v2".to_owned(), 0, 0, false)]);
}

#[test]
fn connections_to_destinations_by_tags_are_spread() {
    let rule = "{ default: { backendRefs: [{ kind: MeshService, name: shop, weight: 3 }, \
                { kind: MeshServiceSubset, name: backend, tags: { version: v1 } }] } }";
    let plan = caller().with(&[&route("MeshTCPRoute", "shop", rule)]).plan();
    assert_eq!(shares(&plan, 1), format!("connections: shop*3 {V1}*1"));
}

#[test]
fn a_backend_that_no_dataplane_is_yet_is_a_problem_and_waited_for() {
    let rule = format!(
        "{{ {V2}, default: {{ backendRefs: [{{ kind: MeshService, name: later }}, \
         {{ kind: MeshServiceSubset, name: backend, tags: {{ version: v9 }} }}, \
         {{ kind: MeshServiceSubset, name: backend, tags: {{ version: v1 }} }}] }} }}"
    );
    let policy = route("MeshHTTPRoute", "backend, sectionName: http", &rule);
    let plan = caller().with(&[&policy]).plan();
    assert_eq!(shares(&plan, 0), format!("kri_mhttpr_default_east__r_: {V1}*1"), "the others get all of it");
    let origin = "kri_mhttpr_default_east__r_rule_0";
    let found: Vec<_> = plan.findings().iter().map(|finding| (finding.code, finding.text.clone())).collect();
    assert_eq!(
        found,
        [
            (
                Code::UnknownBackend,
                format!(
                    "{origin}: there is no MeshService with name \"later\" and exactly one port (name one with port) \
                     in the mesh, and no Dataplane with an inbound with tags {{\"kuma.io/service\": \"later\"}}"
                )
            ),
            (
                Code::UnknownBackend,
                format!(
                    "{origin}: there is no Dataplane with an inbound with tags \
                     {{\"kuma.io/service\": \"backend\", \"version\": \"v9\"}} in the mesh"
                )
            ),
        ]
    );
    let web = web(CALLS);
    let mesh = mesh(&beside_shop(&[&policy], &web));
    let dataplane = plan::dataplane(&mesh, &traits("web")).unwrap();
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let tags = [("kuma.io/service".to_owned(), "later".to_owned())].into();
    let later = Dependency::Destination(DestinationId::Tags(Arc::new(tags)));
    assert!(plan::outgoing(&mesh, &class).reads.contains("default", &later));
}
