//! Keys of identities: of the kind that the authority's key has.

use std::sync::Arc;

use identity::{
    Authority,
    ca::{FreshKey, Sources, bundled},
    workload::{self, Certificate, CertificateRequest, Issuer},
};
use jiff::{Timestamp, ToSpan};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose, SignatureAlgorithm};
use resources::{Key, Kind};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{
    bundled::{identity, load, texts},
    ca::secret,
    noon, snapshot,
    tls::{Side, handshake},
};

fn proxy() -> Key {
    Key::new(Kind::Dataplane, "default", "web")
}

fn names() -> [String; 1] {
    ["spiffe://shop.example/workload/web".to_owned()]
}

fn parsed<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    look(&X509Certificate::from_der(&der).unwrap().1)
}

/// The algorithm of a public key, its curve and its size.
fn kind_of_key(pem: &str) -> (String, Option<String>, usize) {
    parsed(pem, |certificate| {
        let key = certificate.public_key();
        let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
        let size = key.parsed().unwrap().key_size();
        (key.algorithm.algorithm.to_id_string(), curve.map(|curve| curve.to_id_string()), size)
    })
}

/// An authority that a user gives to an identity: its certificate, and what was read from it.
fn given(algorithm: &'static SignatureAlgorithm) -> (String, Authority) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).unwrap().pem();
    let inline = |text: &str| json!({ "type": "InsecureInline", "insecureInline": { "value": text } });
    let ca = json!({ "certificate": inline(&certificate), "privateKey": inline(&key.serialize_pem()) });
    let identity = identity(json!({ "ca": ca, "insecureAllowSelfSigned": true }));
    let authority = load(&snapshot([]), &identity).unwrap();
    (certificate, authority)
}

/// The authority that is made for an identity.
fn made() -> (String, Authority) {
    let identity = identity(json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true }));
    let nothing = snapshot([]);
    let made = bundled::missing(Sources::from(&nothing), &identity, "shop.example", noon()).unwrap();
    let [key, certificate] = texts(&made).try_into().unwrap();
    let stored = snapshot([
        secret("default", "all-private-key", &key),
        secret("default", "all-root-ca", &certificate),
    ]);
    (certificate, load(&stored, &identity).unwrap())
}

#[track_caller]
fn check(certificate: &str, authority: &Authority) {
    let signed = workload::issue(authority, &proxy(), &names(), noon(), None).unwrap();
    assert_eq!(kind_of_key(&signed.chain), kind_of_key(certificate));
    parsed(&signed.chain, |leaf| {
        let usage = leaf.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.key_encipherment() && usage.key_agreement(), "{usage}");
        assert!(!usage.key_cert_sign() && !usage.crl_sign(), "{usage}");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && usage.client_auth);
    });
    let side = Side { chain: &signed.chain, key: signed.private_key(), trusts: certificate };
    handshake(&side, &side, None).unwrap();
}

#[test]
fn the_key_of_an_identity_is_of_the_kind_that_its_authority_has() {
    let (certificate, authority) = made();
    assert_eq!(kind_of_key(&certificate).2, 2048);
    check(&certificate, &authority);
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
    ] {
        let (certificate, authority) = given(algorithm);
        check(&certificate, &authority);
        let issue = || workload::issue(&authority, &proxy(), &names(), noon(), None).unwrap();
        assert_eq!(issue().private_key(), issue().private_key(), "the same key on every control plane");
    }
}

/// An issuer and what it is asked for.
struct Asking(Issuer<Arc<Certificate>>);

impl Asking {
    fn with<T>(&self, fresh: Option<&FreshKey>, ask: impl FnOnce(CertificateRequest<'_>) -> T) -> T {
        let proxy = proxy();
        let names = names();
        ask(CertificateRequest {
            proxy: &proxy,
            place: "kri",
            mesh: "default",
            backend: "kri",
            names: &names,
            fresh_key: fresh,
        })
    }

    fn needs_key(&self, authority: &Authority, now: Timestamp) -> bool {
        self.with(None, |wanted| self.0.needs_fresh_key(wanted, authority, now, 0.0))
    }

    fn sign(&self, authority: &Arc<Authority>, fresh: &FreshKey, now: Timestamp) -> Arc<Certificate> {
        let form = |signed: &Certificate| Arc::new(signed.clone());
        let ask = |wanted: CertificateRequest<'_>| {
            self.0.certificate_for(wanted, || Ok(authority.clone()), now, 0.0, form)
        };
        self.with(Some(fresh), ask).unwrap().certificate
    }
}

#[test]
fn an_rsa_key_is_asked_for_only_when_a_certificate_is_to_be_signed() {
    let (_, authority) = made();
    let authority = Arc::new(authority);
    let asking = Asking(Issuer::default());
    assert!(asking.needs_key(&authority, noon()));
    let fresh = FreshKey::make().unwrap();
    let first = asking.sign(&authority, &fresh, noon());
    assert!(!asking.needs_key(&authority, noon() + 1.hour()), "it has one");
    let again = asking.sign(&authority, &FreshKey::make().unwrap(), noon() + 1.hour());
    assert_eq!(again.private_key(), first.private_key());

    let end = first.facts.expires - 1.second();
    assert!(asking.needs_key(&authority, end), "it is time for another one");
    assert_ne!(asking.sign(&authority, &FreshKey::make().unwrap(), end).private_key(), first.private_key());

    let expired = authority.expires() + 1.second();
    assert!(!asking.needs_key(&authority, expired), "nothing could be signed with it");
    let broken = || Err(identity::Error::Missing);
    let failed = asking.with(None, |wanted| {
        asking.0.certificate_for(wanted, broken, end + 48.hours(), 0.0, |signed| Arc::new(signed.clone()))
    });
    assert!(failed.is_err());
    assert!(!asking.needs_key(&authority, end + 48.hours()), "the authority is left alone");
    assert!(!asking.needs_key(&given(&rcgen::PKCS_ECDSA_P256_SHA256).1, noon()), "that key is derived");
    assert_eq!(format!("{fresh:?}"), "FreshKey(*****)");
}
