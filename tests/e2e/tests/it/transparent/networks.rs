//! Containers of a machine call by name through the machine's proxy.

use std::net::IpAddr;

use testkit::netns::Network;

use super::machines::{BY_SERVICE, Mesh, Wishes, http, reaches, url, version};

#[test]
fn containers_call_by_name_through_the_proxy_of_their_machine() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.apply(BY_SERVICE);
    let _backend = mesh.machine("backend-1", &http("backend"));
    let outside = mesh.outside("outside", &[8000]);
    let v4 = "docker0:10.88.0.0/24";
    let v6 = "docker+:fd88::/64";
    let wishes = Wishes {
        flags: vec![format!("--vnet={v4}"), format!("--vnet={v6}")],
        told: Some(format!("{{redirect: {{dns: {{enabled: true}}, vnet: {{networks: ['{v4}', '{v6}']}}}}}}")),
        ..Wishes::default()
    };
    let machine = mesh.machine_with("machine-1", &http("machine"), &wishes);
    // The network of containers may come after the rules and the proxy.
    let mut network = Network::behind(&machine.workload.namespace, "docker0").unwrap();
    assert_eq!(network.ranges(), ("10.88.0.0/24".to_owned(), "fd88::/64".to_owned()));
    let container = network.workload().unwrap().namespace;
    let container = container.with_resolv_conf(&mesh.files.path().join("resolv.conf"));
    machine.reaches("-4", "http://backend.mesh/", "backend-1");
    for version in ["-4", "-6"] {
        reaches(&container, version, "http://backend.mesh/", "backend-1");
        reaches(&container, version, "http://backend.svc.mesh.local/", "backend-1");
    }
    // The machine forwards nothing, so what is reached elsewhere has passed Envoy.
    for (ip, way) in
        [(IpAddr::from(outside.workload.v4), "ipv4_outbound"), (outside.workload.v6.into(), "ipv6_outbound")]
    {
        let before = machine.passed(way);
        reaches(&container, version(ip), &url(ip, 8000), "outside");
        assert!(machine.passed(way) > before, "{ip}");
    }
}
