//! Traffic of containers, which passes the machine on its way out.

use std::net::{IpAddr, SocketAddr};

use testkit::netns::{Network, Workload};

use crate::{
    redirect::{families, redirected},
    world::{APPLICATION, World, answer, ask, call},
};

/// A container behind the machine, and settings for its network.
fn container(world: &World) -> (Network, Workload, String) {
    let mut network = Network::behind(&world.here.namespace, "docker0").unwrap();
    let container = network.workload().unwrap();
    let (v4, v6) = network.ranges();
    let networks = format!("vnet: {{networks: ['docker0:{v4}', 'docker+:{v6}']}}");
    let gateway = network.gateway();
    // Redirected queries arrive at the address of the bridge.
    for ip in [IpAddr::V4(gateway.0), IpAddr::V6(gateway.1)] {
        answer(&world.here.namespace, SocketAddr::new(ip, 15053), "kuma-dp for containers");
    }
    (network, container, networks)
}

#[test]
fn what_leaves_a_virtual_network_passes_envoy_and_kuma_dp() {
    let Some(world) = World::new() else { return };
    let (network, container, networks) = container(&world);
    let dns = ["enabled: false", "captureAll: true", "captureAll: true, skipConntrackZoneSplit: true"];
    for dns in dns {
        world.install(&format!("redirect: {{dns: {{{dns}}}, {networks}}}")).unwrap();
        let gateway = network.gateway();
        let gateways = [IpAddr::V4(gateway.0), IpAddr::V6(gateway.1)];
        for ((_, there), gateway) in families(&world).into_iter().zip(gateways) {
            let call = |ip, port| call(&container.namespace, APPLICATION, ip, port);
            assert_eq!(call(there, 8080), redirected(15001, there, 8080), "elsewhere, {dns}");
            assert_eq!(call(gateway, 8080), redirected(15006, gateway, 8080), "the machine itself, {dns}");
            let answered = ask(&container.namespace, APPLICATION, there);
            assert_eq!(answered, "kuma-dp for containers", "{there}, {dns}");
        }
    }
}
