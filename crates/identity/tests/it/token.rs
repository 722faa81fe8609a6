use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use identity::{
    DataplaneToken, Error, KeyPair, Purpose, SigningKey, UserToken, ZoneToken, signing_key,
    token::{issue, validate, validate_with},
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, dangerous::insecure_decode};
use resources::{
    Draft,
    kinds::secret::{GlobalSecret, SecretBytes},
};
use serde_json::{Value, json};
use store::Snapshot;

use crate::{noon, snapshot};

const HOUR: Duration = Duration::from_secs(3600);

fn stored(purpose: Purpose<'_>) -> (SigningKey, Snapshot) {
    let pair = KeyPair::generate().unwrap();
    let store = snapshot([signing_key::draft(purpose, "1", &pair)]);
    (SigningKey { kid: "1".to_owned(), pair }, store)
}

fn jane() -> UserToken {
    UserToken { name: "jane".to_owned(), groups: vec!["team-a".to_owned()] }
}

/// Signs anything, as somebody who has the key but not our code.
fn signed(claims: &Value, header: Header, key: &SigningKey) -> String {
    let pem = key.pair.private_pem();
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap()).unwrap()
}

fn with_kid(kid: &str) -> Header {
    Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::RS256) }
}

fn user(token: &str, store: &Snapshot) -> Result<UserToken, Error> {
    validate(token, Purpose::User, store, noon())
}

#[test]
fn every_kind_of_token_says_what_was_put_into_it() {
    let mesh = Purpose::Dataplane { mesh: "default" };
    let (key, store) = stored(mesh);
    let dataplane = DataplaneToken {
        name: "redis".to_owned(),
        mesh: "default".to_owned(),
        tags: [("kuma.io/service".to_owned(), vec!["redis".to_owned(), "cache".to_owned()])].into(),
        proxy_type: "dataplane".to_owned(),
        workload: "redis-1".to_owned(),
        labels: [("app".to_owned(), vec!["redis".to_owned()])].into(),
    };
    let token = issue(&dataplane, &key, noon(), HOUR).unwrap();
    assert_eq!(validate::<DataplaneToken>(&token, mesh, &store, noon()).unwrap(), dataplane);

    let (key, store) = stored(Purpose::Zone);
    let zone = ZoneToken { zone: "east".to_owned(), scope: vec!["ingress".to_owned()] };
    let token = issue(&zone, &key, noon(), HOUR).unwrap();
    assert_eq!(validate::<ZoneToken>(&token, Purpose::Zone, &store, noon()).unwrap(), zone);

    let (key, store) = stored(Purpose::User);
    let token = issue(&jane(), &key, noon(), HOUR).unwrap();
    assert_eq!(user(&token, &store), Ok(jane()));
}

#[test]
fn a_token_looks_like_kumas() {
    let (key, _) = stored(Purpose::User);
    let token = issue(&jane(), &key, noon(), HOUR).unwrap();
    let decoded = insecure_decode::<Value>(&token).unwrap();
    assert_eq!(decoded.header.alg, Algorithm::RS256);
    assert_eq!(decoded.header.kid.as_deref(), Some("1"));
    let second = noon().as_second();
    let claims = decoded.claims;
    assert_eq!(claims["Name"], "jane");
    assert_eq!(claims["Groups"], json!(["team-a"]));
    assert_eq!(claims["iat"], second);
    assert_eq!(claims["nbf"], second - 5);
    assert_eq!(claims["exp"], second + 3600);
    assert_eq!(claims["jti"].as_str().unwrap().len(), 36);
}

#[test]
fn claims_are_read_whatever_their_capitalisation() {
    let (key, store) = stored(Purpose::User);
    for claims in [
        json!({"name": "jane", "groups": ["team-a"], "jti": "x"}),
        json!({"NAME": "jane", "Groups": ["team-a"], "jti": "x", "somethingElse": 1}),
    ] {
        assert_eq!(user(&signed(&claims, with_kid("1"), &key), &store), Ok(jane()), "{claims}");
    }
    let nobody = user(&signed(&json!({"Name": "jane", "Groups": null}), with_kid("1"), &key), &store);
    assert_eq!(nobody.unwrap().groups, Vec::<String>::new());
}

#[test]
fn times_are_kept_to_the_second() {
    let (key, store) = stored(Purpose::User);
    let token = issue(&jane(), &key, noon(), HOUR).unwrap();
    let at = |second: i64| {
        let now = jiff::Timestamp::from_second(noon().as_second() + second).unwrap();
        validate::<UserToken>(&token, Purpose::User, &store, now)
    };
    assert!(matches!(at(-6), Err(Error::NotYetValid(_))));
    assert!(at(-5).is_ok());
    assert!(at(3599).is_ok());
    assert!(matches!(at(3600), Err(Error::Expired(_))));
}

#[test]
fn a_token_without_a_lifetime_is_not_issued() {
    let (key, _) = stored(Purpose::User);
    assert_eq!(issue(&jane(), &key, noon(), Duration::ZERO), Err(Error::Lifetime));
    assert_eq!(issue(&jane(), &key, noon(), Duration::MAX), Err(Error::Lifetime));
}

