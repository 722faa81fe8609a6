//! Timeouts of connections and requests.

use std::time::Duration;

use plan::{ClientTimeouts, ConnectionTimeouts, ProxyPlan, RequestTimeouts, Routing, Timeouts};
use policy::ClientMatch;

use crate::{
    planned::{Planned, planned},
    support::{BACKEND, PLAIN, SECURED, plan, traits, web},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, tags: { kuma.io/service: backend } }\n\
    inbound:\n\
    - { name: http, port: 80, tags: { kuma.io/service: web, kuma.io/protocol: http } }\n\
    - { name: grpc, port: 81, tags: { kuma.io/service: web, kuma.io/protocol: grpc } }";

/// Policy that every new mesh begins with.
const OF_NEW_MESH: &str = r#"
type: MeshTimeout
mesh: default
name: mesh-timeout-all-default
spec:
  targetRef: { kind: Mesh, proxyTypes: [Sidecar] }
  from: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 10s, idleTimeout: 2h, http: { requestTimeout: 0s, streamIdleTimeout: 1h, maxStreamDuration: 0s } } }]
  to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 5s, idleTimeout: 1h, http: { requestTimeout: 15s, streamIdleTimeout: 30m } } }]
---
type: MeshTimeout
mesh: default
name: mesh-gateways-timeout-all-default
spec:
  targetRef: { kind: Mesh, proxyTypes: [Gateway] }
  from: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 5m, http: { streamIdleTimeout: 5s, requestHeadersTimeout: 500ms } } }]
  to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 1h, http: { streamIdleTimeout: 5s } } }]
"#;

fn caller() -> Planned {
    planned().in_mesh(SECURED).backend().web(CALLS)
}

fn limited(connect: Duration, idle: Duration) -> ConnectionTimeouts {
    let none = Some(Duration::ZERO);
    ConnectionTimeouts { connect, idle, max_stream: none, max_connection: none }
}

fn routes(plan: &ProxyPlan, outbound: usize) -> Vec<RequestTimeouts> {
    let Routing::Requests(routes) = &plan.outgoing.outbounds[outbound].routing else { panic!("it is HTTP") };
    routes.iter().map(|route| route.timeouts).collect()
}

fn backend(plan: &ProxyPlan, cluster: &str) -> ConnectionTimeouts {
    plan.outgoing.backends.iter().find(|backend| backend.cluster == cluster).unwrap().timeouts
}

#[test]
fn without_a_policy_both_directions_get_the_same() {
    let plan = caller().flawless();
    let usual = RequestTimeouts { request: 15 * SECOND, stream_idle: HOUR / 2 };
    assert_eq!(
        plan.own.inbounds[0].timeouts,
        Timeouts { connection: limited(5 * SECOND, HOUR), request: usual, request_headers: Duration::ZERO }
    );
    assert_eq!(routes(&plan, 0), [usual]);
    assert_eq!(backend(&plan, "default_backend__east_msvc_80"), limited(5 * SECOND, HOUR));
}

#[test]
fn calls_by_tags_end_only_when_a_policy_says_so() {
    let web = web("outbound: [{ port: 10001, tags: { kuma.io/service: backend, version: v1 } }, \
         { port: 10002, tags: { kuma.io/service: backend } }]");
    let times = |request, stream_idle| RequestTimeouts { request, stream_idle };
    let endless = plan(&[PLAIN, BACKEND, &web], &traits("web"));
    assert_eq!(routes(&endless, 0), [times(Duration::ZERO, Duration::ZERO)]);
    assert_eq!(endless.outgoing.outbounds[1].idle, Duration::ZERO);
    assert_eq!(backend(&endless, "backend"), limited(5 * SECOND, HOUR));
    let ending = plan(&[PLAIN, BACKEND, OF_NEW_MESH, &web], &traits("web"));
    assert_eq!(routes(&ending, 0), [times(15 * SECOND, HOUR / 2)]);
    assert_eq!(ending.outgoing.outbounds[1].idle, HOUR);
}

