use identity::{
    Error, KeyPair, PublicKey, Purpose,
    signing_key::{draft, latest, public},
};
use jsonwebtoken::{DecodingKey, EncodingKey};
use resources::Kind;

use crate::snapshot;

const DEMO: Purpose<'_> = Purpose::Dataplane { mesh: "demo" };

#[test]
fn secrets_are_named_as_in_kuma() {
    let check = |purpose: Purpose<'_>, kind, mesh, key, revocations| {
        let secret = purpose.key("1");
        assert_eq!((secret.kind, &*secret.mesh, &*secret.name), (kind, mesh, key));
        assert_eq!(&*purpose.revocations().name, revocations);
        assert_eq!(purpose.revocations().kind, kind);
    };
    check(
        DEMO,
        Kind::Secret,
        "demo",
        "dataplane-token-signing-key-demo-1",
        "dataplane-token-revocations-demo",
    );
    check(Purpose::Zone, Kind::GlobalSecret, "", "zone-token-signing-key-1", "zone-token-revocations");
    check(Purpose::User, Kind::GlobalSecret, "", "user-token-signing-key-1", "user-token-revocations");
}

#[test]
fn keys_are_pkcs1_pem_that_another_implementation_reads() {
    let pair = KeyPair::generate().unwrap();
    let private = pair.private_pem();
    let public = pair.public().pem();
    assert!(private.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"), "{private}");
    assert!(public.starts_with("-----BEGIN RSA PUBLIC KEY-----\n"), "{public}");
    assert!(public.lines().all(|line| line.len() <= 64));
    EncodingKey::from_rsa_pem(private.as_bytes()).unwrap();
    DecodingKey::from_rsa_pem(public.as_bytes()).unwrap();
}

#[test]
fn a_key_survives_its_pem_form_and_a_private_key_gives_its_public_half() {
    let pair = KeyPair::generate().unwrap();
    let again = KeyPair::from_pem(pair.private_pem().as_bytes()).unwrap();
    assert_eq!(again.private_pem(), pair.private_pem());
    assert_eq!(&PublicKey::from_pem(pair.public().pem().as_bytes()).unwrap(), pair.public());
    assert_eq!(&PublicKey::from_pem(pair.private_pem().as_bytes()).unwrap(), pair.public());
}

#[test]
fn what_is_not_a_key_is_refused() {
    for text in ["", "hello", "-----BEGIN RSA PRIVATE KEY-----\naGVsbG8=\n-----END RSA PRIVATE KEY-----\n"] {
        assert!(matches!(KeyPair::from_pem(text.as_bytes()), Err(Error::NotAKey(_))), "{text:?}");
        assert!(matches!(PublicKey::from_pem(text.as_bytes()), Err(Error::NotAKey(_))), "{text:?}");
    }
}

#[test]
fn the_highest_number_signs_and_every_number_verifies() {
    let two = KeyPair::generate().unwrap();
    let ten = KeyPair::generate().unwrap();
    let other_mesh = draft(Purpose::Dataplane { mesh: "other" }, "99", &two);
    let stored = snapshot([draft(DEMO, "10", &ten), draft(DEMO, "2", &two), other_mesh]);
    assert_eq!(latest(&stored, DEMO).unwrap().kid, "10");
    assert_eq!(&public(&stored, DEMO, "2").unwrap(), two.public());
    assert_eq!(&public(&stored, DEMO, "10").unwrap(), ten.public());
}

#[test]
fn a_missing_key_is_named() {
    let empty = snapshot([]);
    assert_eq!(
        latest(&empty, Purpose::User).unwrap_err(),
        Error::NoSigningKey("user-token-signing-key-1".to_owned())
    );
    let missing = Error::UnknownKey { kid: "3".to_owned(), secret: "zone-token-signing-key-3".to_owned() };
    assert_eq!(public(&empty, Purpose::Zone, "3").unwrap_err(), missing);
}

#[test]
fn debug_output_hides_the_private_key() {
    let pair = KeyPair::generate().unwrap();
    assert_eq!(format!("{pair:?}"), "KeyPair(*****)");
}
