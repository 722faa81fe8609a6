//! Targets of connections and queries.

use std::net::{IpAddr, SocketAddr};

use crate::world::{APPLICATION, KUMA_DP, World, call_from};

/// The addresses of both machines, of one family at a time.
pub fn families(world: &World) -> [(IpAddr, IpAddr); 2] {
    [(world.here.v4.into(), world.there.v4.into()), (world.here.v6.into(), world.there.v6.into())]
}

pub fn redirected(port: u16, ip: IpAddr, original: u16) -> String {
    format!("{port} {}", SocketAddr::new(ip, original))
}

/// Checks the behaviour common to all rules, whichever program installed them.
fn calls_pass_envoy(world: &World) {
    for (here, there) in families(world) {
        assert_eq!(world.call(there, 8080), redirected(15001, there, 8080), "an application calls out");
        assert_eq!(
            world.call_from_there(here, 9090),
            redirected(15006, here, 9090),
            "an application is called"
        );
        assert_eq!(world.call_as_kuma_dp(there, 8080), "direct", "Envoy calls out");
        assert_eq!(world.call_from_there(there, 8080), "direct", "another machine is its own");
    }
}

#[test]
fn connections_in_both_directions_pass_envoy_and_envoys_own_do_not() {
    let Some(world) = World::new() else { return };
    assert_eq!(world.install("").unwrap(), Vec::<String>::new());
    calls_pass_envoy(&world);
    world.uninstall("").unwrap();
    for (here, there) in families(&world) {
        assert_eq!(world.call(there, 8080), "direct");
        assert_eq!(world.call_from_there(here, 9090), "direct");
    }
}

#[test]
fn rules_of_the_legacy_programs_do_the_same() {
    let Some(world) = World::new() else { return };
    world.install(LEGACY).unwrap();
    assert!(world.saved("legacy").contains("KUMA_MESH_INBOUND"));
    calls_pass_envoy(&world);
}

pub const LEGACY: &str = "
iptablesExecutables:
  iptables: /usr/sbin/iptables-legacy
  iptables-save: /usr/sbin/iptables-legacy-save
  iptables-restore: /usr/sbin/iptables-legacy-restore
  ip6tables: /usr/sbin/ip6tables-legacy
  ip6tables-save: /usr/sbin/ip6tables-legacy-save
  ip6tables-restore: /usr/sbin/ip6tables-legacy-restore
";

#[test]
fn calls_of_a_machine_to_itself() {
    let Some(world) = World::new() else { return };
    world.install("").unwrap();
    let localhosts: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let passthroughs: [IpAddr; 2] = ["127.0.0.6".parse().unwrap(), "::6".parse().unwrap()];
    for ((here, _), (localhost, passthrough)) in
        families(&world).into_iter().zip(localhosts.into_iter().zip(passthroughs))
    {
        assert_eq!(world.call(localhost, 8080), "direct", "an application calls localhost");
        assert_eq!(world.call(here, 8080), "direct", "an application calls its own address");
        assert_eq!(world.call_as_kuma_dp(localhost, 8080), "direct", "Envoy hands over to the application");
        assert_eq!(
            world.call_as_kuma_dp(here, 8080),
            redirected(15006, here, 8080),
            "Envoy calls the machine by its address, which is inbound"
        );
        let target = SocketAddr::new(here, 8080);
        assert_eq!(call_from(&world.here.namespace, passthrough, target), "direct", "Envoy passes on");
    }
}

