//! Machines that the mesh knows by their IPv6 addresses, beside one that it knows by its IPv4 address.

use std::net::IpAddr;

use e2e::eventually;

use super::machines::{BY_SERVICE, Mesh, Wishes, http, is_from, serve, tcp, url};

#[test]
fn machines_with_ipv6_addresses_call_each_other_by_name() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.apply(BY_SERVICE);
    let by_ipv6 = Wishes { by_ipv6: true, ..Wishes::default() };
    let backend = mesh.machine_with("backend-1", &http("backend"), &by_ipv6);
    let _queue = mesh.machine_with("queue-1", &tcp("queue"), &by_ipv6);
    let client = mesh.machine_with("client-1", &http("client"), &by_ipv6);
    for version in ["-4", "-6"] {
        client.reaches(version, "http://backend.mesh/", "backend-1");
        client.reaches(version, "http://backend.svc.mesh.local/", "backend-1");
        client.sends_line(version, "queue.mesh", 80, "queue-1");
    }
    let clusters = client.proxy.admin("/clusters").unwrap();
    let endpoint = format!("::[{}]:80::", backend.workload.v6);
    assert!(clusters.contains(&endpoint), "{endpoint} in {clusters}");

    // One with an IPv4 address calls them, and is called.
    let other = mesh.machine("other-1", &http("other"));
    for version in ["-4", "-6"] {
        other.reaches(version, "http://backend.mesh/", "backend-1");
        client.reaches(version, "http://other.mesh/", "other-1");
    }
}

#[test]
fn ipv6_traffic_that_is_not_the_meshs_passes_through() {
    let Some(mut mesh) = Mesh::start() else { return };
    let by_ipv6 = Wishes { by_ipv6: true, ..Wishes::default() };
    let machine = mesh.machine_with("machine-1", &http("machine"), &by_ipv6);
    let outside = mesh.outside("outside", &[8000]);
    let ip = IpAddr::from(outside.workload.v6);
    machine.reaches("-6", &url(ip, 8000), "outside");
    assert!(machine.passed("ipv6_outbound") > 0 && machine.passed("ipv4_outbound") == 0);

    // Inbound connections are redirected: the application listens, and is not reached without mutual TLS.
    let own = IpAddr::from(machine.workload.v6);
    let _more = serve(&machine.workload.namespace, "machine-1", &[(own, 81)]);
    for port in [80, 81] {
        let (done, said) = outside.curl(&url(own, port));
        assert!(!done, "port {port}: {said}");
    }
    mesh.put("/meshes/default", &crate::world::mesh("PERMISSIVE"));
    for port in [80, 81] {
        let before = machine.passed("ipv6_inbound");
        let mut last = String::new();
        eventually("a call without mutual TLS", || {
            let (done, said) = outside.curl(&url(own, port));
            last = said;
            done && is_from(&last, "machine-1")
        })
        .unwrap_or_else(|error| panic!("port {port}: {error}: {last}"));
        // The port of the mesh has a listener of its own; the other one passes through.
        assert_eq!(machine.passed("ipv6_inbound") > before, port == 81, "port {port}");
    }
}
