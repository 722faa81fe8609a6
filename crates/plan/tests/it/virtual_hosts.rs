//! Hostnames that VirtualOutbounds create, and those of services: what is offered under them.

use std::{collections::BTreeMap, sync::Arc};

use plan::{HostnameOrigin, ProxyPlan, ProxyTraits};
use topology::{DestinationId, MeshSnapshot, VirtualHost, VirtualPort};

use crate::{
    findings::texts,
    support::{PLAIN, mesh, traits, unified, web},
};

const BACKEND: &str = r#"
type: MeshService
mesh: default
name: backend
labels: { kuma.io/zone: east, team: shop }
spec:
  selector: { dataplaneTags: { kuma.io/service: backend } }
  ports:
    - { name: http, port: 80, targetPort: 8080, appProtocol: http }
    - { port: 9000, targetPort: 9000 }
status:
  vips: [{ ip: 241.0.0.1 }]
  addresses: [{ hostname: backend.svc.mesh.local, status: Available, origin: HostnameGenerator }]
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 127.0.0.3
  inbound:
    - { name: http, port: 8080, servicePort: 18080, tags: { kuma.io/service: backend, kuma.io/protocol: http, version: v1 } }
    - { port: 9000, servicePort: 19000, tags: { kuma.io/service: backend, kuma.io/protocol: tcp, version: v2 } }
---
type: Dataplane
mesh: default
name: asks-for-tags
networking:
  address: 127.0.0.4
  outbound:
    - { port: 1, tags: { kuma.io/service: backend } }
    - { port: 2, tags: { kuma.io/service: backend, version: v1 } }
    - { port: 3, tags: { kuma.io/service: other } }
"#;

