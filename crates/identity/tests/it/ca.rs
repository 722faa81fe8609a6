use base64::{Engine, engine::general_purpose::STANDARD};
use identity::{
    Authority, Error,
    ca::{Files, Sources, builtin, trust_bundle},
    workload,
};
use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use resources::{
    Draft, Key, Kind, Spec,
    kinds::secret::{Secret, SecretBytes},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use testkit::build::mesh;
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

use crate::{
    noon, snapshot,
    tls::{Side, handshake},
};

pub fn secret(mesh: &str, name: &str, text: &str) -> Draft {
    let data = SecretBytes::new(text);
    Draft::new(Key::new(Kind::Secret, mesh, name), Secret { data }.into())
}

fn text(draft: &Draft) -> String {
    String::from_utf8(draft.spec.get::<Secret>().unwrap().data.as_bytes().to_vec()).unwrap()
}

pub fn builtin_mesh(name: &str) -> Vec<Draft> {
    with_roots(mesh(name).authority("ca-1", "STRICT").draft())
}

/// A mesh and the roots its builtin backends lack.
pub fn with_roots(mesh: Draft) -> Vec<Draft> {
    let roots = builtin::missing(&snapshot([mesh.clone()]), &mesh.key.name, noon()).unwrap();
    [vec![mesh], roots].concat()
}

/// An authority somebody else made: certificate and key. `change` spoils it.
pub fn authority(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (params(change).self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn params(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Example Root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    change(&mut params);
    params
}

pub fn provided(cert: Value, key: Value) -> Draft {
    let conf = json!({ "cert": cert, "key": key });
    mesh("default").backend(json!({ "name": "own", "type": "provided", "conf": conf })).draft()
}

fn load(drafts: Vec<Draft>, backend: &str) -> Result<Authority, Error> {
    Authority::load(&snapshot(drafts), "default", backend, noon())
}

#[test]
fn a_builtin_root_is_made_once_and_looks_like_kumas() {
    let drafts = builtin_mesh("default");
    let names: Vec<&str> = drafts.iter().map(|draft| &*draft.key.name).collect();
    assert_eq!(names, ["default", "default.ca-builtin-key-ca-1", "default.ca-builtin-cert-ca-1"]);
    assert!(drafts[1..].iter().all(|draft| draft.kind() == Kind::Secret && &*draft.key.mesh == "default"));
    assert!(text(&drafts[1]).starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));

    let der = CertificateDer::from_pem_slice(text(&drafts[2]).as_bytes()).unwrap();
    let (_, root) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(root.subject().to_string(), "O=Kuma, OU=Mesh, CN=default");
    assert!(root.is_ca() && root.key_usage().unwrap().unwrap().value.key_cert_sign());
    let names = &root.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names, &[GeneralName::URI("spiffe://default")]);
    assert_eq!(root.public_key().parsed().unwrap().key_size(), 2048);
    assert_eq!(root.validity().not_before.timestamp(), noon().as_second() - 10);
    assert_eq!(root.validity().not_after.timestamp(), (noon() + (10 * 365 * 24).hours()).as_second());

    assert!(builtin::missing(&snapshot(drafts), "default", noon()).unwrap().is_empty());
}

#[test]
fn settings_of_a_builtin_root_are_honoured() {
    for bits in [json!(3072), json!(3072.0), json!("3072")] {
        let conf = json!({ "caCert": { "RSAbits": bits, "expiration": "90d" } });
        let backend = json!({ "name": "ca-1", "type": "builtin", "conf": conf });
        let mesh = mesh("default").backend(backend).draft();
        let drafts = with_roots(mesh);
        let der = CertificateDer::from_pem_slice(text(&drafts[2]).as_bytes()).unwrap();
        let (_, root) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(root.public_key().parsed().unwrap().key_size(), 3072);
        assert_eq!(root.validity().not_after.timestamp(), (noon() + (90 * 24).hours()).as_second());
    }
    let check = |setting: Value, expect: &str| {
        let conf = json!({ "caCert": setting });
        let backend = json!({ "name": "ca-1", "type": "builtin", "conf": conf });
        let mesh = mesh("default").backend(backend).draft();
        let error = builtin::missing(&snapshot([mesh]), "default", noon()).unwrap_err().to_string();
        assert_eq!(error, format!("mTLS backend \"ca-1\" of mesh \"default\": {expect}"));
    };
    check(json!({ "RSAbits": 1024 }), "conf.caCert.RSAbits must be 2048, 3072 or 4096");
    check(json!({ "RSAbits": 8192 }), "conf.caCert.RSAbits must be 2048, 3072 or 4096");
    check(json!({ "RSAbits": [] }), "conf.caCert.RSAbits must be 2048, 3072 or 4096");
    check(
        json!({ "expiration": "soon" }),
        "conf.caCert.expiration must be a positive time such as 10y or 90d",
    );
    check(json!({ "expiration": "0" }), "conf.caCert.expiration must be a positive time such as 10y or 90d");
    check(
        json!({ "expiration": "9000y" }),
        "conf.caCert.expiration must be a positive time such as 10y or 90d",
    );
}

#[test]
fn a_builtin_root_without_its_key_is_not_replaced() {
    let mut left = builtin_mesh("default");
    let key = left.remove(1);
    let error = builtin::missing(&snapshot(left.clone()), "default", noon()).unwrap_err().to_string();
    assert!(error.contains(&format!("but no {}", key.key)), "{error}");
    let error = load(left, "ca-1").unwrap_err().to_string();
    assert!(error.contains(&format!("there is no {}", key.key)), "{error}");
}

#[test]
fn a_builtin_root_that_was_left_half_made_gets_the_certificate_of_its_key() {
    let mut drafts = builtin_mesh("default");
    let certificate = drafts.remove(2);
    assert!(load(drafts.clone(), "ca-1").is_err());
    let missing = builtin::missing(&snapshot(drafts.clone()), "default", noon()).unwrap();
    let [made] = &missing[..] else { panic!("{missing:?}") };
    assert_eq!(made.key, certificate.key);
    drafts.push(made.clone());
    load(drafts, "ca-1").expect("certificate and key belong together");
    // To proxies it is the same root: same name, same key.
    let [first, second] = [&certificate, made].map(|draft| {
        let der = CertificateDer::from_pem_slice(text(draft).as_bytes()).unwrap();
        let (_, root) = X509Certificate::from_der(&der).unwrap();
        (root.subject().to_string(), root.public_key().raw.to_vec())
    });
    assert_eq!(first, second);
}

#[test]
fn a_provided_authority_may_come_from_anywhere() {
    let (cert, key) = authority(|_| ());
    let check = |drafts| {
        let loaded = load(drafts, "own").unwrap();
        assert_eq!((&**loaded.mesh(), &**loaded.backend()), ("default", "own"));
    };
    let secrets = [secret("default", "c", &cert), secret("default", "k", &key)];
    let by_name = provided(json!({ "secret": "c" }), json!({ "secret": "k" }));
    check([vec![by_name], secrets.to_vec()].concat());
    check(vec![provided(json!({ "inlineString": cert }), json!({ "inlineString": key }))]);
    let inline = |text: &str| json!({ "inline": STANDARD.encode(text) });
    check(vec![provided(inline(&cert), inline(&key))]);
}

#[test]
fn files_are_read_from_one_folder_only_however_they_are_named() {
    let (cert, key) = authority(|_| ());
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for place in [&folder, &elsewhere] {
        std::fs::write(place.path().join("c"), &cert).unwrap();
        std::fs::write(place.path().join("k"), &key).unwrap();
    }
    let inside = folder.path().join("c");
    let outside = elsewhere.path().join("c");
    let around = format!("../{}/c", elsewhere.path().file_name().unwrap().to_str().unwrap());
    std::os::unix::fs::symlink(&outside, folder.path().join("link")).unwrap();
    let files = Files::within(folder.path());
    let load = |cert: &str, files: Option<&Files>| {
        let stored = snapshot([provided(json!({ "file": cert }), json!({ "file": "k" }))]);
        let from = Sources { snapshot: &stored, files };
        Authority::load(from, "default", "own", noon()).map(drop).map_err(|error| error.to_string())
    };
    for name in ["c", "./c", inside.to_str().unwrap()] {
        load(name, Some(&files)).unwrap();
    }
    let said = |name: &str| load(name, Some(&files)).unwrap_err().replace(&format!("{name:?}"), "NAME");
    let nowhere = said("/does/not/exist");
    assert!(nowhere.contains("conf.cert.file: NAME: there is no such file in"), "{nowhere}");
    assert!(nowhere.contains("general.dataSourceDir"), "{nowhere}");
    for name in [outside.to_str().unwrap(), &around, "link", "/dev/zero", ".", "/etc/passwd"] {
        // Nothing is learnt about files elsewhere, not even that they exist.
        assert_eq!(said(name), nowhere, "{name}");
    }
    assert!(load("c", None).unwrap_err().contains("files are not read here"));
}

#[test]
fn a_mesh_whose_authority_cannot_sign_is_invalid_unless_it_skips_checks() {
    let (cert, key) = authority(|_| ());
    let inline = |text: &str| json!({ "inlineString": text });
    let check = |mesh: &Draft| {
        let stored = snapshot([]);
        let found = identity::ca::check((&stored).into(), "default", mesh.spec.get().unwrap(), noon());
        found.into_vec().into_iter().map(|v| (v.field, v.message)).collect::<Vec<_>>()
    };
    assert_eq!(check(&provided(inline(&cert), inline(&key))), []);
    let expired = authority(|params| params.not_after = rcgen::date_time_ymd(2026, 1, 1));
    for (cert, key, field, says) in [
        (inline(&cert), inline(&authority(|_| ()).1), "key", "does not belong to the certificate"),
        (inline("hello"), inline(&key), "cert", "must be PEM"),
        (inline(&cert), inline("hello"), "key", "the key is not PEM"),
        (inline(&expired.0), inline(&expired.1), "cert", "expired at 2026-01-01"),
        (inline(&cert), json!({ "secret": "k" }), "key", "there is no Secret \"k\""),
    ] {
        let mut mesh = provided(cert, key);
        let found = check(&mesh);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, format!("mtls.backends[0].conf.{field}"));
        assert!(found[0].1.contains(says), "{found:?}");
        let Spec::Mesh(spec) = &mut mesh.spec else { unreachable!() };
        std::sync::Arc::make_mut(spec).mtls.as_mut().unwrap().skip_validation = true;
        assert_eq!(check(&mesh), []);
    }
}