#[test]
fn a_new_mesh_waits_longer_for_its_own_applications_than_for_others() {
    let plan = caller().with(&[OF_NEW_MESH]).flawless();
    assert_eq!(
        plan.own.inbounds[0].timeouts,
        Timeouts {
            connection: limited(10 * SECOND, 2 * HOUR),
            request: RequestTimeouts { request: Duration::ZERO, stream_idle: HOUR },
            request_headers: Duration::ZERO,
        }
    );
    assert_eq!(routes(&plan, 0), [RequestTimeouts { request: 15 * SECOND, stream_idle: HOUR / 2 }]);
    for cluster in ["default_backend__east_msvc_80", "backend"] {
        assert_eq!(backend(&plan, cluster), limited(5 * SECOND, HOUR), "{cluster}");
    }
}

#[test]
fn connections_of_grpc_may_rest_whatever_a_policy_says() {
    let policy = "type: MeshTimeout\nmesh: default\nname: t\n\
        spec: { rules: [{ default: { connectionTimeout: 3s, idleTimeout: 4s, http: { requestTimeout: 1s, maxStreamDuration: 9s } } }] }";
    let plan = caller().with(&[policy]).flawless();
    let inbound = plan.own.inbounds[1].timeouts;
    assert_eq!(
        inbound.connection,
        ConnectionTimeouts { connect: 3 * SECOND, idle: 2 * HOUR, max_stream: None, max_connection: None }
    );
    assert_eq!(inbound.request.request, SECOND);
    assert_eq!(plan.own.inbounds[0].timeouts.connection.idle, 4 * SECOND);
    assert_eq!(plan.own.inbounds[0].timeouts.connection.max_stream, Some(9 * SECOND));
}

#[test]
fn a_route_has_its_own_time_else_that_of_its_destination() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nlabels: { kuma.io/zone: east }\nspec:\n  to:\n\
        \x20 - { targetRef: { kind: Mesh }, default: { connectionTimeout: 10s, http: { requestTimeout: 5s, streamIdleTimeout: 43s } } }\n\
        \x20 - { targetRef: { kind: MeshService, name: backend }, default: { idleTimeout: 30s, http: { requestTimeout: 25s } } }\n\
        \x20 - { targetRef: { kind: MeshHTTPRoute, name: fast }, default: { http: { requestTimeout: 2s } } }\n";
    let plan = caller().with(&[&route("fast", "/fast"), &route("plain", "/plain"), timeouts]).flawless();
    let times = |seconds| RequestTimeouts { request: seconds * SECOND, stream_idle: 43 * SECOND };
    assert_eq!(routes(&plan, 0), [times(2), times(25), times(25)]);
    assert_eq!(backend(&plan, "default_backend__east_msvc_80"), limited(10 * SECOND, 30 * SECOND));
    // A policy that speaks of routes does not reach destinations known by tags only.
    assert_eq!(backend(&plan, "backend"), limited(5 * SECOND, HOUR));
}

/// A route with this path, in the zone of the service.
fn route(name: &str, path: &str) -> String {
    format!(
        "type: MeshHTTPRoute\nmesh: default\nname: {name}\nlabels: {{ kuma.io/zone: east }}\n\
         spec: {{ to: [{{ targetRef: {{ kind: MeshService, name: backend }}, rules: [\
         {{ matches: [{{ path: {{ type: Exact, value: {path} }} }}], default: {{}} }}] }}] }}"
    )
}

#[test]
fn a_route_without_a_timeout_of_its_own_has_that_of_its_service() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nlabels: { kuma.io/zone: east }\nspec:\n  to:\n\
        \x20 - { targetRef: { kind: MeshService, name: backend }, default: { http: { requestTimeout: 32s, streamIdleTimeout: 33s } } }\n\
        \x20 - { targetRef: { kind: Mesh }, default: { http: { requestTimeout: 42s, streamIdleTimeout: 43s } } }\n";
    let plan = caller().with(&[&route("r", "/test"), timeouts]).flawless();
    let times = RequestTimeouts { request: 32 * SECOND, stream_idle: 33 * SECOND };
    assert_eq!(routes(&plan, 0), [times, times]);
}