#[test]
fn a_revoked_token_is_refused_and_its_neighbours_are_not() {
    let pair = KeyPair::generate().unwrap();
    let list = GlobalSecret { data: SecretBytes::new("other, gone ,third") };
    let store = snapshot([
        signing_key::draft(Purpose::User, "1", &pair),
        Draft::new(Purpose::User.revocations(), list.into()),
    ]);
    let key = SigningKey { kid: "1".to_owned(), pair };
    let token = |id: &str| signed(&json!({"Name": "jane", "jti": id}), with_kid("1"), &key);
    assert_eq!(user(&token("gone"), &store), Err(Error::Revoked("gone".to_owned())));
    assert!(user(&token("go"), &store).is_ok());
}

#[test]
fn a_foreign_key_and_a_tampered_token_are_refused() {
    let (key, store) = stored(Purpose::User);
    let foreign = SigningKey { kid: "1".to_owned(), pair: KeyPair::generate().unwrap() };
    let token = issue(&jane(), &foreign, noon(), HOUR).unwrap();
    assert_eq!(user(&token, &store), Err(Error::Signature));

    let token = issue(&jane(), &key, noon(), HOUR).unwrap();
    let mut parts: Vec<&str> = token.split('.').collect();
    let forged = URL_SAFE_NO_PAD.encode(r#"{"Name":"admin","Groups":["mesh-system:admin"]}"#);
    parts[1] = &forged;
    assert_eq!(user(&parts.join("."), &store), Err(Error::Signature));

    let unknown = signed(&json!({"Name": "jane"}), with_kid("7"), &key);
    assert!(matches!(user(&unknown, &store), Err(Error::UnknownKey { kid, .. }) if kid == "7"));
}

#[test]
fn algorithms_that_anybody_can_sign_with_are_refused() {
    let (key, store) = stored(Purpose::User);
    let body = URL_SAFE_NO_PAD.encode(r#"{"Name":"admin"}"#);
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"1"}"#);
    assert_eq!(user(&format!("{none}.{body}."), &store), Err(Error::Algorithm("none".to_owned())));

    // The public key used as if it were a shared secret.
    let header = Header { kid: Some("1".to_owned()), ..Header::new(Algorithm::HS256) };
    let secret = EncodingKey::from_secret(key.pair.public().pem().as_bytes());
    let token = jsonwebtoken::encode(&header, &json!({"Name": "admin"}), &secret).unwrap();
    assert_eq!(user(&token, &store), Err(Error::Algorithm("HS256".to_owned())));
}

#[test]
fn what_is_not_a_token_is_said_to_be_malformed() {
    let (key, store) = stored(Purpose::User);
    assert_eq!(user("", &store), Err(Error::Missing));
    assert_eq!(user("  \n", &store), Err(Error::Missing));
    let no_kid = signed(&json!({}), Header::new(Algorithm::RS256), &key);
    let wrong_type = signed(&json!({"Name": ["jane"]}), with_kid("1"), &key);
    for text in ["hello", "a.b", "a.b.c", "....", &no_kid, &wrong_type] {
        assert!(matches!(user(text, &store), Err(Error::Malformed(_))), "{text}: {:?}", user(text, &store));
    }
}

#[test]
fn a_key_file_is_enough_to_issue_and_to_check() {
    let file = KeyPair::generate().unwrap().private_pem();
    let key = SigningKey { kid: "key-1".to_owned(), pair: KeyPair::from_pem(file.as_bytes()).unwrap() };
    let token = issue(&jane(), &key, noon(), HOUR).unwrap();
    let (claims, id) = validate_with::<UserToken>(&token, key.pair.public(), noon()).unwrap();
    assert_eq!(claims, jane());
    assert!(!id.is_empty());
}

#[test]
fn a_zone_checks_tokens_with_the_public_key_it_was_sent() {
    let pair = KeyPair::generate().unwrap();
    let sent = GlobalSecret { data: SecretBytes::new(pair.public().pem()) };
    let name = resources::Key::global(resources::Kind::GlobalSecret, "zone-token-signing-public-key-1");
    let store = snapshot([Draft::new(name, sent.into())]);
    let key = SigningKey { kid: "1".to_owned(), pair };
    let zone = ZoneToken { zone: "east".to_owned(), scope: vec!["egress".to_owned()] };
    let token = issue(&zone, &key, noon(), HOUR).unwrap();
    assert_eq!(validate::<ZoneToken>(&token, Purpose::Zone, &store, noon()), Ok(zone));
}

#[test]
fn labels_are_a_claim_only_where_a_token_binds_some() {
    let mesh = Purpose::Dataplane { mesh: "default" };
    let (key, _) = stored(mesh);
    let plain = issue(&DataplaneToken::default(), &key, noon(), HOUR).unwrap();
    let claims = insecure_decode::<Value>(&plain).unwrap().claims;
    assert!(claims.get("Labels").is_none(), "as Kuma's: {claims}");
    let labels = [("app".to_owned(), vec!["payments".to_owned()])];
    let bound = DataplaneToken { labels: labels.clone().into(), ..DataplaneToken::default() };
    let bound = issue(&bound, &key, noon(), HOUR).unwrap();
    assert_eq!(identity::token::claimed_labels(&bound), labels.into());
    assert!(identity::token::claimed_labels(&plain).is_empty());
}