#[test]
fn an_intermediate_authority_signs_with_or_without_its_root() {
    let root_key = KeyPair::generate().unwrap();
    let key = KeyPair::generate().unwrap();
    let root = params(|_| ());
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let issuer = Issuer::from_params(&root, &root_key);
    let named =
        |params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, "Between");
    let between = params(named).signed_by(&key, &issuer).unwrap().pem();
    let mesh = |cert: &str| {
        vec![provided(json!({ "inlineString": cert }), json!({ "inlineString": key.serialize_pem() }))]
    };
    let check = |cert: &str, trusted: &str, length: usize| {
        let drafts = mesh(cert);
        let bundle = trust_bundle(&snapshot(drafts.clone()), "default");
        assert_eq!(bundle.pem, trusted);
        let loaded = load(drafts, "own").unwrap();
        let proxy = Key::new(Kind::Dataplane, "default", "web-1");
        let leaf =
            workload::issue(&loaded, &proxy, &["spiffe://default/web".to_owned()], noon(), None).unwrap();
        assert_eq!(leaf.chain.matches("BEGIN CERTIFICATE").count(), length);
        let side = Side { chain: &leaf.chain, key: leaf.private_key(), trusts: &bundle.pem };
        handshake(&side, &side, None).unwrap();
    };
    check(&between, &between, 1);
    check(&format!("{between}{root_pem}"), &root_pem, 2);
    let stranger = authority(|_| ()).0;
    let error = load(mesh(&format!("{between}{stranger}")), "own").unwrap_err().to_string();
    assert!(error.contains("not signed by the next one"), "{error}");
}

