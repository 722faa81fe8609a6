//! Transparent proxying: traffic that is redirected to the proxy without the application knowing.

use plan::{ProxyTraits, Redirection};

use crate::{
    findings::texts,
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web},
};

const OTHER: &str = r#"
type: MeshService
mesh: default
name: other
spec:
  ports: [{ port: 80 }]
status:
  vips: [{ ip: 241.0.0.2 }]
"#;

#[track_caller]
fn check(mesh: &str, transparent: &str, offered: &[&str], findings: &[&str]) {
    let web = web(transparent);
    let plan = plan(&[mesh, BACKEND, OTHER, &web], &traits("web"));
    assert!(plan.outgoing.outbounds.iter().all(|outbound| !outbound.bind));
    let addresses: Vec<_> =
        plan.outgoing.outbounds.iter().map(|o| format!("{}:{}", o.address, o.port)).collect();
    assert_eq!(
        (addresses.as_slice(), texts(&plan.findings()).as_slice()),
        (
            offered.iter().map(|&a| a.to_owned()).collect::<Vec<_>>().as_slice(),
            findings.iter().map(|&p| p.to_owned()).collect::<Vec<_>>().as_slice(),
        )
    );
}

#[test]
fn destinations_have_virtual_addresses_unless_the_dataplane_chooses() {
    let all = ["241.0.0.2:80", "241.0.0.1:9000", "241.0.0.1:80"];
    check(PLAIN, "transparentProxying: { redirectPortInbound: 15006 }", &all, &[]);
    check(PLAIN, "transparentProxying: { reachableBackends: { refs: [] } }", &[], &[]);
    check(
        PLAIN,
        "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: backend, port: 80 }] } }",
        &["241.0.0.1:80"],
        &[],
    );
    check(
        PLAIN,
        "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, labels: { team: shop } }] } }",
        &["241.0.0.1:9000", "241.0.0.1:80"],
        &[],
    );
    check(
        PLAIN,
        "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: nobody }] } }",
        &[],
        &[r#"reachableBackends: there is no MeshService "nobody" with that port in the mesh"#],
    );
    check(PLAIN, "transparentProxying: { reachableServices: [backend] }", &[], &[]);
    let chosen = PLAIN.replace("Exclusive", "ReachableBackends");
    check(&chosen, "transparentProxying: { redirectPortInbound: 15006 }", &[], &[]);
}

#[test]
fn a_proxy_that_says_so_binds_virtual_addresses_without_redirection() {
    for transparent in ["", "transparentProxying: {}\n"] {
        let web = web(&format!("{transparent}inbound: [{{ port: 80 }}]"));
        let traits = ProxyTraits { bind_outbounds: true, ..traits("web") };
        let plan = plan(&[PLAIN, BACKEND, OTHER, &web], &traits);
        let addresses: Vec<_> =
            plan.outgoing.outbounds.iter().map(|o| (format!("{}:{}", o.address, o.port), o.bind)).collect();
        let bound = ["241.0.0.2:80", "241.0.0.1:9000", "241.0.0.1:80"].map(|a| (a.to_owned(), true));
        assert_eq!(addresses, bound);
        assert_eq!(plan.own.passthrough, []);
        assert!(plan.own.inbounds[0].bind);
    }
}

#[test]
fn an_address_of_the_proxy_itself_is_not_offered() {
    let headless = OTHER.replace("241.0.0.2", "127.0.0.2");
    let web = web("transparentProxying: {}\ninbound: [{ port: 80 }]");
    let plan = plan(&[PLAIN, &headless, &web], &traits("web"));
    assert_eq!((plan.outgoing.outbounds.len(), plan.own.inbounds.len()), (0, 1));
}

#[test]
fn redirected_inbounds_do_not_bind_and_have_a_source_address() {
    let web = web(
        "transparentProxying: {}\ninbound: [{ port: 80, address: 10.0.0.1 }, { port: 81, serviceAddress: 127.0.0.1 }, \
         { port: 82, serviceAddress: 127.0.0.3 }, { port: 83, serviceAddress: '::1' }]",
    );
    let plan = plan(&[PLAIN, &web], &traits("web"));
    let of: Vec<_> = plan.own.inbounds.iter().map(|i| (i.bind, i.from_loopback_source)).collect();
    assert_eq!(of, [(false, true), (false, false), (false, true), (false, false)]);
}

#[track_caller]
fn check_passthrough(mesh: &str, transparent: &str, ipv6: bool, expected: &[(&str, bool)]) {
    let plan = plan(&[mesh, &web(transparent)], &ProxyTraits { ipv6, ..traits("web") });
    let found: Vec<_> =
        plan.own.passthrough.iter().map(|p| (format!("{}:{}", p.address, p.port), p.allowed)).collect();
    let expected: Vec<_> = expected.iter().map(|&(address, allowed)| (address.to_owned(), allowed)).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_is_not_for_the_mesh_is_let_through_unless_the_mesh_forbids_it() {
    let both = [("0.0.0.0:15001", true), (":::15001", true), ("0.0.0.0:15006", true), (":::15006", true)];
    check_passthrough(PLAIN, "transparentProxying: {}", true, &both);
    let v4 = [("0.0.0.0:15001", true), ("0.0.0.0:15006", true)];
    check_passthrough(PLAIN, "transparentProxying: {}", false, &v4);
    check_passthrough(PLAIN, "transparentProxying: { ipFamilyMode: IPv4 }", true, &v4);
    let elsewhere = [("0.0.0.0:25001", true), ("0.0.0.0:25006", true)];
    let ports = "transparentProxying: { redirectPortInbound: 25006, redirectPortOutbound: 25001 }";
    check_passthrough(PLAIN, ports, false, &elsewhere);
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    check_passthrough(
        &closed,
        "transparentProxying: {}",
        false,
        &[("0.0.0.0:15001", false), ("0.0.0.0:15006", true)],
    );
    check_passthrough(PLAIN, "inbound: [{ port: 80 }]", true, &[]);
}

#[test]
fn the_agents_redirection_counts_more_than_the_dataplanes() {
    let told = |enabled, ipv6| ProxyTraits {
        redirection: Some(Redirection { enabled, inbound_port: 25006, outbound_port: 25001, ipv6 }),
        ..traits("web")
    };
    let planned = |transparent: &str, traits: &ProxyTraits| {
        let web = web(&format!("{transparent}\ninbound: [{{ port: 80 }}]"));
        plan(&[PLAIN, BACKEND, OTHER, &web], traits)
    };
    let written = "transparentProxying: { redirectPortInbound: 25006, redirectPortOutbound: 25001 }";
    assert_eq!(planned("", &told(true, true)), planned(written, &traits("web")));
    assert_eq!(planned("transparentProxying: {}", &told(true, true)), planned(written, &traits("web")));
    let v4 = written.replace("{ ", "{ ipFamilyMode: IPv4, ");
    assert_eq!(planned("", &told(true, false)), planned(&v4, &traits("web")));
    assert_eq!(planned(written, &told(false, true)), planned("", &traits("web")));
    // What the application may reach is the Dataplane's to say.
    let narrow = "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: other }] } }";
    let plan = planned(narrow, &told(true, false));
    assert_eq!((plan.outgoing.outbounds.len(), plan.own.passthrough[0].port), (1, 25001));
}

/// Checks both inbound directions: forwarded or refused, and the target.
#[track_caller]
fn check_refusal(mesh: &str, networking: &str, traits: &ProxyTraits, refused: bool) {
    let plan = plan(&[mesh, &web(&format!("transparentProxying: {{}}\n{networking}"))], traits);
    for (index, version) in [(2, "ipv4"), (3, "ipv6")] {
        let passthrough = &plan.own.passthrough[index];
        let name = if traits.unified_naming {
            format!("self_passthrough_{version}_inbound")
        } else {
            format!("inbound:passthrough:{version}")
        };
        let in_stats = name.replace(':', "_");
        // What is refused keeps the names of what is let through.
        let cluster_in_stats = Some(in_stats.clone()).filter(|stats| *stats != name);
        let names = &passthrough.names;
        assert_eq!(passthrough.allowed, !refused, "{networking}");
        assert_eq!((&names.listener, &names.filter_stats), (&name, &in_stats), "{networking}");
        assert_eq!((&names.cluster, &names.cluster_stats), (&name, &cluster_in_stats), "{networking}");
    }
    assert!(plan.own.passthrough[..2].iter().all(|outbound| outbound.allowed));
}

#[test]
fn strict_tls_ends_redirected_traffic_to_ports_without_an_inbound() {
    let inbound = "inbound: [{ port: 80, tags: { kuma.io/service: web } }]";
    let gateway = "gateway: { tags: { kuma.io/service: gateway } }";
    let permissive = SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE");
    for traits in [traits("web"), unified("web")] {
        let strict = ProxyTraits { strict_inbound_ports: true, ..traits.clone() };
        check_refusal(SECURED, inbound, &strict, true);
        check_refusal(SECURED, inbound, &traits, false);
        check_refusal(&permissive, inbound, &strict, false);
        check_refusal(PLAIN, inbound, &strict, false);
        // Clients of a gateway come from outside of the mesh.
        check_refusal(SECURED, gateway, &strict, false);
    }
}
