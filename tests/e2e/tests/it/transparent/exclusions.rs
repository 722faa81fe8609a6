//! Excluded traffic does not pass Envoy: it is not counted there on its way out, and reaches the application without
//! mutual TLS on its way in.

use std::net::IpAddr;

use testkit::netns::Workload;

use super::machines::{APPLICATION, Machine, Mesh, curl, http, is_from, serve, url, version};

/// Another user than the one of the application.
const OTHER: u32 = 61_235;

fn addresses(workload: &Workload) -> [IpAddr; 2] {
    [workload.v4.into(), workload.v6.into()]
}

fn flags(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|&flag| flag.to_owned()).collect()
}

/// Calls a service outside of the mesh; whether Envoy has counted the connection.
fn passes_envoy(client: &Machine, user: u32, ip: IpAddr, port: u16) -> bool {
    let way = if ip.is_ipv4() { "ipv4_outbound" } else { "ipv6_outbound" };
    let before = client.passed(way);
    let (done, said) = curl(&client.workload.namespace, user, version(ip), &url(ip, port));
    assert!(done && is_from(&said, "outside"), "{ip} port {port}: {said}");
    match client.passed(way) - before {
        0 => false,
        1 => true,
        more => panic!("one call to {ip} made {more} connections"),
    }
}

#[test]
fn excluded_ports_users_and_addresses_are_called_without_envoy() {
    let Some(mut mesh) = Mesh::start() else { return };
    let client = mesh.machine("client-1", &http("client"));
    let (outside, other) = (mesh.outside("outside-1", &[8000, 8001]), mesh.outside("outside-2", &[8000]));
    let install = |given: &[&str]| mesh.install(&client.workload.namespace, &flags(given));
    for ip in addresses(&outside.workload) {
        for (user, port) in [(APPLICATION, 8000), (APPLICATION, 8001), (OTHER, 8000)] {
            assert!(passes_envoy(&client, user, ip, port), "nothing is excluded: {user} to {ip} port {port}");
        }
    }
    install(&["--exclude-outbound-ports=8000"]);
    for ip in addresses(&outside.workload) {
        assert!(!passes_envoy(&client, APPLICATION, ip, 8000), "the excluded port of {ip}");
        assert!(passes_envoy(&client, APPLICATION, ip, 8001), "another port of {ip}");
    }
    install(&[&format!("--exclude-outbound-ports-for-uids=tcp:8000:{APPLICATION}")]);
    for ip in addresses(&outside.workload) {
        assert!(!passes_envoy(&client, APPLICATION, ip, 8000), "the excluded user to {ip}");
        assert!(passes_envoy(&client, OTHER, ip, 8000), "another user to {ip}");
        assert!(passes_envoy(&client, APPLICATION, ip, 8001), "another port of the user to {ip}");
    }
    let [v4, v6] = addresses(&outside.workload);
    install(&[&format!("--exclude-outbound-ips={v4}/32,{v6}")]);
    for (excluded, redirected) in addresses(&outside.workload).into_iter().zip(addresses(&other.workload)) {
        assert!(!passes_envoy(&client, APPLICATION, excluded, 8000), "the excluded address {excluded}");
        assert!(passes_envoy(&client, APPLICATION, redirected, 8000), "another address, {redirected}");
    }
}

#[test]
fn excluded_ports_and_callers_reach_the_application_without_mutual_tls() {
    let Some(mut mesh) = Mesh::start() else { return };
    let server = mesh.machine("server-1", &http("server"));
    let caller = mesh.outside("outside-1", &[]);
    let other = mesh.outside("outside-2", &[]);
    let install = |given: &[&str]| mesh.install(&server.workload.namespace, &flags(given));
    let [v4, v6] = addresses(&server.workload);
    let services = [(v4, 80), (v4, 81), (v6, 81)];
    let _more = serve(&server.workload.namespace, "server-1", &services[1..]);
    for (ip, port) in services {
        let (done, said) = caller.curl(&url(ip, port));
        assert!(!done, "nothing is excluded, and a call without TLS is refused: {ip} port {port}: {said}");
    }
    install(&["--exclude-inbound-ports=81"]);
    for (ip, port) in services {
        let (done, said) = caller.curl(&url(ip, port));
        assert_eq!(done && is_from(&said, "server-1"), port == 81, "{ip} port {port}: {said}");
    }
    let [from4, from6] = addresses(&caller.workload);
    install(&[&format!("--exclude-inbound-ips={from4}"), &format!("--exclude-inbound-ips={from6}/128")]);
    for (ip, port) in services {
        let (done, said) = caller.curl(&url(ip, port));
        assert!(done && is_from(&said, "server-1"), "the excluded caller to {ip} port {port}: {said}");
        let (done, said) = other.curl(&url(ip, port));
        assert!(!done, "another caller to {ip} port {port}: {said}");
    }
}
