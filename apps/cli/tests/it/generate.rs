//! `generate`: tokens here and there, keys, certificates.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

use api::{Authn, Settings};
use identity::{
    DataplaneToken, KeyPair, PublicKey, Purpose, UserToken, ZoneToken, certificate,
    signing_key::{self, FIRST_KID},
    token,
};
use jiff::Timestamp;
use serde_json::json;

use crate::{control_plane::ZoneControlPlane, program::Program};

/// A home with a signing key and the public half of it.
fn with_key() -> (Program, PublicKey) {
    let program = Program::new();
    let key = program.run(&["generate", "signing-key"]).ok().out;
    assert!(key.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"), "{key}");
    program.file("key.pem", key);
    let public = program.run(&["generate", "public-key", "--signing-key-path", "key.pem"]).ok().out;
    assert!(public.starts_with("-----BEGIN RSA PUBLIC KEY-----\n"), "{public}");
    (program, PublicKey::from_pem(public.as_bytes()).unwrap())
}

#[test]
fn tokens_made_here_are_valid_for_the_public_half_of_the_key() {
    let (program, public) = with_key();
    let offline = ["--signing-key-path", "key.pem", "--kid", "2", "--valid-for", "1h"];
    let make = |arguments: &[&str]| program.run(&[&["generate"], arguments, &offline].concat()).ok().out;
    let now = Timestamp::now();

    let made = make(&[
        "dataplane-token",
        "--name",
        "web",
        "--mesh",
        "shop",
        "--tag",
        "a=1",
        "--tag",
        "a=2",
        "--workload",
        "w",
        "--label",
        "app=payments",
        "--proxy-type",
        "dataplane",
    ]);
    assert!(!made.ends_with('\n'), "a token in a file has nothing behind it");
    let (claims, _): (DataplaneToken, _) = token::validate_with(&made, &public, now).unwrap();
    let tags = BTreeMap::from([("a".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
    assert_eq!(
        claims,
        DataplaneToken {
            name: "web".into(),
            mesh: "shop".into(),
            tags,
            proxy_type: "dataplane".into(),
            workload: "w".into(),
            labels: BTreeMap::from([("app".to_owned(), vec!["payments".to_owned()])]),
        }
    );
    let (claims, _): (ZoneToken, _) =
        token::validate_with(&make(&["zone-token", "--zone", "east", "--scope", "cp"]), &public, now)
            .unwrap();
    assert_eq!(claims, ZoneToken { zone: "east".into(), scope: vec!["cp".into()] });
    let (claims, _): (UserToken, _) = token::validate_with(
        &make(&["user-token", "--name", "ann", "--group", "x", "--group", "y"]),
        &public,
        now,
    )
    .unwrap();
    assert_eq!(claims, UserToken { name: "ann".into(), groups: vec!["x".into(), "y".into()] });

    let later = now.checked_add(std::time::Duration::from_secs(2 * 3600)).unwrap();
    let made = make(&["zone-token", "--zone", "east"]);
    assert!(token::validate_with::<ZoneToken>(&made, &public, later).is_err(), "an hour is over");
    let (claims, _): (ZoneToken, _) = token::validate_with(&made, &public, now).unwrap();
    assert_eq!(claims.scope, ["ingress", "egress"]);
}

/// A control plane that signs every sort of token, and the key with which it does.
fn issuer(settings: Settings) -> (ZoneControlPlane, PublicKey) {
    let control_plane = ZoneControlPlane::with(settings);
    let pair = KeyPair::generate().unwrap();
    let purposes = [Purpose::Dataplane { mesh: "default" }, Purpose::Zone, Purpose::User];
    let draft = |purpose| testkit::resource::of_draft(signing_key::draft(purpose, FIRST_KID, &pair));
    control_plane.put(purposes.map(draft));
    (control_plane, pair.public().clone())
}

#[test]
fn tokens_made_by_the_control_plane_are_passed_on() {
    let (control_plane, public) = issuer(Settings::default());
    let program = Program::at(&control_plane.url);
    let now = Timestamp::now();
    let made = program
        .run(&[
            "generate",
            "dataplane-token",
            "--name",
            "web",
            "--tag",
            "a=1",
            "--label",
            "b=2",
            "--valid-for",
            "90m",
        ])
        .ok();
    assert_eq!(made.err, "");
    let (claims, _): (DataplaneToken, _) = token::validate_with(&made.out, &public, now).unwrap();
    assert_eq!((claims.name.as_str(), claims.mesh.as_str()), ("web", "default"));
    assert_eq!(claims.tags["a"], ["1"]);
    assert_eq!(claims.labels["b"], ["2"]);
    let later = now.checked_add(std::time::Duration::from_secs(91 * 60)).unwrap();
    assert!(token::validate_with::<DataplaneToken>(&made.out, &public, later).is_err());
    let asked = |n: usize| control_plane.requests()[n].json();
    assert_eq!(
        asked(0),
        json!({"name": "web", "mesh": "default", "tags": {"a": ["1"]}, "type": "", "workload": "", "validFor": "1h30m0s", "labels": {"b": ["2"]}})
    );
    let made =
        program.run(&["generate", "zone-token", "--zone", "east", "--valid-for", "24h", "-o", "json"]).ok();
    let answer = made.json();
    let (claims, _): (ZoneToken, _) =
        token::validate_with(answer["token"].as_str().unwrap(), &public, now).unwrap();
    assert_eq!(claims, ZoneToken { zone: "east".into(), scope: vec!["ingress".into(), "egress".into()] });
    assert_eq!(asked(1), json!({"zone": "east", "scope": ["ingress", "egress"], "validFor": "24h0m0s"}));
    let made =
        program.run(&["generate", "user-token", "--name", "ann", "--group", "x", "--valid-for", "1h"]).ok();
    let (claims, _): (UserToken, _) = token::validate_with(&made.out, &public, now).unwrap();
    assert_eq!(claims, UserToken { name: "ann".into(), groups: vec!["x".into()] });
    assert_eq!(asked(2), json!({"name": "ann", "groups": ["x"], "validFor": "1h0m0s"}));
}

#[test]
fn warnings_and_refusals_of_the_control_plane_are_shown() {
    let (control_plane, _) = issuer(Settings::default());
    let made = Program::at(&control_plane.url).run(&["generate", "dataplane-token"]).ok();
    assert_eq!(made.out.split('.').count(), 3, "the token and nothing else: {made:#?}");
    made.says("warning: any proxy of mesh 'default' can use the token: bind it to one with --name")
        .says("warning: the token is valid for 3650 days");
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let (strangers, _) = issuer(Settings { authn, ..Settings::default() });
    Program::at(&strangers.url)
        .run(&["generate", "user-token", "--name", "ann", "--valid-for", "1h"])
        .failed(1)
        .says("Access Denied");
    let keyless = ZoneControlPlane::start();
    Program::at(&keyless.url)
        .run(&["generate", "zone-token", "--zone", "east"])
        .failed(1)
        .says("the control plane returned no token")
        .says("there is no signing key with KID 1");
}

#[test]
fn bad_arguments_for_tokens_are_refused() {
    let (program, _) = with_key();
    let check = |arguments: &[&str], expect: &str| {
        program.run(&[&["generate"], arguments].concat()).failed(2).says(expect);
    };
    check(&["user-token", "--name", "ann"], "--valid-for");
    check(&["user-token", "--name", "ann", "--valid-for", "tomorrow"], "invalid duration");
    check(&["user-token", "--name", "ann", "--valid-for", "0s"], "must be positive");
    check(&["zone-token", "--zone", "e", "--scope", "all"], "all");
    check(&["zone-token", "--zone", "e", "--signing-key-path", "key.pem"], "--kid");
    check(
        &["zone-token", "--zone", "e", "--signing-key-path", "gone.pem", "--kid", "1"],
        "gone.pem: No such file",
    );
    program.file("bad.pem", "no key");
    check(&["public-key", "--signing-key-path", "bad.pem"], "bad.pem");
}

#[test]
fn certificates_belong_to_their_keys_and_name_their_hosts() {
    let program = Program::new();
    program
        .run(&[
            "generate",
            "tls-certificate",
            "--type",
            "server",
            "--hostname",
            "cp.local,127.0.0.1",
            "--key-file",
            "k.pem",
            "--cert-file",
            "c.pem",
        ])
        .ok()
        .says("Private key saved in k.pem")
        .says("Certificate saved in c.pem");
    let path = |name: &str| program.home.path().join(name);
    let pair = certificate::CertificateAndKey {
        certificate: fs::read_to_string(path("c.pem")).unwrap(),
        key: fs::read_to_string(path("k.pem")).unwrap(),
    };
    let facts = pair.check(Timestamp::now()).unwrap();
    assert_eq!(facts.dns_names, ["cp.local"]);
    assert_eq!(facts.addresses, ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(fs::metadata(path("k.pem")).unwrap().permissions().mode() & 0o777, 0o600);
    let both = [
        "generate",
        "tls-certificate",
        "--type",
        "client",
        "--hostname",
        "ann",
        "--key-file",
        "-",
        "--cert-file",
        "-",
    ];
    let out = program.run(&both).ok().out;
    assert!(out.contains("PRIVATE KEY") && out.contains("BEGIN CERTIFICATE"), "{out}");
    program.run(&["generate", "tls-certificate", "--type", "server"]).failed(2).says("--hostname");
}
