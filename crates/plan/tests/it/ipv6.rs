//! IPv6 virtual addresses beside those of IPv4.

use std::sync::Arc;

use plan::{ProxyPlan, ProxyTraits, Redirection};
use topology::{MeshSnapshot, cidr::Ipv6Prefix};

use crate::support::{PLAIN, mesh, traits, unified, web};

const BACKEND: &str = r#"
type: MeshService
mesh: default
name: backend
spec:
  ports: [{ port: 80, appProtocol: http }]
status:
  vips: [{ ip: 241.0.0.1 }]
  addresses: [{ hostname: backend.svc.mesh.local, status: Available, origin: HostnameGenerator }]
"#;

const REDIRECTED: &str = "transparentProxying: {}";

/// The mesh of a control plane that is configured with this range.
fn with_prefix(documents: &[&str], prefix: Option<&str>) -> Arc<MeshSnapshot> {
    let ipv6_prefix: Option<Ipv6Prefix> = prefix.map(|prefix| prefix.parse().unwrap());
    Arc::new(MeshSnapshot { ipv6_prefix, ..MeshSnapshot::clone(&mesh(documents)) })
}

/// A proxy whose agent says that its application can call such addresses.
fn routed(traits: ProxyTraits) -> ProxyTraits {
    ProxyTraits { ipv6_routed: true, resolver: true, ..traits }
}

fn planned(networking: &str, prefix: Option<&str>, traits: &ProxyTraits) -> ProxyPlan {
    plan::for_proxy(&with_prefix(&[PLAIN, BACKEND, &web(networking)], prefix), traits).unwrap()
}

/// Returns the addresses of the first listener.
fn listens(plan: &ProxyPlan) -> Vec<String> {
    let outbound = &plan.outgoing.outbounds[0];
    let at = [(outbound.address, outbound.port)].into_iter().chain(outbound.also_at.iter().copied());
    at.map(|(address, port)| format!("{address} {port}")).collect()
}

fn answer(plan: &ProxyPlan) -> &str {
    let body = &plan.outgoing.records.as_ref().unwrap().body;
    body.split_once("\"ips\":[").unwrap().1.split_once(']').unwrap().0
}

#[test]
fn listeners_and_names_have_ipv6_addresses_made_of_prefix_and_ipv4() {
    for traits in [traits("web"), unified("web")] {
        let plan = planned(REDIRECTED, Some("fd00:240::/96"), &routed(traits.clone()));
        assert_eq!(listens(&plan), ["241.0.0.1 80", "fd00:240::f100:1 80"]);
        assert_eq!(answer(&plan), r#""241.0.0.1","fd00:240::f100:1""#);
        assert!(!plan.outgoing.outbounds[0].bind);
        // Names in Envoy and its statistics stay those of the IPv4 address.
        let without = planned(REDIRECTED, None, &routed(traits));
        assert_eq!(plan.outgoing.outbounds[0].names, without.outgoing.outbounds[0].names);
        assert_eq!(plan.findings(), []);
    }
}

#[test]
fn proxies_without_ipv6_are_planned_as_without_the_range() {
    let usual = || routed(traits("web"));
    let v4_only = Redirection { enabled: true, inbound_port: 15006, outbound_port: 15001, ipv6: false };
    let cases = [
        ("an agent that does not say it", REDIRECTED, ProxyTraits { ipv6_routed: false, ..usual() }),
        ("a machine without IPv6", REDIRECTED, ProxyTraits { ipv6: false, ..usual() }),
        ("rules for IPv4 alone", REDIRECTED, ProxyTraits { redirection: Some(v4_only), ..usual() }),
        ("a Dataplane for IPv4 alone", "transparentProxying: { ipFamilyMode: IPv4 }", usual()),
        ("bound addresses", REDIRECTED, ProxyTraits { bind_outbounds: true, ..usual() }),
        (
            "listed addresses",
            "outbound: [{ port: 80, hostname: b.mesh, backendRef: { kind: MeshService, name: backend, port: 80 } }]",
            usual(),
        ),
    ];
    for (case, networking, traits) in cases {
        let plan = planned(networking, Some("fd00:240::/96"), &traits);
        assert_eq!(listens(&plan).len(), 1, "{case}");
        assert_eq!(plan, planned(networking, None, &traits), "{case}");
    }
}

#[test]
fn without_a_range_an_agent_that_could_call_it_changes_nothing() {
    let one = planned(REDIRECTED, None, &routed(traits("web")));
    let other = ProxyTraits { ipv6_routed: false, ..routed(traits("web")) };
    assert_eq!(one, planned(REDIRECTED, None, &other));
    assert_eq!(answer(&one), r#""241.0.0.1","::ffff:f100:1""#);
}

#[test]
fn a_listed_address_that_traffic_is_redirected_to_has_one_too() {
    let listed = "transparentProxying: {}\noutbound: [{ address: 10.1.2.3, port: 90, hostname: b.mesh, backendRef: \
                  { kind: MeshService, name: backend, port: 80 } }]";
    let plan = planned(listed, Some("fd00:240::/96"), &routed(traits("web")));
    assert_eq!(listens(&plan), ["10.1.2.3 90", "fd00:240::a01:203 90"]);
    assert_eq!(answer(&plan), r#""10.1.2.3","fd00:240::a01:203""#);
}