#[test]
fn a_policy_of_a_route_is_for_its_proxies_and_requests() {
    let top =
        "labels: { kuma.io/zone: east }\nspec:\n  targetRef: { kind: MeshHTTPRoute, name: fast }\n  to:";
    let policies = format!(
        "type: MeshTimeout\nmesh: default\nname: t\n{top} [{{ targetRef: {{ kind: Mesh }}, default: {{ http: {{ requestTimeout: 2s }} }} }}]\n\
         ---\ntype: MeshRetry\nmesh: default\nname: r\n{top} [{{ targetRef: {{ kind: Mesh }}, default: {{ http: {{ numRetries: 7 }} }} }}]"
    );
    let retried = |plan: &ProxyPlan| -> Vec<bool> {
        let Routing::Requests(routes) = &plan.outgoing.outbounds[0].routing else { panic!("it is HTTP") };
        routes.iter().map(|route| route.retry.is_some()).collect()
    };
    let times = |seconds| RequestTimeouts { request: seconds * SECOND, stream_idle: HOUR / 2 };
    let plan = caller().with(&[&route("fast", "/fast"), &route("plain", "/plain"), &policies]).flawless();
    assert_eq!(
        (routes(&plan, 0), retried(&plan)),
        (vec![times(2), times(15), times(15)], vec![true, false, false])
    );
    // It selects the proxies that the route selects, and that is another one now.
    let elsewhere = route("fast", "/fast")
        .replace("spec: { to:", "spec: { targetRef: { kind: Dataplane, name: backend }, to:");
    let plan = caller().with(&[&elsewhere, &route("plain", "/plain"), &policies]).flawless();
    assert_eq!((routes(&plan, 0), retried(&plan)), (vec![times(15); 2], vec![false; 2]));
    // Without the route it is for nothing.
    let plan = caller().with(&[&route("plain", "/plain"), &policies]).flawless();
    assert_eq!((routes(&plan, 0), retried(&plan)), (vec![times(15); 2], vec![false; 2]));
}

/// Returns the timeouts of each client in milliseconds, the most specific first; `others` at the end.
fn told_apart(rules: &str) -> Vec<(String, u128, u128)> {
    let policy = format!("type: MeshTimeout\nmesh: default\nname: t\nspec: {{ rules: [{rules}] }}");
    let inbound = caller().with(&[&policy]).flawless().own.inbounds.remove(0);
    let own = inbound.clients.into_iter().map(|ClientTimeouts { client, request }| (client, request));
    let told = own.chain([(ClientMatch::Anyone, inbound.timeouts.request)]);
    told.map(|(client, times)| (client.to_string(), times.request.as_millis(), times.stream_idle.as_millis()))
        .collect()
}

#[test]
fn certain_clients_get_what_is_said_about_them_and_otherwise_what_all_get() {
    let spiffe = |kind: &str, id: &str| {
        format!("matches: [{{ spiffeID: {{ type: {kind}, value: 'spiffe://default/{id}' }} }}]")
    };
    let found = told_apart(&format!(
        "{{ default: {{ http: {{ requestTimeout: 5s, streamIdleTimeout: 1s }} }} }}, \
         {{ {}, default: {{ http: {{ requestTimeout: 7s }} }} }}, \
         {{ {}, default: {{ http: {{ streamIdleTimeout: 4s }} }} }}, \
         {{ {}, default: {{ http: {{ requestTimeout: 2s, streamIdleTimeout: 3s }} }} }}",
        spiffe("Prefix", "ns/"),
        spiffe("Exact", "ns/stream"),
        spiffe("Exact", "client"),
    ));
    let expected = [
        // What a wider rule says about the same client counts too.
        ("spiffe://default/ns/stream", 7000, 4000),
        ("spiffe://default/client", 2000, 3000),
        ("identities starting with spiffe://default/ns/", 7000, 1000),
        ("anyone", 5000, 1000),
    ];
    assert_eq!(found, expected.map(|(client, request, idle)| (client.to_owned(), request, idle)));
}

#[test]
fn whoever_speaks_of_certain_clients_only_leaves_the_others_alone() {
    let found = told_apart(
        "{ matches: [{ sni: { type: Exact, value: web.mesh } }], default: { http: { requestTimeout: 2s } } }",
    );
    let hour = HOUR.as_millis();
    assert_eq!(
        found,
        [("clients asking for web.mesh".to_owned(), 2000, hour), ("anyone".to_owned(), 0, hour)]
    );
}
