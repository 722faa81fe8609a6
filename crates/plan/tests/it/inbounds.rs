//! Inbounds of a proxy, and the clients that they accept.

use std::net::IpAddr;

use plan::{Error, ProxyTraits, ServerTls};
use policy::{ClientMatch, Effect};
use topology::Protocol;

use crate::{
    findings::texts,
    support::{PLAIN, SECURED, mesh, plan, traits, unified, web},
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[track_caller]
fn check_workload(inbound: &str, listens: (&str, u16), workload: (&str, u16)) {
    let plan = plan(&[PLAIN, &web(&format!("inbound: [{inbound}]"))], &traits("web"));
    assert_eq!(plan.findings(), []);
    let planned = &plan.own.inbounds[0];
    assert_eq!((planned.address, planned.port), (ip(listens.0), listens.1));
    assert_eq!(planned.workload, (ip(workload.0), workload.1));
    assert!(planned.bind && !planned.from_loopback_source);
}

#[test]
fn the_application_is_where_the_inbound_says_or_where_the_proxy_is() {
    check_workload("{ port: 80 }", ("127.0.0.2", 80), ("127.0.0.2", 80));
    check_workload("{ port: 80, servicePort: 8080 }", ("127.0.0.2", 80), ("127.0.0.2", 8080));
    check_workload("{ port: 80, address: 127.0.0.9 }", ("127.0.0.9", 80), ("127.0.0.9", 80));
    check_workload("{ port: 80, serviceAddress: 127.0.0.1 }", ("127.0.0.2", 80), ("127.0.0.1", 80));
    check_workload("{ port: 80, serviceAddress: '::1' }", ("127.0.0.2", 80), ("::1", 80));
}

#[track_caller]
fn check_protocol(inbound: &str, expected: Protocol, findings: &[&str]) {
    let plan = plan(&[PLAIN, &web(&format!("inbound: [{inbound}]"))], &traits("web"));
    assert_eq!(
        (plan.own.inbounds[0].protocol, texts(&plan.findings())),
        (expected, findings.iter().map(|&p| p.to_owned()).collect())
    );
}

#[test]
fn the_protocol_is_the_field_then_the_tag_then_tcp() {
    let tag = |word: &str| format!("tags: {{ kuma.io/service: web, kuma.io/protocol: {word} }}");
    check_protocol("{ port: 80 }", Protocol::Tcp, &[]);
    check_protocol(&format!("{{ port: 80, {} }}", tag("grpc")), Protocol::Grpc, &[]);
    check_protocol(&format!("{{ port: 80, protocol: http2, {} }}", tag("grpc")), Protocol::Http2, &[]);
    check_protocol(
        &format!("{{ port: 80, {} }}", tag("smtp")),
        Protocol::Tcp,
        &[r#"inbound 80: protocol "smtp" is not one of grpc, http, http2, kafka, tcp; it is proxied as tcp"#],
    );
}

#[test]
fn inbounds_are_there_whatever_their_state() {
    let web = web("inbound:\n- { port: 80, state: Ignored }\n- { port: 81, state: NotReady }");
    let ports: Vec<_> = plan(&[PLAIN, &web], &traits("web")).own.inbounds.iter().map(|i| i.port).collect();
    assert_eq!(ports, [80, 81]);
}

#[track_caller]
fn check_finding(inbounds: &str, unified_naming: bool, ports: &[(&str, u16)], finding: &str) {
    let traits = if unified_naming { unified("web") } else { traits("web") };
    let plan = plan(&[PLAIN, &web(&format!("inbound: [{inbounds}]"))], &traits);
    let listens: Vec<_> = plan.own.inbounds.iter().map(|i| (i.address, i.port)).collect();
    let expected: Vec<_> = ports.iter().map(|&(address, port)| (ip(address), port)).collect();
    assert_eq!((listens, texts(&plan.findings())), (expected, vec![finding.to_owned()]));
}

#[test]
fn what_cannot_be_is_a_finding_and_the_rest_works() {
    check_finding(
        "{ name: a, port: 80 }, { name: b, port: 80 }, { port: 81 }",
        false,
        &[("127.0.0.2", 80), ("127.0.0.2", 81)],
        "inbound b: another inbound already listens at 127.0.0.2:80; the first one is used",
    );
    check_finding(
        "{ port: 80 }, { port: 80, address: 127.0.0.9 }",
        true,
        &[("127.0.0.2", 80)],
        "inbound 80: another inbound is already called self_80; give one of them another name",
    );
    check_finding(
        "{ port: 80, servicePort: 8080 }, { port: 80, servicePort: 8080, address: 127.0.0.9 }",
        false,
        &[("127.0.0.2", 80), ("127.0.0.9", 80)],
        "inbound 80: shares the cluster localhost:8080 with an inbound whose application is at 127.0.0.2; its traffic goes there too",
    );
    check_finding(
        "{ port: 80, address: web.local }, { port: 81 }",
        false,
        &[("127.0.0.2", 81)],
        r#"inbound 80: address "web.local" is not an IP address"#,
    );
    check_finding(
        "{ port: 80000 }, { port: 81 }",
        false,
        &[("127.0.0.2", 81)],
        "inbound 80000: port 80000 is not in the range 1 to 65535",
    );
    check_finding(
        "{ name: A_b, port: 80 }, { port: 81 }",
        false,
        &[("127.0.0.2", 81)],
        r#"inbound A_b: invalid section name "A_b": a port name may contain only lower case letters, digits, '-' and '.'"#,
    );
}

#[test]
fn permissions_are_asked_for_only_when_clients_can_be_told_apart() {
    let web = web("inbound: [{ port: 80, tags: { kuma.io/service: web } }]");
    let allow = r#"
type: MeshTrafficPermission
mesh: default
name: allow-backend
spec:
  from: [{ targetRef: { kind: MeshService, name: backend }, default: { action: Allow } }]
"#;
    let permissive = SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE");
    assert_eq!(plan(&[PLAIN, allow, &web], &traits("web")).own.inbounds[0].permissions, None);
    for (mesh, tls) in [(SECURED, ServerTls::Strict), (&*permissive, ServerTls::Permissive)] {
        let planned = plan(&[mesh, allow, &web], &traits("web"));
        assert_eq!(planned.own.inbounds[0].tls, tls);
        let rules = &planned.own.inbounds[0].permissions.as_ref().unwrap().rules;
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].effect, Effect::Allow);
        let tags = [("kuma.io/service".to_owned(), "backend".to_owned())];
        assert_eq!(rules[0].client, ClientMatch::Tags(tags.into()));
    }
    let nobody = plan(&[SECURED, &web], &traits("web"));
    assert_eq!(nobody.own.inbounds[0].permissions, Some(policy::Permissions::default()));
}

#[test]
fn a_proxy_without_a_dataplane_has_no_plan() {
    let error = plan::for_proxy(&mesh(&[PLAIN]), &traits("web")).unwrap_err();
    assert_eq!(error, Error::NoDataplane { mesh: "default".into(), name: "web".into() });
    assert_eq!(
        error.to_string(),
        "cannot plan proxy \"web\": there is no Dataplane of that name in mesh \"default\"; \
         create it or start kuma-dp with --dataplane-file"
    );
}

#[test]
fn kafka_requests_are_counted_only_by_proxies_that_can() {
    let web = web("inbound:\n\
         - { port: 80, tags: { kuma.io/protocol: kafka } }\n\
         - { port: 81, tags: { kuma.io/protocol: tcp } }\n");
    for able in [true, false] {
        let plan = plan(&[PLAIN, &web], &ProxyTraits { kafka_filter: able, ..traits("web") });
        let counted: Vec<bool> = plan.own.inbounds.iter().map(|inbound| inbound.kafka_filter).collect();
        assert_eq!(counted, [able, false]);
    }
}
