//! Machines that the mesh knows by their IPv6 addresses, beside one that it knows by its IPv4 address.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use e2e::{Setup, eventually};
use nix::unistd::{Uid, setfsuid};
use socket2::{Domain, Socket, Type};

use super::machines::{APPLICATION, BY_SERVICE, Machine, Mesh, Wishes, http, is_from, serve, tcp, url};

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

/// A mesh with IPv6 virtual addresses.
fn with_range() -> Option<Mesh> {
    let mesh = Mesh::start_with(Setup::default().with("KUMA_IPAM_IPV6_CIDR", "fd00:240::/96"))?;
    mesh.apply(BY_SERVICE);
    Some(mesh)
}

/// Waits for the answer of a name's IPv6 address to a client whose sockets cannot connect to IPv4-mapped addresses.
fn answers_ipv6_sockets(machine: &Machine, host: &str, expected: &str) -> Ipv6Addr {
    let mut last = String::new();
    let mut address = None;
    let call = |to: Ipv6Addr| -> std::io::Result<String> {
        // The firewall distinguishes the owner of a socket by this user of the thread that makes it.
        setfsuid(Uid::from_raw(APPLICATION));
        let mut socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
        socket.set_only_v6(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.connect_timeout(&SocketAddr::from((to, 80)).into(), Duration::from_secs(5))?;
        socket
            .write_all(format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    };
    eventually(&format!("{host} to answer at its IPv6 address"), || {
        let (_, said) = machine.addresses("ahostsv6", host);
        address = said.split_whitespace().next().and_then(|first| first.parse().ok());
        last = match address {
            Some(to) => {
                machine.workload.namespace.enter(|| call(to)).unwrap().unwrap_or_else(|e| e.to_string())
            }
            None => said,
        };
        last.starts_with("HTTP/1.1 200") && last.contains(expected)
    })
    .unwrap_or_else(|error| panic!("{error}: {address:?} {last}"));
    address.unwrap()
}

#[test]
fn a_client_with_ipv6_sockets_alone_calls_by_name() {
    let Some(mut mesh) = with_range() else { return };
    let _backend = mesh.machine("backend-1", &http("backend"));
    let client = mesh.machine("client-1", &http("client"));
    for host in ["backend.mesh", "backend.svc.mesh.local"] {
        let address = answers_ipv6_sockets(&client, host, "backend-1");
        let (found, v4) = client.addresses("ahostsv4", host);
        let v4: std::net::Ipv4Addr = v4.split_whitespace().next().unwrap().parse().unwrap();
        let prefix = u128::from("fd00:240::".parse::<Ipv6Addr>().unwrap());
        assert_eq!((found, u128::from(address)), (true, prefix | u128::from(v4.to_bits())), "{host}");
        for version in ["-4", "-6"] {
            client.reaches(version, &format!("http://{host}/"), "backend-1");
        }
    }
    // What is called passed the listener of the service, not the way out of the mesh.
    assert_eq!((client.passed("ipv6_outbound"), client.passed("ipv4_outbound")), (0, 0));
    let stats = client.proxy.admin("/stats?usedonly&filter=^listener.kri_msvc").unwrap();
    assert!(stats.contains("downstream_cx_total"), "{stats}");
}

#[test]
fn a_machine_without_any_ipv4_address_calls_and_is_called_by_name() {
    let Some(mut mesh) = with_range() else { return };
    let no_ipv4 = Wishes { by_ipv6: true, without_ipv4: true, ..Wishes::default() };
    let _backend = mesh.machine_with("backend-1", &http("backend"), &no_ipv4);
    let _queue = mesh.machine_with("queue-1", &tcp("queue"), &no_ipv4);
    let client = mesh.machine_with("client-1", &http("client"), &no_ipv4);
    let other = mesh.machine("other-1", &http("other"));
    answers_ipv6_sockets(&client, "backend.mesh", "backend-1");
    client.reaches("-6", "http://backend.svc.mesh.local/", "backend-1");
    client.sends_line("-6", "queue.mesh", 80, "queue-1");
    for version in ["-4", "-6"] {
        other.reaches(version, "http://backend.mesh/", "backend-1");
    }
}

#[test]
fn a_machine_without_a_route_for_ipv6_keeps_ipv4_mapped_answers() {
    let Some(mut mesh) = with_range() else { return };
    let _backend = mesh.machine("backend-1", &http("backend"));
    let client =
        mesh.machine_with("client-1", &http("client"), &Wishes { no_ipv6_route: true, ..Wishes::default() });
    for version in ["-4", "-6"] {
        client.reaches(version, "http://backend.mesh/", "backend-1");
    }
    let (found, said) = client.addresses("ahosts", "backend.mesh");
    assert!(found && said.contains("::ffff:") && !said.contains("fd00:"), "{said}");
}
