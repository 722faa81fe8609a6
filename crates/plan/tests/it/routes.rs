//! Routes of traffic.

use plan::{ProxyPlan, ProxyTraits, Route, RouteAction, RouteFilter, Routing};
use resources::kinds::mesh_http_route::PathMatch;

use crate::{
    findings::texts,
    planned::{Planned, planned},
    support::{traits, unified},
};

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }";

const OTHERS: &str = r#"
type: MeshService
mesh: default
name: next
labels: { kuma.io/zone: east, version: v2 }
spec:
  selector: { dataplaneTags: { kuma.io/service: next } }
  ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http }]
---
type: MeshExternalService
mesh: default
name: outside
labels: { kuma.io/zone: east }
spec:
  match: { type: HostnameGenerator, port: 443, protocol: http }
  endpoints: [{ address: example.com, port: 443 }]
"#;

/// A route in the zone of the services, because names mean what is beside the policy.
fn route(kind: &str, name: &str, target: &str, rules: &str) -> String {
    format!(
        "type: {kind}\nmesh: default\nname: {name}\nlabels: {{ kuma.io/zone: east }}\n\
         spec: {{ to: [{{ targetRef: {{ kind: MeshService, name: backend{target} }}, rules: [{rules}] }}] }}"
    )
}

fn http_route(name: &str, rules: &str) -> String {
    route("MeshHTTPRoute", name, ", sectionName: http", rules)
}

fn caller() -> Planned {
    planned().backend().with(&[OTHERS]).web(CALLS)
}

fn requests(plan: &ProxyPlan, outbound: usize) -> &[Route] {
    match &plan.outgoing.outbounds[outbound].routing {
        Routing::Requests(routes) => routes,
        Routing::Connections(shares) => panic!("connections are spread over {shares:?}"),
    }
}

/// `path -> cluster*weight …` for each route.
fn shown(routes: &[Route]) -> Vec<String> {
    routes
        .iter()
        .map(|route| {
            let PathMatch { value, .. } = route.matched.path.as_ref().unwrap();
            let RouteAction::Forward(shares) = &route.action else { return format!("{value} redirected") };
            let shares: Vec<_> = shares.iter().map(|s| format!("{}*{}", s.cluster, s.weight)).collect();
            format!("{value} -> {}", shares.join(" "))
        })
        .collect()
}

const TO_NEXT: &str = "default: { backendRefs: [{ kind: MeshService, name: next, port: 80 }] }";

#[test]
fn without_routes_everything_goes_to_the_destination() {
    let plan = caller().plan();
    assert_eq!(shown(requests(&plan, 0)), ["/ -> default_backend__east_msvc_80*1"]);
    assert_eq!(requests(&plan, 0)[0].name, "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=");
    let Routing::Connections(shares) = &plan.outgoing.outbounds[1].routing else {
        panic!("TCP has no requests")
    };
    assert_eq!(shares[0].cluster, "default_backend__east_msvc_9000");
}

#[test]
fn the_most_specific_match_is_first_and_the_rest_to_the_destination() {
    let path = |kind: &str, value: &str| format!("{{ path: {{ type: {kind}, value: {value} }} }}");
    let matches = [
        path("RegularExpression", "/re.*"),
        "{ headers: [{ name: x, value: y }] }".to_owned(),
        path("PathPrefix", "/a"),
        path("PathPrefix", "/a/long"),
        "{ path: { type: PathPrefix, value: /a }, method: GET }".to_owned(),
        "{ path: { type: PathPrefix, value: /a }, headers: [{ name: x, value: y }] }".to_owned(),
        "{ path: { type: PathPrefix, value: /a }, queryParams: [{ type: Exact, name: x, value: y }] }"
            .to_owned(),
        path("Exact", "/exact"),
    ];
    let policy = http_route("r", &format!("{{ matches: [{}], {TO_NEXT} }}", matches.join(", ")));
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    let order: Vec<String> = requests(&plan, 0)
        .iter()
        .map(|route| {
            let m = &route.matched;
            let conditions = [
                m.method.as_ref().map(|_| "method"),
                m.headers.as_ref().map(|_| "header"),
                m.query_params.as_ref().map(|_| "parameter"),
            ];
            let conditions: Vec<&str> = conditions.into_iter().flatten().collect();
            format!("{} {}", m.path.as_ref().unwrap().value, conditions.join(" ")).trim().to_owned()
        })
        .collect();
    assert_eq!(
        order,
        ["/exact", "/a/long", "/a method", "/a header", "/a parameter", "/a", "/re.*", "/ header", "/"]
    );
    let last = requests(&plan, 0).last().unwrap();
    assert_eq!(last.origin, None);
}

