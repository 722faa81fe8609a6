//! Effects of policies on an egress, and on its clients.

use std::sync::Arc;

use plan::{FilterChain, Impact, ZoneBackend, ZoneClass, ZonePlan, ZoneProxyKind};
use policy::{Client, Effect, Policy};
use resources::{Kind, naming::SpiffeId};
use testkit::body::yaml;
use topology::{Affected, Endpoint, PolicyChange};

use crate::{
    support::{BACKEND, SECURED, mesh, plan, unified, web},
    zone_proxies::{ABROAD, OUTSIDE, PROXIES},
};

/// The name by which clients dial `payments`, and another one that is accepted.
const DIALLED: &str = "ad55bfd9a68e03831.payments.443.default.mes";
const ACCEPTED: &str = "sni.extsvc.default.payments.443";

fn class() -> ZoneClass {
    ZoneClass {
        kind: ZoneProxyKind::Egress,
        unified_naming: true,
        ipv6: true,
        system_ca_path: Some("/ca".into()),
    }
}

fn zone_plan(documents: &[&str]) -> ZonePlan {
    class().plan(&mesh(&[&[OUTSIDE, ABROAD, PROXIES], documents].concat()))
}

fn chain(zone_plan: &ZonePlan, cluster: &str) -> FilterChain {
    zone_plan.filter_chains.iter().find(|chain| chain.cluster == cluster).unwrap().clone()
}

fn backend(zone_plan: &ZonePlan, cluster: &str) -> ZoneBackend {
    zone_plan.backends.iter().find(|backend| backend.cluster == cluster).unwrap().clone()
}

const PAYMENTS: &str = "kri_extsvc_default___payments_443";
const EVERYWHERE: &str = "kri_mzsvc_default___everywhere_http";

fn forbidding() -> String {
    SECURED.replace("mtls:", "routing: { defaultForbidMeshExternalServiceAccess: true }\nmtls:")
}

/// Returns the decisions about two clients: `web` and `cron`.
fn decided(mesh: &str, permission: &str) -> [Option<Effect>; 2] {
    let policy = yaml(Kind::MeshTrafficPermission, "sample", permission);
    let permissions = chain(&zone_plan(&[mesh, &policy]), PAYMENTS).tls.unwrap().permissions.clone();
    ["web", "cron"].map(|name| {
        let client = Client::with_spiffe_id(SpiffeId::of_service("default", name));
        permissions.as_ref().map(|permissions| permissions.decide(&client).effect)
    })
}

fn says(effect: &str, sni: &str, client: &str) -> String {
    let spiffe = format!("spiffeID: {{ type: Exact, value: 'spiffe://default/{client}' }}");
    format!(
        "{{ rules: [{{ default: {{ {effect}: [{{ sni: {{ type: Exact, value: {sni} }}, {spiffe} }}] }} }}] }}"
    )
}

#[test]
fn permissions_that_name_a_server_name_decide_who_leaves_the_mesh_by_it() {
    let allow = Some(Effect::Allow);
    let deny = Some(Effect::Deny);
    let names = chain(&zone_plan(&[SECURED]), PAYMENTS).server_names;
    assert_eq!(names, [DIALLED, ACCEPTED]);
    // Whichever of its names a client dials, a rule that means one of them means the service.
    for name in [DIALLED, ACCEPTED] {
        assert_eq!(decided(&forbidding(), &says("allow", name, "web")), [allow, deny]);
        assert_eq!(decided(SECURED, &says("deny", name, "web")), [deny, allow]);
    }
    assert_eq!(decided(SECURED, &says("allow", DIALLED, "web")), [allow, allow]);
    // What is about others, or about the inbounds of workloads, says nothing here.
    let others = [
        says("deny", "other.example", "web"),
        "{ from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }] }".to_owned(),
        "{ rules: [{ default: { deny: [{ spiffeID: { type: Exact, value: 'spiffe://default/web' } }] } }] }"
            .to_owned(),
        format!("{{ targetRef: {{ kind: Dataplane }}, {}", &says("deny", DIALLED, "web")[1..]),
    ];
    for other in others {
        assert_eq!(decided(SECURED, &other), [None, None], "{other}");
        assert_eq!(decided(&forbidding(), &other), [deny, deny], "{other}");
    }
}

#[test]
fn policies_for_all_sidecars_say_how_an_egress_calls_what_is_outside() {
    let breaker = "{ to: [{ targetRef: { kind: MeshExternalService, name: payments }, default: { connectionLimits: { maxRetries: 7 } } }] }";
    let checks =
        "{ to: [{ targetRef: { kind: Mesh }, default: { interval: 7s, http: { path: /health } } }] }";
    let balance = "{ to: [{ targetRef: { kind: Mesh }, default: { loadBalancer: { type: RingHash, ringHash: \
                   { hashPolicies: [{ type: Header, header: { name: x-user } }] } } } }] }";
    let planned = |target: &str| {
        let of = |kind, spec: &str| yaml(kind, "sample", &format!("{{ targetRef: {target}, {}", &spec[1..]));
        zone_plan(&[
            SECURED,
            &of(Kind::MeshCircuitBreaker, breaker),
            &of(Kind::MeshHealthCheck, checks),
            &of(Kind::MeshLoadBalancingStrategy, balance),
        ])
    };
    let all = planned("{ kind: Mesh }");
    let called = backend(&all, PAYMENTS);
    assert_eq!(called.breaker.unwrap().connection_limits.as_ref().unwrap().max_retries, Some(7));
    assert!(called.health.unwrap().probe.is_some());
    assert!(called.balancer.is_some());
    assert_eq!(chain(&all, PAYMENTS).tls.unwrap().hashed.len(), 1);
    // An egress serves all clients alike, so that what is for some of them is not for it.
    let some = planned("{ kind: Dataplane, labels: { app: web } }");
    let called = backend(&some, PAYMENTS);
    assert_eq!((called.breaker, called.health, called.balancer), (None, None, None));
    assert!(chain(&some, PAYMENTS).tls.unwrap().hashed.is_empty());
}