#[test]
fn a_provided_authority_that_cannot_sign_is_refused_with_the_reason() {
    let (cert, key) = authority(|_| ());
    let check = |cert: Value, key: Value, expect: &str| {
        let mesh = provided(cert.clone(), key.clone());
        let error = load(vec![mesh], "own").unwrap_err().to_string();
        assert!(error.starts_with("mTLS backend \"own\" of mesh \"default\": "), "{error}");
        assert!(error.contains(expect), "{error}\nexpected: {expect}");
        assert!(!error.contains("PRIVATE KEY-----\nM") && !error.contains(&key_body(&key)), "{error}");
    };
    let inline = |text: &str| json!({ "inlineString": text });
    let changed = |change: fn(&mut CertificateParams)| {
        let (cert, key) = authority(change);
        (inline(&cert), inline(&key))
    };
    check(json!({ "secret": "c" }), inline(&key), "conf.cert.secret: there is no Secret \"c\"");
    check(inline(&cert), json!({}), "conf.key says nowhere to read it from");
    check(inline(&cert), json!({ "inline": "%%%" }), "conf.key.inline must be base64");
    check(inline("hello"), inline(&key), "it holds none");
    check(inline(&key), inline(&cert), "are the two swapped?");
    let broken = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    check(inline(broken), inline(&key), "not X.509");
    check(inline(&cert), inline("hello"), "the key is not PEM");
    check(inline(&cert), inline(&key.replace("PRIVATE", "ENCRYPTED PRIVATE")), "the key is not PEM");
    let no_key = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";
    check(inline(&cert), inline(no_key), "the key cannot be used");
    check(inline(&cert), inline(&authority(|_| ()).1), "does not belong to the certificate");
    let (cert, key) = changed(|params| params.is_ca = IsCa::ExplicitNoCa);
    check(cert, key, "basic constraint 'CA' must be set to 'true'");
    let (cert, key) = changed(|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    check(cert, key, "'keyCertSign' must be set");
    let (cert, key) = changed(|params| params.key_usages.push(KeyUsagePurpose::KeyAgreement));
    check(cert, key, "'keyAgreement' must NOT be set");
    let (cert, key) = changed(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    check(cert, key, "expired at 2020-01-01T00:00:00Z");
    let (cert, key) = changed(|params| params.not_before = rcgen::date_time_ymd(2030, 1, 1));
    check(cert, key, "not valid before 2030-01-01T00:00:00Z");
}

/// A piece of a key that no message may hold.
fn key_body(source: &Value) -> String {
    let text = source["inlineString"].as_str().unwrap_or_default();
    text.lines().nth(1).unwrap_or("a key without lines").to_owned()
}

#[test]
fn a_backend_that_is_not_there_or_asks_for_nonsense_is_named() {
    let check = |drafts: Vec<Draft>, backend: &str, expect: &str| {
        let error = load(drafts, backend).unwrap_err().to_string();
        assert_eq!(error, format!("mTLS backend {backend:?} of mesh \"default\": {expect}"));
    };
    check(vec![], "x", "there is no such mesh");
    let listed = "the mesh does not list it under mtls.backends; it lists [\"ca-1\"]";
    check(builtin_mesh("default"), "x", listed);
    let vault = mesh("default").backend(json!({ "name": "v", "type": "vault" })).draft();
    check(vec![vault], "v", "its type is \"vault\"; only \"builtin\" and \"provided\" exist");
    for text in ["0", "1s", "soon"] {
        let backend =
            json!({ "name": "b", "type": "builtin", "dpCert": { "rotation": { "expiration": text } } });
        let expect = format!(
            "dpCert.rotation.expiration is {text:?}; write a time of at least 2s, such as 1d or 2h30m"
        );
        check(vec![mesh("default").backend(backend).draft()], "b", &expect);
    }
}

#[test]
fn all_listed_roots_are_trusted_and_a_broken_one_hides_no_other() {
    let mesh = mesh("default").authority("old", "STRICT").authority("new", "STRICT");
    let drafts = with_roots(mesh.draft());
    let roots = [text(&drafts[2]), text(&drafts[4])].map(|pem| pem);
    let bundle = trust_bundle(&snapshot(drafts.clone()), "default");
    assert_eq!((bundle.pem, bundle.unreadable), (roots.concat(), vec![]));

    let bundle = trust_bundle(&snapshot([&drafts[..2], &drafts[3..]].concat()), "default");
    assert_eq!(bundle.pem, roots[1]);
    let problem = bundle.unreadable[0].to_string();
    assert!(problem.contains("\"old\"") && problem.contains("default.ca-builtin-cert-old"), "{problem}");
    assert_eq!(trust_bundle(&snapshot([]), "default"), identity::ca::TrustBundle::default());
}

#[test]
fn an_authority_does_not_show_its_key() {
    let drafts = builtin_mesh("default");
    let key = text(&drafts[1]);
    let shown = format!("{:?} {drafts:?}", load(drafts.clone(), "ca-1").unwrap());
    assert!(shown.contains("ca-1") && key.lines().all(|line| !shown.contains(line)), "{shown}");
}

#[test]
fn an_authority_made_a_moment_ago_elsewhere_is_used() {
    let drafts = snapshot(builtin_mesh("default"));
    let early: Timestamp = noon() - 15.seconds();
    assert!(Authority::load(&drafts, "default", "ca-1", early).is_ok());
}

#[test]
fn a_builtin_root_that_is_not_valid_yet_is_signed_again_with_its_key() {
    let mesh = mesh("default").authority("ca-1", "STRICT").draft();
    let later = noon() + 24.hours();
    let made = builtin::missing(&snapshot([mesh.clone()]), "default", later).unwrap();
    let [key, root] = made.try_into().unwrap();
    let stored = vec![mesh.clone(), key.clone(), root];
    assert!(load(stored.clone(), "ca-1").is_err());
    let again = builtin::early(&snapshot(stored), "default", noon()).unwrap();
    assert_eq!(again.len(), 1);
    let stored = [vec![mesh, key], again].concat();
    load(stored.clone(), "ca-1").unwrap();
    assert!(builtin::early(&snapshot(stored), "default", noon()).unwrap().is_empty());
}