#[test]
fn a_route_has_the_name_of_the_policy_that_has_the_last_word() {
    let rule =
        |path: &str| format!("{{ matches: [{{ path: {{ type: Exact, value: {path} }} }}], {TO_NEXT} }}");
    let first = http_route("a-first", &rule("/both"));
    let second = http_route("b-second", &format!("{}, {}", rule("/both"), rule("/own")));
    let names = |traits: &ProxyTraits| -> Vec<String> {
        requests(&caller().with(&[&first, &second]).traits(traits).plan(), 0)
            .iter()
            .map(|route| route.name.clone())
            .collect()
    };
    let default = "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=";
    assert_eq!(
        names(&unified("web")),
        ["kri_mhttpr_default_east__a-first_rule_0", "kri_mhttpr_default_east__b-second_rule_0", default]
    );
    assert_eq!(
        names(&traits("web")),
        ["kri_mhttpr_default_east__a-first_", "kri_mhttpr_default_east__b-second_", default]
    );
}

#[test]
fn a_route_is_named_by_the_entry_of_the_policy_it_comes_from() {
    let entry = |section: &str, path: &str| {
        let target = format!("{{ kind: MeshService, name: {section} }}");
        let rule = format!("{{ matches: [{{ path: {{ type: Exact, value: {path} }} }}], {TO_NEXT} }}");
        format!("{{ targetRef: {target}, rules: [{rule}] }}")
    };
    let entries = [entry("next", "/elsewhere"), entry("backend, sectionName: http", "/here")].join(", ");
    let policy = format!(
        "type: MeshHTTPRoute\nmesh: default\nname: r\nlabels: {{ kuma.io/zone: east }}\nspec: {{ to: [{entries}] }}"
    );
    for (traits, name) in [
        (unified("web"), "kri_mhttpr_default_east__r_rule_1"),
        (traits("web"), "kri_mhttpr_default_east__r_"),
    ] {
        let plan = caller().with(&[&policy]).traits(&traits).plan();
        let route = &requests(&plan, 0)[0];
        assert_eq!(
            (route.matched.path.as_ref().unwrap().value.as_str(), route.name.as_str()),
            ("/here", name)
        );
    }
}

#[test]
fn traffic_is_split_by_weight_over_backends_that_become_part_of_the_plan() {
    let policy = http_route(
        "split",
        "{ matches: [{ path: { type: PathPrefix, value: / } }], default: { backendRefs: [\
         { kind: MeshService, name: backend, port: 80, weight: 90 }, \
         { kind: MeshService, labels: { version: v2 }, port: 80, weight: 9 }, \
         { kind: MeshExternalService, name: outside, weight: 1 }, \
         { kind: MeshService, name: next, sectionName: http, weight: 0 }] } }",
    );
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    assert_eq!(plan.findings(), []);
    assert_eq!(
        shown(requests(&plan, 0)),
        ["/ -> kri_msvc_default_east__backend_http*90 kri_msvc_default_east__next_http*9 \
          kri_extsvc_default_east__outside_443*1"]
    );
    let used: Vec<String> = plan.outgoing.backends.iter().map(|backend| backend.cluster.clone()).collect();
    assert_eq!(
        used,
        [
            "kri_extsvc_default_east__outside_443",
            "kri_msvc_default_east__backend_9000",
            "kri_msvc_default_east__backend_http",
            "kri_msvc_default_east__next_http",
        ]
    );
}

#[test]
fn a_rule_without_backends_that_can_be_called_is_left_out_and_named() {
    let policy = http_route(
        "bad",
        "{ matches: [{ path: { type: Exact, value: /x } }], default: { backendRefs: [\
         { kind: MeshService, name: nobody, port: 80 }, { kind: MeshMultiZoneService, name: nobody, port: 80 }] } }",
    );
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    assert_eq!(shown(requests(&plan, 0)), ["/ -> kri_msvc_default_east__backend_http*1"]);
    let rule = "kri_mhttpr_default_east__bad_rule_0";
    assert_eq!(
        texts(&plan.findings()),
        [
            format!("{rule}: there is no MeshService with name \"nobody\" and port 80 in the mesh"),
            format!("{rule}: there is no MeshMultiZoneService with name \"nobody\" and port 80 in the mesh"),
            format!("{rule}: none of its backends can be called; the rule is left out"),
        ]
    );
}

