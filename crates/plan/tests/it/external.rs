//! Destinations outside the mesh.

use plan::{ExternalAuthorities, ExternalTls, ProxyTraits, San, TlsVersion};

use crate::{
    findings::texts,
    planned::{Planned, planned},
    support::traits,
};

fn caller(tls: &str, system_ca_path: Option<&str>) -> Planned {
    let service = format!(
        "type: MeshExternalService\nmesh: default\nname: shop\nspec:\n  match: {{ type: HostnameGenerator, port: 443, protocol: http }}\n  \
         endpoints: [{{ address: shop.example.com, port: 8443 }}, {{ address: 127.0.0.7, port: 8443 }}]\n  {tls}\n"
    );
    let web = "outbound: [{ port: 10001, backendRef: { kind: MeshExternalService, name: shop } }]";
    let traits = ProxyTraits { system_ca_path: system_ca_path.map(str::to_owned), ..traits("web") };
    planned().with(&[&service]).web(web).traits(&traits)
}

#[track_caller]
fn check(tls: &str, system: Option<&str>, expected: &ExternalTls) {
    let plan = caller(tls, system).plan();
    assert_eq!(plan.findings(), []);
    assert_eq!(plan.outgoing.backends[0].external.as_ref().unwrap().tls.as_ref(), Some(expected));
}

#[test]
fn certificates_are_verified_as_the_service_says() {
    let secured = ExternalTls {
        server_name: None,
        names: vec![San::Ip("127.0.0.7".to_owned()), San::Dns("shop.example.com".to_owned())],
        authorities: ExternalAuthorities::File("/etc/ca.pem".to_owned()),
        client: None,
        min: None,
        max: None,
        allow_renegotiation: false,
    };
    let system = Some("/etc/ca.pem");
    check("tls: { enabled: true }", system, &secured);
    check(
        "tls: { enabled: true, version: { min: TLS12, max: TLS13 }, verification: { serverName: a.example.com } }",
        system,
        &ExternalTls {
            server_name: Some("a.example.com".to_owned()),
            names: vec![San::Dns("a.example.com".to_owned())],
            min: Some(TlsVersion::Tls12),
            max: Some(TlsVersion::Tls13),
            ..secured.clone()
        },
    );
    check(
        "tls: { enabled: true, verification: { subjectAltNames: [{ type: Prefix, value: a. }], caCert: { inlineString: CERTIFICATE----- } } }",
        None,
        &ExternalTls {
            names: vec![San::DnsPrefix("a.".to_owned())],
            authorities: ExternalAuthorities::Pem("CERTIFICATE-----".to_owned()),
            ..secured.clone()
        },
    );
    check(
        "tls: { enabled: true, verification: { mode: SkipSAN, caCert: { inline: Q0VSVElGSUNBVEUtLS0tLQ== } } }",
        None,
        &ExternalTls {
            names: Vec::new(),
            authorities: ExternalAuthorities::Pem("CERTIFICATE-----".to_owned()),
            ..secured.clone()
        },
    );
    check(
        "tls: { enabled: true, verification: { mode: SkipAll } }",
        None,
        &ExternalTls { names: Vec::new(), authorities: ExternalAuthorities::Anyone, ..secured },
    );
}

#[test]
fn what_cannot_be_verified_is_not_offered() {
    for (tls, finding) in [
        (
            "tls: { enabled: true }",
            "its certificate cannot be verified: the proxy found no authorities on its machine; give tls.verification.caCert",
        ),
        (
            "tls: { enabled: true, verification: { caCert: { secret: ca } } }",
            "tls.verification.caCert refers to secret \"ca\", which does not exist in the mesh or is one of its signing keys; create another secret",
        ),
        (
            "tls: { enabled: true, verification: { caCert: { inlineString: nothing } } }",
            "tls.verification.caCert is not in PEM form: it has no line with \"CERTIFICATE-----\"",
        ),
    ] {
        let plan = caller(tls, None).plan();
        assert_eq!(
            (plan.outgoing.outbounds.len(), texts(&plan.findings())),
            (0, vec![format!("outbound 127.0.0.1:10001: {finding}")])
        );
    }
}

#[test]
fn keys_are_not_shown() {
    let tls = "tls: { enabled: true, verification: { mode: SkipCA, clientCert: { inlineString: CERTIFICATE----- }, clientKey: { inlineString: SECRET PRIVATE KEY----- } } }";
    let plan = caller(tls, None).plan();
    assert!(plan.outgoing.backends[0].external.as_ref().unwrap().tls.as_ref().unwrap().client.is_some());
    assert!(!format!("{plan:?}").contains("SECRET"));
}
