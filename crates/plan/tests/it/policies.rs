//! Every policy kind does to proxies what its row in the table says, and nothing else.

use std::sync::Arc;

use plan::{
    ProxyPlan, ZoneClass, ZonePlan, ZoneProxyKind,
    effective::{Applying, Effective, KINDS},
};
use resources::{Kind, kinds::mesh_timeout::MeshTimeout, policy::ProxySide};
use topology::{DestinationId, MeshSnapshot};

use crate::{
    support::{BACKEND, SECURED, mesh, traits, web},
    zone_proxies::OUTSIDE,
};

/// A policy that says something on every side that its kind has.
fn sample(kind: Kind) -> String {
    let spec = match kind {
        Kind::MeshAccessLog => {
            "{ to: [{ targetRef: { kind: Mesh }, default: { backends: [{ type: File, file: { path: /a } }] } }], \
             from: [{ targetRef: { kind: Mesh }, default: { backends: [{ type: File, file: { path: /a } }] } }] }"
        }
        Kind::MeshTrace => {
            "{ default: { backends: [{ type: Zipkin, zipkin: { url: 'http://zipkin:9411/api/v2/spans' } }] } }"
        }
        Kind::MeshCircuitBreaker => {
            "{ to: [{ targetRef: { kind: Mesh }, default: { connectionLimits: { maxRetries: 7 } } }], \
             rules: [{ default: { connectionLimits: { maxRequests: 7 } } }] }"
        }
        Kind::MeshFaultInjection => {
            "{ rules: [{ default: { http: [{ abort: { httpStatus: 500, percentage: 50 } }] } }] }"
        }
        Kind::MeshHealthCheck => {
            "{ to: [{ targetRef: { kind: Mesh }, default: { interval: 7s, http: {}, tcp: {} } }] }"
        }
        Kind::MeshHTTPRoute => {
            "{ to: [{ targetRef: { kind: MeshService, labels: { team: shop } }, rules: [{ matches: \
             [{ path: { type: PathPrefix, value: /v1 } }], default: { filters: [{ type: RequestRedirect, \
             requestRedirect: { hostname: elsewhere } }] } }] }] }"
        }
        Kind::MeshLoadBalancingStrategy => {
            "{ to: [{ targetRef: { kind: Mesh }, default: { loadBalancer: { type: Random } } }] }"
        }
        Kind::MeshMetric => "{ default: { backends: [{ type: Prometheus, prometheus: {} }] } }",
        Kind::MeshPassthrough => "{ default: { passthroughMode: None } }",
        Kind::MeshProxyPatch => "{ default: { appendModifications: [{ cluster: { operation: Remove } }] } }",
        Kind::MeshRateLimit => {
            "{ targetRef: { kind: Dataplane }, rules: [{ default: { local: { tcp: { connectionRate: { num: 7, \
             interval: 1s } } } } }] }"
        }
        Kind::MeshRetry => "{ to: [{ targetRef: { kind: Mesh }, default: { http: { numRetries: 7 } } }] }",
        Kind::MeshTCPRoute => {
            "{ to: [{ targetRef: { kind: MeshService, labels: { team: shop } }, rules: [{ default: \
             { backendRefs: [{ kind: MeshService, labels: { team: shop }, port: 9000 }] } }] }] }"
        }
        Kind::MeshTLS => "{ rules: [{ default: { mode: Permissive } }] }",
        Kind::MeshTimeout => {
            "{ to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 7s } }], \
             rules: [{ default: { idleTimeout: 7s } }] }"
        }
        Kind::MeshTrafficPermission => {
            "{ from: [{ targetRef: { kind: Mesh }, default: { action: Allow } }], rules: [{ default: { deny: \
             [{ sni: { type: Exact, value: sni.extsvc.default.payments.443 } }] } }] }"
        }
        other => panic!("{other} is a new policy: add one here that changes what a proxy does"),
    };
    format!("type: {kind}\nmesh: default\nname: sample\nspec: {spec}\n")
}