#[test]
fn an_egress_keeps_the_order_of_zones_that_its_clients_cannot_see() {
    let order = |zones: &str| {
        let failover =
            format!("failover: [{{ to: {{ type: Only, zones: [{zones}] }} }}, {{ to: {{ type: Any }} }}]");
        let spec = format!(
            "{{ to: [{{ targetRef: {{ kind: MeshMultiZoneService, name: everywhere }}, default: {{ localityAwareness: \
             {{ crossZone: {{ {failover} }} }} }} }}] }}"
        );
        let planned = zone_plan(&[SECURED, &yaml(Kind::MeshLoadBalancingStrategy, "sample", &spec)]);
        let called = backend(&planned, EVERYWHERE);
        let locality = called.locality.unwrap();
        let standing = |endpoint: &Endpoint| {
            (endpoint.zone().unwrap().to_owned(), locality.standing(endpoint).unwrap().priority)
        };
        called.endpoints.0.iter().map(standing).collect::<Vec<_>>()
    };
    assert_eq!(order("south"), [("south".to_owned(), 1), ("west".to_owned(), 2)]);
    assert_eq!(order("west"), [("south".to_owned(), 2), ("west".to_owned(), 1)]);
    assert_eq!(backend(&zone_plan(&[SECURED]), EVERYWHERE).locality, None);
}

#[test]
fn an_egress_leaves_out_ingresses_that_it_cannot_connect_to() {
    let planned = zone_plan(&[SECURED]);
    for cluster in [EVERYWHERE, "kri_msvc_default_west__backend_http"] {
        let breaker = backend(&planned, cluster).breaker.unwrap();
        let detection = breaker.outlier_detection.as_ref().unwrap();
        let detectors = detection.detectors.as_ref().unwrap();
        assert!(detectors.local_origin_failures.is_some() && detectors.total_failures.is_none());
        assert_eq!(breaker.connection_limits, None);
        assert_eq!(chain(&planned, cluster).attempts, Some(3));
    }
    assert_eq!((backend(&planned, PAYMENTS).breaker, chain(&planned, PAYMENTS).attempts), (None, None));
}

#[test]
fn clients_do_not_leave_out_an_egress_because_of_one_zone_behind_it() {
    let detection = "{ to: [{ targetRef: { kind: Mesh }, default: { connectionLimits: { maxRetries: 7 }, outlierDetection: \
                     { healthyPanicThreshold: 0, detectors: { totalFailures: { consecutive: 1 } } } } }] }";
    let web = web(
        "outbound: [{ port: 10001, backendRef: { kind: MeshMultiZoneService, name: everywhere, port: 80 } }, \
         { port: 10002, backendRef: { kind: MeshService, name: backend-west, port: 80 } }]",
    );
    let detects = |mesh: &str| {
        let policy = yaml(Kind::MeshCircuitBreaker, "sample", detection);
        let plan = plan(&[mesh, BACKEND, ABROAD, PROXIES, &policy, &web], &unified("web"));
        let breakers = plan.outgoing.backends.iter().map(|backend| {
            let breaker = backend.breaker.as_ref().unwrap();
            assert!(breaker.connection_limits.is_some());
            (backend.cluster.clone(), breaker.outlier_detection.is_some())
        });
        breakers.collect::<Vec<_>>()
    };
    let west = "kri_msvc_default_west__backend_http";
    let through = SECURED.replace("mtls:", "routing: { zoneEgress: true }\nmtls:");
    assert_eq!(detects(SECURED), [(west.to_owned(), true), (EVERYWHERE.to_owned(), true)]);
    // One zone alone may fail, and several have an egress of their own: that cluster calls nothing else.
    assert_eq!(detects(&through), [(west.to_owned(), true), (EVERYWHERE.to_owned(), false)]);
}

#[test]
fn a_policy_for_all_sidecars_concerns_an_egress_if_its_kind_does() {
    let concern = |kind: ZoneProxyKind, policy: &str| {
        let mesh = mesh(&[SECURED, policy]);
        let new: Option<Arc<Policy>> = mesh.policies.values().next().cloned();
        let affected = Affected { policies: vec![PolicyChange { old: None, new }], ..Affected::default() };
        ZoneClass { kind, ..class() }.impact("east", &affected)
    };
    let limits = "to: [{ targetRef: { kind: Mesh }, default: { connectionLimits: { maxRetries: 7 } } }]";
    let all = yaml(Kind::MeshCircuitBreaker, "sample", &format!("{{ {limits} }}"));
    let some = yaml(
        Kind::MeshCircuitBreaker,
        "sample",
        &format!("{{ targetRef: {{ kind: Dataplane }}, {limits} }}"),
    );
    let other = yaml(
        Kind::MeshTimeout,
        "sample",
        "{ to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 7s } }] }",
    );
    assert_eq!(concern(ZoneProxyKind::Egress, &all), Impact::Everything);
    assert_eq!(concern(ZoneProxyKind::Egress, &some), Impact::Nothing);
    assert_eq!(concern(ZoneProxyKind::Egress, &other), Impact::Nothing);
    assert_eq!(concern(ZoneProxyKind::Ingress, &all), Impact::Nothing);
}
