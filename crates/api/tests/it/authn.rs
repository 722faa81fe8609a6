//! Identities of users: each condition by itself.

use api::{AccessRights, Allowed, Authn, AuthnType, Settings};
use axum::body::Body;
use http::{Method, Request};
use identity::{KeyPair, Purpose, SigningKey, UserToken, signing_key, token};
use jiff::{SignedDuration, Timestamp};
use resources::Kind;
use runtime::listen::{Owner, Peer};
use serde_json::{Value, json};
use testkit::body::timeout;

use crate::{
    log::Log,
    world::{World, peer, remote, request, zone},
};

const ADMIN: &str = "mesh-system:admin";
pub const ANONYMOUS: &str = "mesh-system:anonymous";

pub fn who_am_i() -> Request<Body> {
    request(Method::GET, "/who-am-i", Body::empty())
}

pub async fn name(world: &World, request: Request<Body>) -> String {
    world.send(request).await.expect(200).json()["name"].as_str().unwrap().to_owned()
}

fn from(addr: &str) -> Request<Body> {
    let mut request = who_am_i();
    request.extensions_mut().insert(peer(addr));
    request
}

pub fn with(header: &'static str, value: &str) -> Request<Body> {
    let mut request = who_am_i();
    request.headers_mut().insert(header, value.parse().unwrap());
    request
}

#[tokio::test]
async fn a_direct_local_call_is_an_administrators() {
    let world = World::new().await;
    let me = world.send(who_am_i()).await.expect(200).json();
    assert_eq!(me, json!({ "name": ADMIN, "groups": [ADMIN, "mesh-system:authenticated"] }));
}

#[tokio::test]
async fn a_remote_call_is_anonymous() {
    let world = World::new().await;
    let me = world.send(from("192.0.2.1:1")).await.expect(200).json();
    assert_eq!(me, json!({ "name": ANONYMOUS, "groups": ["mesh-system:unauthenticated"] }));
}

#[tokio::test]
async fn each_condition_for_being_local_is_needed() {
    let world = World::new().await;
    let same_origin = {
        let mut request = with("origin", "http://localhost:5681");
        request.headers_mut().insert("sec-fetch-site", "same-origin".parse().unwrap());
        request
    };
    for (request, expect) in [
        (from("127.0.0.1:1"), ADMIN),
        (from("127.9.9.9:1"), ADMIN),
        (from("[::1]:1"), ADMIN),
        (from("[::ffff:127.0.0.1]:1"), ADMIN),
        (from("10.0.0.1:1"), ANONYMOUS),
        (with("forwarded", "for=192.0.2.1"), ANONYMOUS),
        (with("x-forwarded-for", "192.0.2.1"), ANONYMOUS),
        (with("x-forwarded-proto", "http"), ANONYMOUS),
        (with("x-real-ip", "192.0.2.1"), ANONYMOUS),
        (with("via", "1.1 proxy"), ANONYMOUS),
        (with("x-request-id", "1"), ANONYMOUS),
        (with("x-envoy-expected-rq-timeout-ms", "15000"), ANONYMOUS),
        (with("x-envoy-external-address", "192.0.2.1"), ANONYMOUS),
        (with("host", "127.0.0.1:5681"), ADMIN),
        (with("host", "[::1]:5681"), ADMIN),
        (with("host", "LOCALHOST"), ADMIN),
        (with("host", "localhost."), ADMIN),
        (with("host", "[::1]"), ADMIN),
        (with("host", ""), ANONYMOUS),
        (with("host", "192.0.2.1:5681"), ANONYMOUS),
        (with("host", "[2001:db8::1]"), ANONYMOUS),
        (with("sec-fetch-site", "none"), ADMIN),
        (with("sec-fetch-site", "same-origin"), ADMIN),
        (with("sec-fetch-site", "same-site"), ANONYMOUS),
        (with("sec-fetch-site", "cross-site"), ANONYMOUS),
        (with("origin", "http://localhost:5681"), ADMIN),
        (with("origin", "http://localhost:8080"), ANONYMOUS),
        (with("origin", "http://evil.example.com"), ANONYMOUS),
        (with("origin", "null"), ANONYMOUS),
        (same_origin, ADMIN),
    ] {
        let described =
            format!("{:?} from {:?}", request.headers(), request.extensions().get::<Peer>().unwrap().addr);
        assert_eq!(name(&world, request).await, expect, "{described}");
    }
}