fn tags(of: &[(&str, &str)]) -> Arc<BTreeMap<String, String>> {
    Arc::new(of.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Names and values.
type Tags = &'static [(&'static str, &'static str)];

/// A hostname, its address, and the tags that each port leads to.
type Host = (&'static str, &'static str, &'static [(u16, Tags)]);

/// The mesh with these hostnames.
fn hosts(documents: &[&str], hosts: &[Host]) -> MeshSnapshot {
    let mut snapshot = MeshSnapshot::clone(&mesh(documents));
    for (hostname, vip, ports) in hosts {
        let hostname: Arc<str> = (*hostname).into();
        let port =
            |(port, to): &(u16, Tags)| (*port, VirtualPort { policy: Some("vo".into()), tags: tags(to) });
        let vip = vip.parse().ok();
        let host = VirtualHost { hostname, vip, ports: ports.iter().map(port).collect() };
        snapshot.virtual_hosts.insert(host);
    }
    snapshot
}

const ALL: &[Host] = &[
    (
        "backend.mesh",
        "240.0.0.1",
        &[(80, &[("kuma.io/service", "backend")]), (81, &[("kuma.io/service", "backend")])],
    ),
    ("other.mesh", "240.0.0.3", &[(80, &[("kuma.io/service", "other")])]),
    ("pending.mesh", "", &[(80, &[("kuma.io/service", "backend")])]),
    ("v1.backend.mesh", "240.0.0.2", &[(8080, &[("kuma.io/service", "backend"), ("version", "v1")])]),
];

fn planned(mode: &str, transparent: &str, traits: &ProxyTraits) -> ProxyPlan {
    let mode = PLAIN.replace("Exclusive", mode);
    let snapshot = hosts(&[&mode, BACKEND, &web(&format!("transparentProxying: {transparent}"))], ALL);
    plan::for_proxy(&snapshot, traits).unwrap()
}

/// Returns the addresses where destinations chosen by tags are offered, and the clusters they lead to.
fn tagged(plan: &ProxyPlan) -> Vec<String> {
    let tagged = plan.outgoing.outbounds.iter().filter(|o| matches!(o.destination, DestinationId::Tags(_)));
    tagged.map(|o| format!("{}:{} {} {}", o.address, o.port, o.names.listener, o.names.cluster)).collect()
}

#[test]
fn every_hostname_is_offered_at_its_address_in_every_mode() {
    let listed = [
        "240.0.0.1:80 outbound:240.0.0.1:80 backend",
        "240.0.0.1:81 outbound:240.0.0.1:81 backend",
        "240.0.0.3:80 outbound:240.0.0.3:80 other",
        "240.0.0.2:8080 outbound:240.0.0.2:8080 <part>",
    ];
    let expected = |found: &[String]| {
        let cluster = found.last().and_then(|last| last.rsplit_once(' ')).unwrap().1.to_owned();
        assert!(cluster.starts_with("backend-"), "a part of a service by tags: {cluster}");
        listed.map(|line| line.replace("<part>", &cluster))
    };
    for mode in ["Exclusive", "Everywhere", "ReachableBackends", "Disabled"] {
        for traits in [traits("web"), unified("web")] {
            let plan = planned(mode, "{}", &traits);
            let found = tagged(&plan);
            assert_eq!(found, expected(&found), "{mode}");
            assert!(plan.outgoing.outbounds.iter().all(|outbound| !outbound.bind));
            // A name without an address does not resolve, and nothing is offered.
            let names: Vec<&str> = plan.outgoing.hostnames.by_name.keys().map(|name| &**name).collect();
            let service = (mode != "ReachableBackends").then_some("backend.svc.mesh.local");
            let known = ["backend.mesh", "other.mesh", "v1.backend.mesh"].into_iter().chain(service);
            let known: std::collections::BTreeSet<&str> = known.collect();
            assert_eq!(names, known.into_iter().collect::<Vec<_>>(), "{mode}");
        }
    }
}

#[test]
fn without_redirection_no_hostname_is_offered() {
    let snapshot = hosts(&[PLAIN, BACKEND, &web("inbound: [{ port: 80 }]")], ALL);
    let plan = plan::for_proxy(&snapshot, &traits("web")).unwrap();
    assert_eq!((plan.outgoing.outbounds.len(), plan.outgoing.hostnames.by_name.len()), (0, 0));
}

#[test]
fn reachable_services_narrow_hostnames_and_explicit_backends_leave_none() {
    let count = |mode: &str, transparent: &str| {
        let plan = planned(mode, transparent, &traits("web"));
        let names: Vec<String> = plan.outgoing.hostnames.by_name.keys().map(ToString::to_string).collect();
        (tagged(&plan).len(), plan.outgoing.outbounds.len(), names.join(" "))
    };
    for mode in ["Exclusive", "Everywhere"] {
        let of_other = (1, 1, "other.mesh".to_owned());
        assert_eq!(count(mode, "{ reachableServices: [other] }"), of_other);
        assert_eq!(count(mode, "{ reachableServices: [nobody] }"), (0, 0, String::new()));
        let backend = "{ kind: MeshService, name: backend, port: 80 }";
        let explicit = format!("{{ reachableBackends: {{ refs: [{backend}] }} }}");
        assert_eq!(count(mode, &explicit), (0, 1, "backend.svc.mesh.local".to_owned()));
        let both = format!("{{ reachableServices: [other], reachableBackends: {{ refs: [{backend}] }} }}");
        assert_eq!(count(mode, &both), (1, 2, "backend.svc.mesh.local other.mesh".to_owned()));
        assert_eq!(count(mode, "{ reachableBackends: { refs: [] } }"), (0, 0, String::new()));
    }
}

#[test]
fn a_virtual_outbound_takes_a_hostname_and_leaves_the_other_ports() {
    const TAKEN_OVER: Host =
        ("backend.svc.mesh.local", "240.0.0.9", &[(80, &[("kuma.io/service", "backend")])]);
    let snapshot = hosts(&[PLAIN, BACKEND, &web("transparentProxying: {}")], &[TAKEN_OVER]);
    for traits in [traits("web"), unified("web")] {
        let plan = plan::for_proxy(&snapshot, &traits).unwrap();
        let hostname = &plan.outgoing.hostnames.by_name["backend.svc.mesh.local"];
        let addresses: Vec<String> = hostname.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["240.0.0.9"]);
        assert_eq!(hostname.ports[&80].origin, HostnameOrigin::VirtualOutbound("vo".into()));
        assert!(matches!(hostname.ports[&9000].origin, HostnameOrigin::Service(_)));
        // Both ports are there at the address that the hostname stands for.
        let mut at: Vec<_> = plan
            .outgoing
            .outbounds
            .iter()
            .flat_map(|o| [(o.address, o.port)].into_iter().chain(o.also_at.iter().copied()))
            .filter(|(address, _)| address.to_string() == "240.0.0.9")
            .map(|(_, port)| port)
            .collect();
        at.sort_unstable();
        assert_eq!(at, [80, 9000]);
        let lost = "backend.svc.mesh.local:80 is claimed by VirtualOutbound \"vo\" for kuma.io/service=backend and \
                    by MeshService \"backend\"; the first one has it";
        assert_eq!(texts(&plan.findings()), [lost]);
        // The author sees it, whether a proxy is offered both or not.
        let policy = "type: VirtualOutbound\nmesh: default\nname: vo\n\
                      selectors: [{ match: { kuma.io/service: backend } }]\n\
                      conf:\n  host: '{{.s}}.svc.mesh.local'\n  port: '80'\n\
                      \x20 parameters: [{ name: s, tagKey: kuma.io/service }]";
        let written = mesh(&[PLAIN, BACKEND, policy]);
        let told: Vec<String> = plan::claimed_twice(&written, "vo").iter().map(ToString::to_string).collect();
        assert_eq!(told, [lost]);
        assert_eq!(plan::claimed_twice(&written, "another").len(), 0);
    }
}

/// The facts' vectors of `reachableBackends`, with Kuma's quirks mended.
#[test]
fn references_to_backends_mean_every_port_and_service_by_labels() {
    let service = |name: &str, vip: &str, label: &str| {
        format!(
            "type: MeshService\nmesh: default\nname: {name}\nlabels: {{ kuma.io/zone: test-zone, kind: {label} }}\n\
             spec: {{ ports: [{{ name: main-port, port: 80 }}, {{ port: 81 }}] }}\nstatus: {{ vips: [{{ ip: {vip} }}] }}"
        )
    };
    let services = [
        service("test-server-1", "241.0.0.1", "a"),
        service("test-server-2", "241.0.0.2", "a"),
        service("test-server-3", "241.0.0.3", "b"),
    ];
    let offered = |refs: &str| {
        let web = web(&format!("transparentProxying: {{ reachableBackends: {{ refs: [{refs}] }} }}"));
        let documents: Vec<&str> =
            [PLAIN].into_iter().chain(services.iter().map(String::as_str)).chain([&*web]).collect();
        let plan = plan::for_proxy(&mesh(&documents), &unified("web")).unwrap();
        plan.outgoing.outbounds.iter().map(|o| o.names.listener.clone()).collect::<Vec<_>>().join(" ")
    };
    let port = |server: u8, port: &str| format!("kri_msvc_default_test-zone__test-server-{server}_{port}");
    assert_eq!(
        offered(
            "{ kind: MeshService, name: test-server-1, port: 80 }, { kind: MeshService, name: test-server-2 }"
        ),
        [port(1, "main-port"), port(2, "81"), port(2, "main-port")].join(" ")
    );
    assert_eq!(offered(""), "");
    assert_eq!(
        offered("{ kind: MeshService, labels: { kind: a }, port: 80 }"),
        [port(1, "main-port"), port(2, "main-port")].join(" ")
    );
    assert_eq!(
        offered("{ kind: MeshService, labels: { kind: b } }"),
        [port(3, "81"), port(3, "main-port")].join(" ")
    );
    assert_eq!(offered("{ kind: MeshService, name: test-server-1, namespace: elsewhere }"), "");
}

/// The agent's document of a proxy whose agent answers queries.
fn records(transparent: &str, traits: &ProxyTraits) -> Option<plan::AgentPart> {
    let plan = planned("Exclusive", transparent, &ProxyTraits { resolver: true, ..traits.clone() });
    assert_eq!(plan.own.agent.is_some_and(|agent| agent.with_hostnames), plan.outgoing.records.is_some());
    plan.outgoing.records
}

#[test]
fn agents_are_sent_the_offered_hostnames_as_kuma_writes_them() {
    let part = records("{ reachableServices: [other] }", &traits("web")).unwrap();
    assert_eq!(
        part.body,
        r#"{"records":[{"name":"other.mesh","ips":["240.0.0.3","::ffff:f000:3"]}],"ttl":30}"#
    );
    assert_eq!(
        (part.path, part.route.as_str(), part.not_modified.as_str()),
        ("/dns", "_kuma:dynamicconfig:/dns", "")
    );
    assert_eq!(part.etag.len(), 64);
    let part = records("{}", &unified("web")).unwrap();
    assert_eq!(
        part.body,
        r#"{"records":[{"name":"backend.mesh","ips":["240.0.0.1","::ffff:f000:1"]},{"name":"backend.svc.mesh.local","ips":["241.0.0.1","::ffff:f100:1"]},{"name":"other.mesh","ips":["240.0.0.3","::ffff:f000:3"]},{"name":"v1.backend.mesh","ips":["240.0.0.2","::ffff:f000:2"]}],"ttl":30}"#
    );
    assert_eq!(part.route, "system_dynamicconfig_dns");
    assert_eq!(part.not_modified, "system_dynamicconfig_dns_not_modified");
    let nothing = records("{ reachableBackends: { refs: [] } }", &traits("web")).unwrap();
    assert_eq!(nothing.body, r#"{"records":[],"ttl":30}"#);
}

#[test]
fn twins_of_ipv6_are_sent_only_where_it_is_redirected() {
    let only = |transparent: &str, ipv6: bool| {
        records(transparent, &ProxyTraits { ipv6, ..traits("web") }).unwrap().body
    };
    let other = |mode: &str| format!("{{ reachableServices: [other], {mode} }}");
    let v4 = r#"{"records":[{"name":"other.mesh","ips":["240.0.0.3"]}],"ttl":30}"#;
    assert_eq!(only(&other("ipFamilyMode: IPv4"), true), v4);
    assert_eq!(only(&other("ipFamilyMode: DualStack"), false), v4);
    assert!(only(&other("ipFamilyMode: DualStack"), true).contains("::ffff:f000:3"));
}

#[test]
fn agents_that_answer_no_queries_are_sent_no_hostnames() {
    assert_eq!(planned("Exclusive", "{}", &traits("web")).outgoing.records, None);
    let elsewhere = ProxyTraits { work_dir: String::new(), ..traits("web") };
    assert_eq!(records("{}", &elsewhere), None);
    let bound = ProxyTraits { bind_outbounds: true, ..traits("web") };
    assert_eq!(records("{}", &bound), None);
}