fn world(policies: &[&str]) -> Arc<MeshSnapshot> {
    let web = web(
        "inbound: [{ port: 80, tags: { kuma.io/service: web } }]\noutbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80, labels: { team: shop } } }, { port: 10002, backendRef: { kind: MeshService, labels: { team: shop }, port: 9000 } }]\ntransparentProxying: { reachableBackends: {} }",
    );
    let documents: Vec<&str> = [SECURED, BACKEND].into_iter().chain(policies.iter().copied()).collect();
    mesh(&[&documents[..], &[&web]].concat())
}

fn planned(policies: &[&str]) -> ProxyPlan {
    let plan = plan::for_proxy(&world(policies), &traits("web")).unwrap();
    assert_eq!(plan.findings(), []);
    plan
}

/// Plans an egress in that mesh.
fn egress(policies: &[&str]) -> ZonePlan {
    let documents: Vec<&str> =
        [SECURED, BACKEND, OUTSIDE].into_iter().chain(policies.iter().copied()).collect();
    let system_ca_path = Some("/ca".into());
    let class = ZoneClass { kind: ZoneProxyKind::Egress, unified_naming: true, ipv6: true, system_ca_path };
    class.plan(&mesh(&documents))
}

#[test]
fn a_policy_changes_the_sides_of_a_proxy_that_its_row_says() {
    let without = planned(&[]);
    assert_eq!(
        (without.own.inbounds.len(), without.outgoing.outbounds.len()),
        (1, 2),
        "something can change"
    );
    for &kind in Kind::POLICIES {
        let with = planned(&[&sample(kind)]);
        let row = kind.descriptor().policy.unwrap();
        let is_about = |side| row.is_about(side);
        assert_eq!(
            with.own.inbounds != without.own.inbounds,
            is_about(ProxySide::Inbound),
            "{kind}: inbounds"
        );
        let led = egress(&[&sample(kind)]) != egress(&[]);
        assert_eq!(led, is_about(ProxySide::Egress), "{kind}: egress");
        let outbound = with.outgoing.outbounds != without.outgoing.outbounds
            || with.outgoing.backends != without.outgoing.backends;
        assert_eq!(outbound, is_about(ProxySide::Outbound), "{kind}: outbounds");
        assert_eq!(with != without, row.effect.is_some(), "{kind}: anything");
        assert_eq!(KINDS.contains(&kind), row.effect.is_some(), "{kind}");
    }
}

#[test]
fn proxies_of_the_same_policies_share_what_these_add_up_to() {
    let mesh = world(&[&sample(Kind::MeshTimeout)]);
    let [web, backend] =
        ["web", "backend"].map(|name| Effective::of(&mesh, mesh.dataplanes.get(name).unwrap()));
    let port = DestinationId::Port("kri_msvc_default_east__backend_http".parse().unwrap());
    let conf = |effective: &Effective<'_>| effective.conf::<MeshTimeout>(&port).unwrap().unwrap();
    let web = conf(&web);
    let backend = conf(&backend);
    assert_eq!(web.conf.idle_timeout.unwrap().to_string(), "7s");
    assert_eq!(web.merged.origins[0].to_string(), "kri_mt_default___sample_rule_0");
    assert!(Arc::ptr_eq(&web.conf, &backend.conf) && Arc::ptr_eq(&web.merged, &backend.merged));
}

#[test]
fn what_is_in_effect_follows_from_the_policies_that_apply() {
    let samples: Vec<String> = KINDS.into_iter().map(sample).collect();
    let mesh = world(&samples.iter().map(String::as_str).collect::<Vec<_>>());
    let web = mesh.dataplanes.get("web").unwrap();
    let applying = Applying::of(&mesh, web);
    let effective = Effective::for_proxy(&mesh, web, applying);
    for kind in KINDS {
        assert_eq!(effective.policies(kind), Effective::of(&mesh, web).policies(kind), "{kind}");
        assert_eq!(effective.policies(kind).len(), 1, "{kind}");
        assert_eq!(effective.outbound(kind), Effective::of(&mesh, web).outbound(kind), "{kind}");
    }
    let none = Effective::for_proxy(&mesh, web, Applying::default());
    assert!(KINDS.into_iter().all(|kind| none.policies(kind).is_empty()));
    assert!(KINDS.into_iter().all(|kind| none.outbound(kind).rules.is_empty()));
}