#[test]
fn what_a_rule_for_everything_cannot_take_goes_to_the_destination() {
    let policy = http_route(
        "gone",
        "{ matches: [{ path: { type: PathPrefix, value: / } }], default: { backendRefs: [\
         { kind: MeshService, name: nobody, port: 80 }] } }",
    );
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    assert_eq!(shown(requests(&plan, 0)), ["/ -> kri_msvc_default_east__backend_http*1"]);
}

#[test]
fn weights_that_are_too_large_keep_their_proportions() {
    let policy = http_route(
        "heavy",
        "{ matches: [{ path: { type: PathPrefix, value: / } }], default: { backendRefs: [\
         { kind: MeshService, name: backend, port: 80, weight: 4294967295 }, \
         { kind: MeshService, name: next, port: 80, weight: 2147483646 }, \
         { kind: MeshExternalService, name: outside, weight: 1 }] } }",
    );
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    let RouteAction::Forward(shares) = &requests(&plan, 0)[0].action else { panic!("{plan:?}") };
    let weights: Vec<u32> = shares.iter().map(|share| share.weight).collect();
    assert_eq!(weights, [2147483647, 1073741823, 1]);
}

#[test]
fn a_rule_may_redirect_mirror_and_change_requests() {
    let policy = http_route(
        "filters",
        "{ matches: [{ path: { type: Exact, value: /gone } }], default: { filters: [\
           { type: RequestRedirect, requestRedirect: { hostname: other.example.com } }] } }, \
         { matches: [{ path: { type: Exact, value: /copied } }], default: { filters: [\
           { type: RequestMirror, requestMirror: { percentage: '12.5', backendRef: { kind: MeshService, name: next, port: 80 } } }, \
           { type: URLRewrite, urlRewrite: { hostname: other.example.com } }] } }",
    );
    let plan = caller().with(&[&policy]).traits(&unified("web")).plan();
    let routes = requests(&plan, 0);
    assert!(matches!(&routes[0].action, RouteAction::Redirect(to) if to.status_code == Some(302)));
    let [RouteFilter::Mirror { cluster, millionths }, RouteFilter::Url(_)] = &routes[1].changes[..] else {
        panic!("{:?}", routes[1].changes)
    };
    assert_eq!((cluster.as_str(), *millionths), ("kri_msvc_default_east__next_http", 125_000));
    assert_eq!(shown(&routes[1..2]), ["/copied -> kri_msvc_default_east__backend_http*1"]);
}

fn connections(policies: &[&str], outbound: usize) -> Option<Vec<String>> {
    match &caller().with(policies).traits(&unified("web")).plan().outgoing.outbounds[outbound].routing {
        Routing::Connections(shares) => {
            Some(shares.iter().map(|share| format!("{}*{}", share.cluster, share.weight)).collect())
        }
        Routing::Requests(_) => None,
    }
}

#[test]
fn connections_are_spread_unless_a_route_is_about_requests() {
    let spread = "{ default: { backendRefs: [{ kind: MeshService, name: next, port: 80, weight: 3 }, \
                  { kind: MeshService, name: backend, port: 9000 }] } }";
    let tcp = route("MeshTCPRoute", "spread", "", spread);
    let http =
        http_route("r", &format!("{{ matches: [{{ path: {{ type: Exact, value: /x }} }}], {TO_NEXT} }}"));
    let expected = ["kri_msvc_default_east__next_http*3", "kri_msvc_default_east__backend_9000*1"];
    assert_eq!(connections(&[&tcp], 1).unwrap(), expected);
    // The port speaks HTTP, but no policy distinguishes requests.
    assert_eq!(connections(&[&tcp], 0).unwrap(), expected);
    assert_eq!(connections(&[&tcp, &http], 0), None);
    let itself = route("MeshTCPRoute", "itself", ", sectionName: '9000'", "");
    assert_eq!(connections(&[&itself], 1).unwrap(), ["kri_msvc_default_east__backend_9000*1"]);
}

#[test]
fn a_route_for_requests_means_nothing_to_connections() {
    let policy = route(
        "MeshHTTPRoute",
        "r",
        "",
        &format!("{{ matches: [{{ path: {{ type: PathPrefix, value: / }} }}], {TO_NEXT} }}"),
    );
    assert_eq!(connections(&[&policy], 1).unwrap(), ["kri_msvc_default_east__backend_9000*1"]);
    assert_eq!(connections(&[&policy], 0), None);
}
