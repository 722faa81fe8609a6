use std::sync::Arc;

use identity::{
    Error,
    admin::{AdminAuthority, StoredAuthority, draft, secret},
};
use resources::{
    Draft, Key, Kind,
    kinds::secret::{GlobalSecret, SecretBytes},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use store::Snapshot;
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

use crate::{
    noon, snapshot,
    tls::{Side, handshake},
};

fn stored() -> (Draft, AdminAuthority) {
    let draft = draft(noon()).unwrap();
    let authority = AdminAuthority::load(&snapshot([draft.clone()]), noon()).unwrap();
    (draft, authority)
}

fn web() -> Key {
    Key::new(Kind::Dataplane, "default", "web-1")
}

fn hosts() -> Vec<String> {
    ["127.0.0.2", "web-1"].map(str::to_owned).to_vec()
}

#[test]
fn the_authority_is_one_secret_with_certificate_and_key() {
    let (draft, authority) = stored();
    assert_eq!((draft.kind(), &*draft.key.name), (Kind::GlobalSecret, "envoy-admin-ca"));
    let text = String::from_utf8(draft.spec.get::<GlobalSecret>().unwrap().data.as_bytes().to_vec()).unwrap();
    assert!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{text}");
    assert!(text.contains("-----BEGIN RSA PRIVATE KEY-----\n"), "{text}");
    let pem = authority.certificate();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, root) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(root.subject().to_string(), "O=Kuma, OU=Mesh, CN=Envoy Admin CA");
    assert!(!pem.contains("PRIVATE") && !format!("{authority:?} {draft:?}").contains("BEGIN"));
}

#[test]
fn the_control_plane_and_a_proxy_believe_each_other() {
    let (_, authority) = stored();
    let trusts = authority.certificate();
    let server = authority.server(&web(), &hosts()).unwrap();
    let client = authority.client().unwrap();
    let server = Side { chain: &server.certificate, key: &server.key, trusts };
    let client = Side { chain: &client.certificate, key: &client.key, trusts };
    for host in ["127.0.0.2", "web-1"] {
        handshake(&client, &server, Some(host)).unwrap();
    }
    handshake(&client, &server, Some("127.0.0.3")).unwrap_err();
    handshake(&server, &server, Some("web-1")).expect_err("a proxy is no control plane");

    let (_, other) = stored();
    let stranger = other.client().unwrap();
    let stranger = Side { chain: &stranger.certificate, key: &stranger.key, trusts };
    handshake(&stranger, &server, Some("web-1")).unwrap_err();
}

#[test]
fn the_control_plane_is_called_kuma_cp() {
    let pem = stored().1.client().unwrap().certificate;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names, &[GeneralName::DNSName("kuma-cp")]);
}

#[test]
fn certificates_survive_a_restart_and_differ_between_proxies() {
    let (draft, authority) = stored();
    let again = AdminAuthority::load(&snapshot([draft]), noon()).unwrap();
    let first = authority.server(&web(), &hosts()).unwrap();
    assert_eq!(again.server(&web(), &hosts()).unwrap(), first);
    let other = Key::new(Kind::Dataplane, "default", "web-2");
    assert_ne!(authority.server(&other, &hosts()).unwrap().key, first.key);
}

#[test]
fn an_authority_that_is_missing_or_broken_is_named() {
    let check = |drafts: Vec<Draft>, expect: &str| {
        let error = AdminAuthority::load(&snapshot(drafts), noon()).unwrap_err();
        assert!(matches!(&error, Error::AdminAuthority(text) if text.contains(expect)), "{error}");
        assert!(error.to_string().contains("envoy-admin-ca"), "{error}");
    };
    check(vec![], "there is no GlobalSecret \"envoy-admin-ca\"");
    let data = SecretBytes::new("hello");
    check(vec![Draft::new(secret(), GlobalSecret { data }.into())], "it holds none");
    let (_, authority) = stored();
    authority.server(&web(), &[]).unwrap_err();
    authority.server(&web(), &["kö".to_owned()]).unwrap_err();
}

#[test]
fn the_authority_is_read_again_only_when_its_secret_is_another_one() {
    let kept = StoredAuthority::default();
    let first = snapshot([draft(noon()).unwrap()]);
    let load = |stored: &Snapshot| kept.load(stored, noon()).unwrap();
    let authority = load(&first);
    assert!(Arc::ptr_eq(&authority, &load(&first)));
    let replaced = snapshot([draft(noon()).unwrap()]);
    assert_ne!(load(&replaced).certificate(), authority.certificate());
    kept.load(&snapshot([]), noon()).unwrap_err();
    load(&first);
    let eleven_years = std::time::Duration::from_secs(11 * 365 * 24 * 3600);
    kept.load(&first, noon() + eleven_years).unwrap_err();
}

#[test]
fn certificates_of_proxies_cost_no_root_signature_and_stay_the_same() {
    let (draft, authority) = stored();
    let server = authority.server(&web(), &hosts()).unwrap();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(server.certificate.as_bytes()).map(Result::unwrap).collect();
    let issuers: Vec<String> =
        chain.iter().map(|der| X509Certificate::from_der(der).unwrap().1.issuer().to_string()).collect();
    assert_eq!(issuers, ["O=Kuma, CN=Envoy Admin Servers CA", "O=Kuma, OU=Mesh, CN=Envoy Admin CA"]);
    let restarted = AdminAuthority::load(&snapshot([draft]), noon()).unwrap();
    assert_eq!(restarted.server(&web(), &hosts()).unwrap().certificate, server.certificate);
    // Envoy verifies what the control plane shows, and knows no Ed25519.
    let client = authority.client().unwrap();
    assert_eq!(client.certificate.matches("BEGIN CERTIFICATE").count(), 1);
}
