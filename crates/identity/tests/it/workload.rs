use std::time::Duration;

use identity::{
    Authority, Error,
    ca::trust_bundle,
    workload::{Certificate, issue, names, rotation},
};
use jiff::{Timestamp, ToSpan};
use resources::{Key, Kind};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use testkit::build::{dataplane, mesh};
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

use crate::{
    ca::{authority, builtin_mesh, provided, with_roots},
    noon, snapshot,
    tls::{Side, handshake},
};

pub fn web(mesh: &str) -> Key {
    Key::new(Kind::Dataplane, mesh, "web-1")
}

pub fn names_of_web(mesh: &str) -> Vec<String> {
    let web = dataplane("web-1").in_mesh(mesh).inbound(80).service("web").tag("version", "v1");
    names(&web.build()).unwrap()
}

fn sign(authority: &Authority) -> Certificate {
    let mesh = authority.mesh();
    issue(authority, &web(mesh), &names_of_web(mesh), noon(), None).unwrap()
}

#[test]
fn names_are_services_then_tags_each_once() {
    let served = [("web", "v2"), ("api", "v1"), ("web", "v1")];
    let proxy = served.into_iter().fold(dataplane("web-1").in_mesh("m"), |proxy, (service, version)| {
        proxy.inbound(80).service(service).tag("version", version).tag("a", "1")
    });
    let proxy = proxy.build();
    let expect = [
        "spiffe://m/api",
        "spiffe://m/web",
        "kuma://a/1",
        "kuma://kuma.io/service/api",
        "kuma://kuma.io/service/web",
        "kuma://version/v1",
        "kuma://version/v2",
    ];
    assert_eq!(names(&proxy).unwrap(), expect);
    let gateway = json!({ "gateway": { "tags": { "kuma.io/service": "edge" } } });
    let gateway = dataplane("web-1").in_mesh("m").networking(gateway).build();
    assert_eq!(names(&gateway).unwrap(), ["spiffe://m/edge", "kuma://kuma.io/service/edge"]);
}

#[test]
fn a_proxy_that_is_no_service_proves_its_mesh_and_nothing_else() {
    let check = |networking: Value, expect: &str| {
        let error = names(&dataplane("web-1").in_mesh("m").networking(networking).build()).unwrap_err();
        assert!(matches!(&error, Error::Names(reason) if reason.contains(expect)), "{error}");
    };
    for networking in [json!({}), json!({ "inbound": [{ "port": 80, "tags": { "version": "v1" } }] })] {
        assert_eq!(
            names(&dataplane("web-1").in_mesh("m").networking(networking).build()).unwrap(),
            ["spiffe://m"]
        );
    }
    check(
        json!({ "inbound": [{ "port": 80, "tags": { "kuma.io/service": "wäb" } }] }),
        "no certificate can hold",
    );
}

#[test]
fn a_certificate_says_exactly_who_the_proxy_is_and_for_how_long() {
    let stored = snapshot(builtin_mesh("default"));
    let signed = sign(&Authority::load(&stored, "default", "ca-1", noon()).unwrap());
    assert_eq!((&*signed.facts.backend, signed.facts.expires), ("ca-1", noon() + 24.hours()));
    let der = CertificateDer::from_pem_slice(signed.chain.as_bytes()).unwrap();
    let (_, leaf) = X509Certificate::from_der(&der).unwrap();
    let expect =
        ["spiffe://default/web", "kuma://kuma.io/service/web", "kuma://version/v1"].map(GeneralName::URI);
    assert_eq!(leaf.subject_alternative_name().unwrap().unwrap().value.general_names, expect);
    assert_eq!(leaf.validity().not_before.timestamp(), noon().as_second() - 10);
    assert_eq!(leaf.validity().not_after.timestamp(), signed.facts.expires.as_second());
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && usage.client_auth && !leaf.is_ca());
    assert_eq!(signed.chain.matches("BEGIN CERTIFICATE").count(), 1, "the root is no part of the chain");
}

#[test]
fn the_life_time_is_the_backends_and_never_longer_than_the_authoritys() {
    let check = |conf: Value, expect: Timestamp| {
        let rotation = json!({ "rotation": { "expiration": "2h30m" } });
        let backend = json!({ "name": "b", "type": "builtin", "dpCert": rotation, "conf": conf });
        let stored = snapshot(with_roots(mesh("default").backend(backend).draft()));
        let signed = sign(&Authority::load(&stored, "default", "b", noon()).unwrap());
        assert_eq!(signed.facts.expires, expect);
    };
    check(json!({}), noon() + 150.minutes());
    check(json!({ "caCert": { "expiration": "1h" } }), noon() + 1.hour());
}

