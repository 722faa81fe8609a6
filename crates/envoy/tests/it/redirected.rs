//! Redirected connections, and where the virtual addresses lead that a hostname stands for.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use plan::ProxyTraits;
use topology::{MeshSnapshot, VirtualHost, VirtualPort};

use crate::{
    passthrough::{World, saying},
    support::{PLAIN, traits, unified},
};

/// Two versions of a service at the same port, and what refers to their tags.
pub fn documents(port: u16) -> String {
    let dataplane = |version: u8| {
        format!(
            "type: Dataplane\nmesh: default\nname: v{version}\nnetworking: {{ address: 127.54.0.{version}, inbound: \
             [{{ port: {port}, tags: {{ kuma.io/service: backend, version: v{version} }} }}], outbound: \
             [{{ port: 1, tags: {{ kuma.io/service: backend }} }}, {{ port: 2, tags: {{ kuma.io/service: backend, version: v2 }} }}] }}"
        )
    };
    let service = format!(
        "type: MeshService\nmesh: default\nname: first\nspec: {{ selector: {{ dataplaneTags: {{ version: v1 }} }}, \
         ports: [{{ port: 80, targetPort: {port} }}] }}\nstatus: {{ vips: [{{ ip: 241.0.0.1 }}] }}"
    );
    [dataplane(1), dataplane(2), service].join("\n---\n")
}

pub fn add_hosts(snapshot: &mut MeshSnapshot) {
    let backend = ("kuma.io/service".to_owned(), "backend".to_owned());
    let v2 = ("version".to_owned(), "v2".to_owned());
    for (hostname, vip, port, tags) in [
        ("backend.mesh", [240, 0, 0, 1], 80, vec![backend.clone()]),
        ("v2.backend.mesh", [240, 0, 0, 2], 8080, vec![backend, v2]),
    ] {
        let hostname: Arc<str> = hostname.into();
        let tags = Arc::new(tags.into_iter().collect::<BTreeMap<_, _>>());
        let ports = BTreeMap::from([(port, VirtualPort { policy: Some("vo".into()), tags })]);
        let host = VirtualHost { hostname, vip: Some(vip.into()), ports };
        snapshot.virtual_hosts.insert(host);
    }
}

#[test]
fn a_real_envoy_serves_its_virtual_addresses_and_no_others() {
    let port = saying(("127.54.0.1", 0), "v1").port();
    saying(("127.54.0.2", port), "v2");
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    let documents = documents(port);
    let at = |address: &str| address.parse::<SocketAddr>().unwrap();
    let backends = ", reachableBackends: { refs: [{ kind: MeshService, name: first }] }";
    for (redirection, by_name, by_service) in
        [("", true, true), (", reachableServices: [backend]", true, false), (backends, false, true)]
    {
        for traits in [traits("web"), unified("web")] {
            let world = World::changed(&traits, redirection, &[&closed, &documents], add_hosts);
            let heard = |to: &str| {
                let answer = world.say(at(to), b"hello\n");
                answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
            };
            assert_eq!(heard("240.0.0.2:8080"), if by_name { "v2" } else { "" }, "{redirection}");
            assert_eq!(!heard("240.0.0.1:80").is_empty(), by_name, "{redirection}");
            assert_eq!(heard("241.0.0.1:80"), if by_service { "v1" } else { "" }, "{redirection}");
            assert_eq!(heard("240.0.0.2:80"), "", "{redirection}: at no other port");
        }
    }
}

#[test]
fn envoy_answers_at_ipv6_virtual_addresses_under_their_ipv4_names() {
    let port = saying(("127.55.0.1", 0), "v1").port();
    saying(("127.55.0.2", port), "v2");
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    let documents = documents(port).replace("127.54.", "127.55.");
    for (traits, stats) in [
        (traits("web"), "listener.240.0.0.2_8080.downstream_cx_total: 2"),
        (unified("web"), ".downstream_cx_total: 2"),
    ] {
        let traits = ProxyTraits { ipv6_routed: true, ..traits };
        let world = World::of_both_versions(&traits, &[&closed, &documents], |snapshot| {
            add_hosts(snapshot);
            snapshot.ipv6_prefix = Some("fd00:240::/96".parse().unwrap());
        });
        for (at, expected) in [
            ("240.0.0.2:8080", "v2"),
            ("[fd00:240::f000:2]:8080", "v2"),
            ("241.0.0.1:80", "v1"),
            ("[fd00:240::f100:1]:80", "v1"),
            ("[fd00:240::f000:2]:80", ""),
            ("[fd00:241::f000:2]:8080", ""),
        ] {
            let answer = world.say(at.parse().unwrap(), b"hello\n");
            assert_eq!(answer.rsplit("\r\n").next().unwrap_or_default(), expected, "{at}");
        }
        let listeners = world.admin("/stats?usedonly&filter=^listener");
        assert!(listeners.contains(stats), "{listeners}");
        assert!(!listeners.contains("fd00"), "{listeners}");
    }
}