#[tokio::test]
async fn only_root_and_the_users_the_operator_trusts_are_local_administrators() {
    let authn = Authn { local_administrators: vec![0, 1234], ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    for (owner, expect) in [
        (Some(Owner::known(0)), ADMIN),
        (Some(Owner::known(1234)), ADMIN),
        (Some(Owner::known(5678)), ANONYMOUS),
        (None, ANONYMOUS),
    ] {
        let mut request = who_am_i();
        let described = format!("{owner:?}");
        request.extensions_mut().insert(Peer { owner, ..peer("127.0.0.1:1") });
        assert_eq!(name(&world, request).await, expect, "{described}");
    }
}

#[tokio::test]
async fn a_request_without_a_known_peer_is_anonymous() {
    let world = World::new().await;
    let mut request = who_am_i();
    request.extensions_mut().remove::<Peer>();
    assert_eq!(name(&world, request).await, ANONYMOUS);
}

#[tokio::test]
async fn being_local_means_nothing_when_that_is_switched_off() {
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    assert_eq!(name(&world, who_am_i()).await, ANONYMOUS);
}

#[tokio::test]
async fn a_client_certificate_makes_an_administrator_only_if_configured() {
    let with_certificate = || {
        let mut request = from("192.0.2.1:1");
        let certificate = rustls_pki_types::CertificateDer::from(vec![1, 2, 3]);
        request.extensions_mut().insert(Peer {
            client_certificate: Some(certificate),
            tls: true,
            ..peer("192.0.2.1:1")
        });
        request
    };
    let authn = Authn { kind: AuthnType::AdminClientCerts, localhost_is_admin: false, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    assert_eq!(name(&world, with_certificate()).await, ADMIN);
    assert_eq!(name(&world, from("192.0.2.1:1")).await, ANONYMOUS);
    assert_eq!(name(&World::new().await, with_certificate()).await, ANONYMOUS);
}

/// A world with a key for user tokens, and that key.
pub async fn with_key() -> (World, SigningKey) {
    let world = World::new().await;
    let pair = KeyPair::generate().unwrap();
    world.store_draft(signing_key::draft(Purpose::User, "1", &pair)).await;
    (world, SigningKey { kid: "1".into(), pair })
}

pub fn bearer(path: &str, token: &str) -> Request<Body> {
    let mut request = remote(Method::GET, path, Body::empty());
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub fn john(groups: &[&str]) -> UserToken {
    UserToken { name: "john".into(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}

#[tokio::test]
async fn a_good_token_says_who_it_is_and_a_bad_one_is_refused() {
    let (world, key) = with_key().await;
    let hour = std::time::Duration::from_secs(3600);
    let good = token::issue(&john(&["team-a"]), &key, Timestamp::now(), hour).unwrap();
    let me = world.send(bearer("/who-am-i", &good)).await.expect(200).json();
    assert_eq!(me, json!({ "name": "john", "groups": ["team-a", "mesh-system:authenticated"] }));

    let long_ago = Timestamp::now() - SignedDuration::from_hours(2);
    let expired = token::issue(&john(&[]), &key, long_ago, hour).unwrap();
    let stranger = SigningKey { kid: "1".into(), pair: KeyPair::generate().unwrap() };
    let forged = token::issue(&john(&[ADMIN]), &stranger, Timestamp::now(), hour).unwrap();
    let elsewhere = SigningKey { kid: "7".into(), pair: KeyPair::generate().unwrap() };
    let unknown = token::issue(&john(&[]), &elsewhere, Timestamp::now(), hour).unwrap();
    let later = Timestamp::now() + SignedDuration::from_hours(2);
    let early = token::issue(&john(&[]), &key, later, hour).unwrap();
    for (bad, why) in [
        ("", "the token is missing"),
        ("nonsense", "the token is malformed"),
        ("a.b.c", "the token is malformed"),
        (&*expired, "the token expired at 20"),
        (&*early, "the token is not valid before 20"),
        (&*unknown, "there is no signing key with the serial number \"7\""),
        // Times of a token that anyone could have made are not looked at.
        (&*forged, "the token's signature does not match its content or its key"),
    ] {
        let answer = world.send(bearer("/who-am-i", bad)).await;
        let problem = answer.expect_problem_titled(401, "Invalid authentication data");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("Unauthenticated: {why}")), "{detail}");
        assert!(bad.is_empty() || !detail.contains(bad), "the token is not echoed: {detail}");
    }
    for scheme in ["bearer", "BEARER"] {
        let mut request = remote(Method::GET, "/who-am-i", Body::empty());
        request.headers_mut().insert("authorization", format!("{scheme} {good}").parse().unwrap());
        assert_eq!(name(&world, request).await, "john");
    }
    // Other schemes are not ours to judge.
    let mut basic = remote(Method::GET, "/who-am-i", Body::empty());
    basic.headers_mut().insert("authorization", "Basic abc".parse().unwrap());
    assert_eq!(name(&world, basic).await, ANONYMOUS);
}

#[tokio::test]
async fn a_revoked_token_is_refused() {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let (world, key) = with_key().await;
    let issued =
        token::issue(&john(&[]), &key, Timestamp::now(), std::time::Duration::from_secs(60)).unwrap();
    world.send(bearer("/who-am-i", &issued)).await.expect(200);
    let claims = URL_SAFE_NO_PAD.decode(issued.split('.').nth(1).unwrap()).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    let ids = base64::engine::general_purpose::STANDARD.encode(claims["jti"].as_str().unwrap());
    world.store(Kind::GlobalSecret, "", "user-token-revocations", json!({ "data": ids })).await;
    let problem = world.send(bearer("/who-am-i", &issued)).await;
    let problem = problem.expect_problem_titled(401, "Invalid authentication data");
    assert!(problem["detail"].as_str().unwrap().contains("is revoked"), "{problem}");
}

#[tokio::test]
async fn refused_tokens_are_logged_with_address_and_reason_a_flood_once() {
    let (world, key) = with_key().await;
    let log = Log::default();
    let _guard = log.listen();
    let hour = std::time::Duration::from_secs(3600);
    let long_ago = Timestamp::now() - SignedDuration::from_hours(2);
    let expired = token::issue(&john(&[]), &key, long_ago, hour).unwrap();
    for _ in 0..100 {
        world.send(bearer("/who-am-i", "nonsense")).await.expect(401);
    }
    world.send(bearer("/who-am-i", &expired)).await.expect(401);
    let lines = log.lines();
    let of = |reason: &str| lines.iter().filter(|line| line["reason"] == reason).collect::<Vec<_>>();
    assert_eq!((of("malformed").len(), of("expired").len()), (1, 1), "{lines:?}");
    let line = of("expired")[0];
    assert_eq!((&line["level"], &line["peer"]), (&json!("WARN"), &json!("192.0.2.7:40000")), "{line}");
    assert!(!line.to_string().contains(&expired), "{line}");
    // One that tries again and again does not hide another.
    let mut other = bearer("/who-am-i", "nonsense");
    other.extensions_mut().insert(peer("192.0.2.8:1"));
    world.send(other).await.expect(401);
    let lines = log.lines();
    assert!(lines.iter().any(|line| line["peer"] == "192.0.2.8:1"), "{lines:?}");
}

#[tokio::test]
async fn anybody_may_ask_which_control_plane_this_is() {
    let world = World::new().await;
    world.send(bearer("/", "nonsense")).await.expect(200);
    world.send(remote(Method::GET, "/", Body::empty())).await.expect(200);
    let settings = Settings { base_path: "/cp".into(), ..Settings::default() };
    World::with(zone(), settings).await.send(bearer("/cp", "nonsense")).await.expect(200);
}

#[tokio::test]
async fn secrets_are_for_administrators_in_every_way_of_asking() {
    let world = World::new().await;
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "one", "data": "c2VjcmV0" });
    world.put("/meshes/default/secrets/one", &secret).await.expect(201);
    let body = || Body::from(secret.to_string());
    let user = "mesh-system:anonymous/mesh-system:unauthenticated";
    for (request, kind) in [
        (remote(Method::GET, "/meshes/default/secrets", Body::empty()), "Secret"),
        (remote(Method::GET, "/secrets", Body::empty()), "Secret"),
        (remote(Method::GET, "/secrets?watch=true", Body::empty()), "Secret"),
        (remote(Method::GET, "/meshes/default/secrets/one", Body::empty()), "Secret"),
        (remote(Method::PUT, "/meshes/default/secrets/one", body()), "Secret"),
        (remote(Method::PUT, "/meshes/default/secrets/two", body()), "Secret"),
        (remote(Method::DELETE, "/meshes/default/secrets/one", Body::empty()), "Secret"),
        (remote(Method::GET, "/global-secrets", Body::empty()), "GlobalSecret"),
        (remote(Method::GET, "/globalsecrets/none", Body::empty()), "GlobalSecret"),
    ] {
        let detail = format!("user {user:?} cannot access the resource of type {kind:?}");
        world.send(request).await.expect_problem(403, "Access Denied", &detail);
    }
    world.get("/meshes/default/secrets/one").await.expect(200);
}

#[tokio::test]
async fn everything_else_is_open_to_anybody() {
    let world = World::new().await;
    for path in ["/meshes", "/meshes/default", "/config", "/policies", "/_resources", "/global-insight"] {
        world.send(remote(Method::GET, path, Body::empty())).await.expect(200);
    }
    let body = Body::from(json!({ "type": "Mesh", "name": "theirs" }).to_string());
    world.send(remote(Method::PUT, "/meshes/theirs", body)).await.expect(201);
}

#[tokio::test]
async fn where_writes_ask_for_authentication_strangers_only_read() {
    let authn = Authn { require_for_writes: true, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    let pair = KeyPair::generate().unwrap();
    world.store_draft(signing_key::draft(Purpose::User, "1", &pair)).await;
    let key = SigningKey { kid: "1".into(), pair };
    let path = "/meshes/default/meshtimeouts/one";
    let body = || Body::from(timeout("one", "1s").to_string());
    for request in [remote(Method::PUT, path, body()), remote(Method::DELETE, path, Body::empty())] {
        let problem = world.send(request).await.expect_problem_titled(403, "Access Denied");
        assert!(problem["detail"].as_str().unwrap().contains("requireForWrites"), "{problem}");
    }
    world.send(remote(Method::GET, "/meshes", Body::empty())).await.expect(200);
    let hour = std::time::Duration::from_secs(3600);
    let token = token::issue(&john(&[]), &key, Timestamp::now(), hour).unwrap();
    let mut request = remote(Method::PUT, path, body());
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    world.send(request).await.expect(201);
    world.delete(path).await.expect(200);
}

#[tokio::test]
async fn the_operator_decides_who_may_see_secrets_and_the_configuration() {
    let team = || Allowed { users: vec!["jane".into()], groups: vec!["team-a".into()] };
    let access =
        AccessRights { admin_resources: team(), control_plane_metadata: team(), ..AccessRights::default() };
    let world = World::with(zone(), Settings { access, ..Settings::default() }).await;
    let pair = KeyPair::generate().unwrap();
    world.store_draft(signing_key::draft(Purpose::User, "1", &pair)).await;
    let key = SigningKey { kid: "1".into(), pair };
    let jane = UserToken { name: "jane".into(), groups: Vec::new() };
    for (user, status) in [(john(&["team-a"]), 200), (jane, 200), (john(&["team-b"]), 403), (john(&[]), 403)]
    {
        let token = token::issue(&user, &key, Timestamp::now(), std::time::Duration::from_secs(60)).unwrap();
        for path in ["/secrets", "/config"] {
            world.send(bearer(path, &token)).await.expect(status);
        }
    }
    world.get("/secrets").await.expect(403);
}

#[tokio::test]
async fn a_token_counts_for_more_than_being_an_administrator_of_the_machine() {
    let (world, key) = with_key().await;
    let local = |path: &str, token: &str| {
        let mut request = request(Method::GET, path, Body::empty());
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    let hour = std::time::Duration::from_secs(3600);
    let good = token::issue(&john(&[]), &key, Timestamp::now(), hour).unwrap();
    assert_eq!(name(&world, local("/who-am-i", &good)).await, "john");
    world.send(local("/secrets", &good)).await.expect(403);
    world.send(request(Method::GET, "/secrets", Body::empty())).await.expect(200);
    for path in ["/who-am-i", "/meshes"] {
        let refused = world.send(local(path, "nonsense")).await.expect(401).json();
        assert!(refused["detail"].as_str().unwrap().contains("the token is malformed"), "{refused}");
    }
    // Which control plane this is, anyone may know.
    world.send(local("/", "nonsense")).await.expect(200);
    // Where no tokens are known, there is none to look at.
    let authn = Authn { kind: AuthnType::AdminClientCerts, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    assert_eq!(name(&world, local("/who-am-i", "nonsense")).await, ADMIN);
}

fn trust(name: &str) -> Value {
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----";
    let bundles = json!([{ "type": "Pem", "pem": { "value": pem } }]);
    let spec = json!({ "trustDomain": "default", "caBundles": bundles });
    json!({ "type": "MeshTrust", "mesh": "default", "name": name, "spec": spec })
}

fn mesh_identity(name: &str) -> Value {
    let bundled = json!({ "insecureAllowSelfSigned": true, "autogenerate": { "enabled": true } });
    let spec = json!({
        "selector": { "dataplane": {} },
        "spiffeID": { "path": "/x" },
        "provider": { "type": "Bundled", "bundled": bundled },
    });
    json!({ "type": "MeshIdentity", "mesh": "default", "name": name, "spec": spec })
}

#[tokio::test]
async fn writers_of_policies_cannot_write_what_decides_who_workloads_are() {
    let authn = Authn { require_for_writes: true, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    let pair = KeyPair::generate().unwrap();
    world.store_draft(signing_key::draft(Purpose::User, "1", &pair)).await;
    let key = SigningKey { kid: "1".into(), pair };
    let hour = std::time::Duration::from_secs(3600);
    let token = token::issue(&john(&["team-a"]), &key, Timestamp::now(), hour).unwrap();
    let of_team = |method: Method, path: &str, body: &Value| {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = remote(method, path, body);
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    let policy = timeout("one", "1s");
    world.send(of_team(Method::PUT, "/meshes/default/meshtimeouts/one", &policy)).await.expect(201);
    for (kind, collection, make) in [
        ("MeshTrust", "meshtrusts", trust as fn(&str) -> Value),
        ("MeshIdentity", "meshidentities", mesh_identity),
    ] {
        let path = format!("/meshes/default/{collection}");
        world.put(&format!("{path}/stored"), &make("stored")).await.expect(201);
        let what_if = "/meshes/default/_what-if";
        let deletion = json!({ "delete": [{ "type": kind, "name": "stored" }] });
        for refused in [
            of_team(Method::PUT, &format!("{path}/mine"), &make("mine")),
            of_team(Method::PUT, &format!("{path}/stored"), &make("stored")),
            of_team(Method::DELETE, &format!("{path}/stored"), &Value::Null),
            of_team(Method::POST, what_if, &json!({ "resources": [make("mine")] })),
            of_team(Method::POST, what_if, &deletion),
            of_team(
                Method::POST,
                &format!("{what_if}?only=admission"),
                &json!({ "resources": [make("mine")] }),
            ),
            of_team(Method::DELETE, "/meshes/default", &Value::Null),
        ] {
            let problem = world.send(refused).await.expect_problem_titled(403, "Access Denied");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("{kind:?}")) && detail.contains("adminResources"), "{detail}");
        }
        world.send(of_team(Method::GET, &path, &Value::Null)).await.expect(200);
        world.send(of_team(Method::GET, &format!("{path}/stored"), &Value::Null)).await.expect(200);
        world.delete(&format!("{path}/stored")).await.expect(200);
    }
}
