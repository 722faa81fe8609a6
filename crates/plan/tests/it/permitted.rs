//! Destinations that a proxy is not offered because it may not call them, and destinations that it is offered
//! all the same.

use std::{collections::BTreeMap, sync::Arc};

use plan::{Applying, Calls, Class, ProxyPlan, ProxyTraits};
use topology::{DestinationId, MeshSnapshot, VirtualHost, VirtualPort};

use crate::support::{SECURED, mesh, traits, unified, web};

/// Two services of one Dataplane each, and the tags of both as destinations.
const SERVICES: &str = r#"
type: MeshService
mesh: default
name: open
labels: { team: shop }
spec:
  selector: { dataplaneTags: { kuma.io/service: open } }
  ports: [{ port: 80, targetPort: 8080, appProtocol: http }]
status: { vips: [{ ip: 241.0.0.1 }], addresses: [{ hostname: open.mesh }] }
---
type: MeshService
mesh: default
name: shut
spec:
  selector: { dataplaneTags: { kuma.io/service: shut } }
  ports: [{ port: 80, targetPort: 8080, appProtocol: http }]
status: { vips: [{ ip: 241.0.0.2 }], addresses: [{ hostname: shut.mesh }] }
---
type: Dataplane
mesh: default
name: open
networking:
  address: 127.0.0.3
  inbound: [{ port: 8080, tags: { kuma.io/service: open } }]
---
type: Dataplane
mesh: default
name: shut
networking:
  address: 127.0.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: shut } }]
---
type: Dataplane
mesh: default
name: asks-for-tags
networking:
  address: 127.0.0.5
  outbound: [{ port: 1, tags: { kuma.io/service: open } }, { port: 2, tags: { kuma.io/service: shut } }]
"#;

/// Only `open` may be called, and only by `web`.
const PERMISSION: &str = r#"
type: MeshTrafficPermission
mesh: default
name: open-from-web
spec:
  targetRef: { kind: MeshService, name: open }
  from: [{ targetRef: { kind: MeshService, name: web }, default: { action: Allow } }]
"#;

const INBOUND: &str = "inbound: [{ port: 80, tags: { kuma.io/service: web } }]";
const REDIRECTED: &str = "transparentProxying: { redirectPortInbound: 15006 }";
const OPEN: &str = "kri_msvc_default___open_80";
const SHUT: &str = "kri_msvc_default___shut_80";

/// The mesh with these labels.
fn labelled(labels: &str) -> String {
    format!("{SECURED}labels: {{ {labels} }}\n")
}

fn enforced() -> String {
    labelled("reachability.kuma.io/mode: enforce")
}

/// The networking of `web`, which also has an inbound.
fn called(networking: &str) -> String {
    web(&format!("{INBOUND}\n{networking}"))
}

fn planned(documents: &[&str]) -> ProxyPlan {
    plan::for_proxy(&mesh(documents), &traits("web")).unwrap()
}

fn spelled(id: &DestinationId) -> String {
    match id {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(tags) => tags["kuma.io/service"].clone(),
    }
}

/// Returns the offered destinations, sorted, each once.
fn offered(plan: &ProxyPlan) -> Vec<String> {
    let mut offered: Vec<String> =
        plan.outgoing.outbounds.iter().map(|outbound| spelled(&outbound.destination)).collect();
    offered.sort();
    offered.dedup();
    offered
}

#[track_caller]
fn check(mesh: &str, permission: &str, networking: &str, expected: &[&str]) {
    let plan = planned(&[mesh, SERVICES, permission, &called(networking)]);
    assert_eq!(offered(&plan), expected, "{mesh} {networking}");
}

#[test]
fn only_enforcement_trims() {
    for mode in ["off", "report", "shadow"] {
        check(
            &labelled(&format!("reachability.kuma.io/mode: {mode}")),
            PERMISSION,
            REDIRECTED,
            &[OPEN, SHUT],
        );
    }
    check(SECURED, PERMISSION, REDIRECTED, &[OPEN, SHUT]);
    check(&enforced(), PERMISSION, REDIRECTED, &[OPEN]);
}

#[test]
fn what_is_trimmed_leaves_no_cluster_and_no_hostname() {
    for traits in [traits("web"), unified("web")] {
        let traits = ProxyTraits { resolver: true, ..traits };
        let documents = [&enforced(), SERVICES, PERMISSION, &called(REDIRECTED)];
        let plan = plan::for_proxy(&mesh(&documents), &traits).unwrap();
        let backends: Vec<String> =
            plan.outgoing.backends.iter().map(|it| spelled(&it.destination)).collect();
        assert_eq!(backends, [OPEN]);
        assert!(!format!("{plan:?}").contains("shut"), "{plan:#?}");
        assert!(format!("{:?}", plan.outgoing.hostnames).contains("open.mesh"));
    }
}