#[test]
fn excluded_ports_addresses_and_users_are_called_directly() {
    let Some(world) = World::new() else { return };
    world.install("redirect: {inbound: {excludePorts: [9090]}, outbound: {excludePorts: [8080]}}").unwrap();
    for (here, there) in families(&world) {
        assert_eq!(world.call(there, 8080), "direct");
        assert_eq!(world.call(there, 9090), redirected(15001, there, 9090));
        assert_eq!(world.call_from_there(here, 9090), "direct");
        assert_eq!(world.call_from_there(here, 8080), redirected(15006, here, 8080));
    }
    let there4 = world.there.v4;
    let there6 = world.there.v6;
    world
        .install(&format!(
            "redirect: {{inbound: {{excludePortsForIPs: ['{there4},{there6}']}}, outbound: {{excludePortsForIPs: ['{there4}/32', '{there6}']}}}}"
        ))
        .unwrap();
    let (hub4, _) = world.network.gateway();
    for (here, there) in families(&world) {
        assert_eq!(world.call(there, 8080), "direct");
        assert_eq!(world.call_from_there(here, 8080), "direct");
    }
    assert_eq!(world.call(hub4, 8080), redirected(15001, hub4.into(), 8080), "another address");
    world
        .install(&format!("redirect: {{outbound: {{excludePortsForUIDs: ['tcp:8000-8100:{APPLICATION}']}}}}"))
        .unwrap();
    for (_, there) in families(&world) {
        assert_eq!(world.call(there, 8080), "direct", "the port of the user");
        assert_eq!(world.call(there, 9090), redirected(15001, there, 9090), "another port of the user");
    }
}

#[test]
fn only_included_ports_are_redirected_and_a_direction_can_be_off() {
    let Some(world) = World::new() else { return };
    world.install("redirect: {inbound: {includePorts: [9090]}, outbound: {includePorts: [8080]}}").unwrap();
    for (here, there) in families(&world) {
        assert_eq!(world.call(there, 8080), redirected(15001, there, 8080));
        assert_eq!(world.call(there, 9090), "direct");
        assert_eq!(world.call_from_there(here, 9090), redirected(15006, here, 9090));
        assert_eq!(world.call_from_there(here, 8080), "direct");
    }
    world.install("redirect: {inbound: {enabled: false}}").unwrap();
    for (here, there) in families(&world) {
        assert_eq!(world.call(there, 8080), redirected(15001, there, 8080));
        assert_eq!(world.call_from_there(here, 9090), "direct");
    }
    world.install("ipFamilyMode: ipv4").unwrap();
    assert_eq!(world.call(world.there.v4, 8080), redirected(15001, world.there.v4.into(), 8080));
    // The rules of the installation before are gone, of the other family too.
    assert_eq!(world.call(world.there.v6, 8080), "direct");
}

#[test]
fn all_queries_of_applications_are_answered_by_kuma_dp() {
    let Some(world) = World::new() else { return };
    for zones in ["false", "true"] {
        let settings = format!("redirect: {{dns: {{captureAll: true, skipConntrackZoneSplit: {zones}}}}}");
        assert_eq!(world.install(&settings).unwrap(), Vec::<String>::new());
        assert_eq!(world.saved("nft").contains("-j CT --zone 2"), zones == "false");
        let (hub4, hub6) = world.network.gateway();
        for (_, there) in families(&world) {
            assert_eq!(world.ask(APPLICATION, there), "kuma-dp");
            assert_eq!(world.ask(KUMA_DP, there), "there");
        }
        assert_eq!(world.ask(APPLICATION, hub4), "kuma-dp");
        assert_eq!(world.ask(APPLICATION, hub6), "kuma-dp");
    }
}

#[test]
fn only_queries_to_the_machines_resolvers_are_answered_by_kuma_dp() {
    let Some(world) = World::new() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let there4 = world.there.v4;
    let there6 = world.there.v6;
    std::fs::write(file.path(), format!("nameserver {there4}\nnameserver {there6}\n")).unwrap();
    let settings =
        format!("redirect: {{dns: {{enabled: true, resolvConfigPath: '{}'}}}}", file.path().display());
    assert_eq!(world.install(&settings).unwrap(), Vec::<String>::new());
    let (hub4, hub6) = world.network.gateway();
    for (_, there) in families(&world) {
        assert_eq!(world.ask(APPLICATION, there), "kuma-dp");
        assert_eq!(world.ask(KUMA_DP, there), "there");
    }
    assert_eq!(world.ask(APPLICATION, hub4), "hub");
    assert_eq!(world.ask(APPLICATION, hub6), "hub");

    // Where a family has no resolver, its queries go out, and the installation says so.
    std::fs::write(file.path(), format!("nameserver {there4}\n")).unwrap();
    let warnings = world.install(&settings).unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("any IPv6 servers")), "{warnings:?}");
    assert_eq!(world.ask(APPLICATION, there4), "kuma-dp");
    assert_eq!(world.ask(APPLICATION, there6), "there");
}
