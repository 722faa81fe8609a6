use identity::certificate::{CertificateAndKey, Usage, self_signed};
use jiff::{Timestamp, ToSpan};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::noon;

fn pair(usage: Usage) -> CertificateAndKey {
    let names = ["localhost".to_owned(), "cp.example.com".to_owned()];
    self_signed(usage, &names, &["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()], noon()).unwrap()
}

#[test]
fn a_certificate_names_hosts_and_addresses_for_ten_years() {
    let facts = pair(Usage::Server).check(noon()).unwrap();
    assert_eq!(facts.dns_names, ["localhost", "cp.example.com"]);
    assert_eq!(facts.addresses, ["127.0.0.1", "::1"].map(|a| a.parse::<std::net::IpAddr>().unwrap()));
    let nine_years = noon() + (9 * 365 * 24).hours();
    assert!(facts.not_after > nine_years && facts.not_before <= noon());
}

#[test]
fn usage_is_what_was_asked_for() {
    for (usage, server, client) in [(Usage::Server, true, false), (Usage::Client, false, true)] {
        let der = CertificateDer::from_pem_slice(pair(usage).certificate.as_bytes()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let extended = certificate.extended_key_usage().unwrap().unwrap().value;
        assert_eq!((extended.server_auth, extended.client_auth), (server, client));
        assert!(!certificate.is_ca());
        certificate.verify_signature(None).unwrap();
    }
}

#[test]
fn halves_that_do_not_belong_together_are_refused() {
    let check = |pair: CertificateAndKey, at: Timestamp, expect: &str| {
        let error = pair.check(at).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    let one = pair(Usage::Server);
    let other = pair(Usage::Server);
    let mixed = CertificateAndKey { certificate: one.certificate.clone(), key: other.key };
    check(mixed, noon(), "does not belong");
    check(CertificateAndKey { certificate: "x".to_owned(), ..one.clone() }, noon(), "not PEM");
    check(CertificateAndKey { key: "x".to_owned(), ..one.clone() }, noon(), "not a PEM private key");
    check(one.clone(), noon() + (11 * 365 * 24).hours(), "expired");
    check(one, noon() - 24.hours(), "not valid before");
}

#[test]
fn a_host_name_that_cannot_be_one_is_refused() {
    let error = self_signed(Usage::Server, &["kö".to_owned()], &[], noon()).unwrap_err().to_string();
    assert!(error.contains("TLS certificate"), "{error}");
}