#[test]
fn a_mode_of_the_proxy_counts_more_than_those_of_its_mesh() {
    let with = |mesh: &str, label: &str| {
        let web = called(REDIRECTED).replace("name: web\n", &format!("name: web\nlabels: {{ {label} }}\n"));
        offered(&planned(&[mesh, SERVICES, PERMISSION, &web]))
    };
    assert_eq!(with(&enforced(), "reachability.kuma.io/mode: 'off'"), [OPEN, SHUT]);
    assert_eq!(with(SECURED, "reachability.kuma.io/mode: enforce"), [OPEN]);
}

/// Nothing is trimmed if servers refuse no one, or would refuse everyone by mistake.
#[test]
fn an_inactive_mode_trims_nothing() {
    let plain = enforced().replace("enabledBackend: ca", "enabledBackend: ''");
    check(&plain, PERMISSION, REDIRECTED, &[OPEN, SHUT]);
    let unrelated = "type: MeshTimeout\nmesh: default\nname: t\nspec: { to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 5s } }] }\n";
    check(&enforced(), unrelated, REDIRECTED, &[OPEN, SHUT]);
    let forced = labelled("reachability.kuma.io/mode: enforce, reachability.kuma.io/force: 'true'");
    check(&forced, unrelated, REDIRECTED, &[]);
}

#[test]
fn what_the_dataplane_asks_for_is_not_trimmed() {
    let listed = "outbound: [{ port: 10001, backendRef: { kind: MeshService, name: shut, port: 80 } }]";
    check(&enforced(), PERMISSION, listed, &[SHUT]);
    // What is listed is all that is offered.
    check(&enforced(), PERMISSION, &format!("{listed}\n{REDIRECTED}"), &[SHUT]);
    let by_tags = "outbound: [{ port: 10001, tags: { kuma.io/service: shut } }]";
    check(&enforced(), PERMISSION, by_tags, &["shut"]);
    check(&enforced(), PERMISSION, &format!("{by_tags}\n{REDIRECTED}"), &[OPEN, "shut"]);
    let backends =
        "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: shut, port: 80 }] } }";
    check(&enforced(), PERMISSION, backends, &[SHUT]);
    check(&enforced(), PERMISSION, "transparentProxying: { reachableBackends: { refs: [] } }", &[]);
    check(&enforced(), PERMISSION, "transparentProxying: { reachableServices: [shut] }", &[]);
}

/// The mesh with hostnames of VirtualOutbounds for both services.
fn with_hosts(snapshot: &MeshSnapshot) -> MeshSnapshot {
    let mut snapshot = snapshot.clone();
    for (service, vip) in [("open", "240.0.0.1"), ("shut", "240.0.0.2")] {
        let tags: BTreeMap<String, String> = [("kuma.io/service".to_owned(), service.to_owned())].into();
        let port = VirtualPort { policy: Some("vo".into()), tags: Arc::new(tags) };
        let hostname = format!("{service}.vo").into();
        let host = VirtualHost { hostname, vip: vip.parse().ok(), ports: [(80, port)].into_iter().collect() };
        snapshot.virtual_hosts.insert(host);
    }
    snapshot
}

#[test]
fn virtual_outbounds_are_trimmed_unless_the_dataplane_names_services() {
    let of = |mode: &str, networking: &str| {
        let snapshot = mesh(&[mode, SERVICES, PERMISSION, &called(networking)]);
        offered(&plan::for_proxy(&with_hosts(&snapshot), &traits("web")).unwrap())
    };
    assert_eq!(of(SECURED, REDIRECTED), [OPEN, SHUT, "open", "shut"]);
    assert_eq!(of(&enforced(), REDIRECTED), [OPEN, "open"]);
    assert_eq!(of(&enforced(), "transparentProxying: { reachableServices: [open, shut] }"), ["open", "shut"]);
}

fn class(mesh: &MeshSnapshot, traits: &ProxyTraits) -> Class {
    let dataplane = plan::dataplane(mesh, traits).unwrap();
    Class::of(traits, dataplane, Calls::of(dataplane), Applying::of(mesh, dataplane))
}

/// Trimming tells proxies apart by their certificates; without it they share what they call.
#[test]
fn proxies_share_their_outbounds_as_far_as_they_may_call_the_same() {
    let other = |service: &str| {
        called(REDIRECTED)
            .replace("name: web\n", "name: web-2\n")
            .replace("127.0.0.2", "127.0.0.22")
            .replace("kuma.io/service: web", &format!("kuma.io/service: {service}"))
    };
    let shared = |mode: &str, service: &str| {
        let snapshot = mesh(&[mode, SERVICES, PERMISSION, &called(REDIRECTED), &other(service)]);
        class(&snapshot, &traits("web")) == class(&snapshot, &traits("web-2"))
    };
    assert!(shared(SECURED, "web") && shared(SECURED, "cron"));
    assert!(shared(&enforced(), "web"));
    assert!(!shared(&enforced(), "cron"));
}