#[test]
fn proxies_of_a_mesh_talk_and_those_of_another_are_refused() {
    let stored = ["one", "two"].map(|mesh| snapshot(builtin_mesh(mesh)));
    let bundles = ["one", "two"].map(|mesh| trust_bundle(&stored[usize::from(mesh == "two")], mesh).pem);
    let signed = ["one", "two"].map(|mesh| {
        sign(&Authority::load(&stored[usize::from(mesh == "two")], mesh, "ca-1", noon()).unwrap())
    });
    let side = |signed: usize, trusts: usize| (signed, trusts);
    let connect = |client: (usize, usize), server: (usize, usize)| {
        let [client, server] = [client, server].map(|(certificate, trusts)| Side {
            chain: &signed[certificate].chain,
            key: signed[certificate].private_key(),
            trusts: &bundles[trusts],
        });
        handshake(&client, &server, None)
    };
    connect(side(0, 0), side(0, 0)).unwrap();
    connect(side(1, 1), side(1, 1)).unwrap();
    let stranger_calls = connect(side(1, 0), side(0, 0)).unwrap_err().to_string();
    assert!(stranger_calls.contains("certificate"), "{stranger_calls}");
    let stranger_answers = connect(side(0, 0), side(1, 0)).unwrap_err().to_string();
    assert!(stranger_answers.contains("certificate"), "{stranger_answers}");
}

#[test]
fn while_backends_are_exchanged_old_and_fresh_certificates_are_believed() {
    let mesh = mesh("default").authority("old", "STRICT").authority("new", "STRICT");
    let stored = snapshot(with_roots(mesh.draft()));
    let trusts = trust_bundle(&stored, "default").pem;
    let [old, new] =
        ["old", "new"].map(|backend| sign(&Authority::load(&stored, "default", backend, noon()).unwrap()));
    let [old, new] = [&old, &new].map(|c| Side { chain: &c.chain, key: c.private_key(), trusts: &trusts });
    handshake(&old, &new, None).unwrap();
    handshake(&new, &old, None).unwrap();
}

#[test]
fn control_planes_sign_the_same_bytes_for_the_same_proxy() {
    let stored = snapshot(builtin_mesh("default"));
    let load = || Authority::load(&stored, "default", "ca-1", noon()).unwrap();
    let here = sign(&load());
    let there = sign(&load());
    assert_eq!(here, there);
    let names = names_of_web("default");
    let check = |proxy: &str, names: &[String], at: Timestamp| {
        let proxy = Key::new(Kind::Dataplane, "default", proxy);
        let other = issue(&load(), &proxy, names, at, None).unwrap();
        assert!(other.private_key() != here.private_key() && other.chain != here.chain);
    };
    check("web-2", &names, noon());
    check("web-1", &names[..1], noon());
    check("web-1", &names, noon() + 1.second());
}

#[test]
fn authorities_with_any_common_kind_of_key_sign() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let cert = params.self_signed(&key).unwrap().pem();
        let inline = |text: &str| json!({ "inlineString": text });
        let stored = snapshot([provided(inline(&cert), inline(&key.serialize_pem()))]);
        let signed = sign(&Authority::load(&stored, "default", "own", noon()).unwrap());
        let trusts = trust_bundle(&stored, "default").pem;
        let side = Side { chain: &signed.chain, key: signed.private_key(), trusts: &trusts };
        handshake(&side, &side, None).unwrap();
    }
}

#[test]
fn a_certificate_does_not_show_its_key() {
    let (cert, key) = authority(|_| ());
    let stored = snapshot([provided(json!({ "inlineString": cert }), json!({ "inlineString": key }))]);
    let signed = sign(&Authority::load(&stored, "default", "own", noon()).unwrap());
    let shown = format!("{signed:?}");
    assert!(shown.contains("spiffe://default/web"), "{shown}");
    assert!(signed.private_key().lines().all(|line| !shown.contains(line)), "{shown}");
}

#[test]
fn rotation_is_due_at_four_fifths_of_a_life_give_or_take_a_tenth() {
    let check = |jitter: f64, now: Timestamp, expect: Timestamp| {
        assert_eq!(rotation::next(noon(), noon() + 100.minutes(), now, jitter), expect, "{jitter}");
    };
    check(0.0, noon(), noon() + 80.minutes());
    check(-1.0, noon(), noon() + 70.minutes());
    check(1.0, noon(), noon() + 90.minutes());
    check(0.5, noon(), noon() + 85.minutes());
    check(7.0, noon(), noon() + 90.minutes());
    check(f64::NAN, noon(), noon() + 80.minutes());
    check(0.0, noon() + 95.minutes(), noon() + 95.minutes());
}

#[test]
fn windows_follow_each_other_without_a_gap() {
    for lifetime in [2, 3, 10, 86_400, 365 * 86_400] {
        for jitter in [-1.0, -0.3, 0.0, 1.0] {
            let length = Duration::from_secs(lifetime);
            let start = rotation::start(noon(), length, jitter);
            let next = rotation::next(start, start + length, start, jitter);
            assert!(start <= noon() && noon() < next && next < start + length, "{lifetime} {jitter}");
            assert_eq!(rotation::start(next, length, jitter), next);
            assert_eq!(rotation::start(next - 1.nanosecond(), length, jitter), start);
        }
    }
}

#[test]
fn proxies_rotate_at_different_times() {
    let jitters: Vec<f64> =
        (0..100).map(|n| rotation::jitter(&Key::new(Kind::Dataplane, "m", &format!("p{n}")))).collect();
    assert!(jitters.iter().all(|jitter| (-1.0..=1.0).contains(jitter)));
    for part in [-1.0, -0.5, 0.0, 0.5] {
        let there = jitters.iter().filter(|jitter| (part..part + 0.5).contains(*jitter)).count();
        assert!(there > 10, "{there} of 100 between {part} and {}", part + 0.5);
    }
}
