//! Issuing tokens.

use api::{Issuers, Settings};
use axum::body::Body;
use http::Method;
use identity::{DataplaneToken, KeyPair, Purpose, UserToken, ZoneToken, signing_key, token};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::{World, remote, zone};

const MESH: Purpose<'static> = Purpose::Dataplane { mesh: "default" };

/// A world with a signing key for every purpose.
async fn with_keys() -> World {
    let world = World::new().await;
    let pair = KeyPair::generate().unwrap();
    for purpose in [MESH, Purpose::Zone, Purpose::User] {
        world.store_draft(signing_key::draft(purpose, "1", &pair)).await;
    }
    world
}

#[tokio::test]
async fn a_dataplane_token_carries_what_was_asked_for() {
    let world = with_keys().await;
    let body = json!({
        "name": "web-1", "mesh": "default", "tags": { "kuma.io/service": ["web", "api"] }, "type": "dataplane",
        "workload": "web", "labels": { "app": ["shop"] }, "validFor": "1h",
    });
    let answer = world.post("/tokens/dataplane", &body).await.expect(200);
    assert_eq!(answer.header("content-type"), "text/plain");
    let snapshot = world.registrar.store().snapshot().unwrap();
    let claims: DataplaneToken = token::validate(&answer.body, MESH, &snapshot, Timestamp::now()).unwrap();
    assert_eq!(
        (claims.name.as_str(), claims.mesh.as_str(), claims.workload.as_str()),
        ("web-1", "default", "web")
    );
    assert_eq!(claims.tags["kuma.io/service"], ["web", "api"]);
    assert_eq!(claims.labels["app"], ["shop"]);
    let later = Timestamp::now() + SignedDuration::from_secs(3601);
    let expired = token::validate::<DataplaneToken>(&answer.body, MESH, &snapshot, later);
    assert!(matches!(expired, Err(identity::Error::Expired(_))), "{expired:?}");
}

#[tokio::test]
async fn dataplane_and_zone_tokens_last_ten_years_unless_told_otherwise() {
    let world = with_keys().await;
    let dataplane = world.post("/tokens/dataplane", &json!({ "mesh": "default" })).await.expect(200).body;
    let zone = world
        .post("/tokens/zone", &json!({ "zone": "east", "scope": ["ingress", "egress"] }))
        .await
        .expect(200)
        .body;
    let snapshot = world.registrar.store().snapshot().unwrap();
    let late = Timestamp::now() + SignedDuration::from_hours(24 * 3649);
    token::validate::<DataplaneToken>(&dataplane, MESH, &snapshot, late).unwrap();
    let claims: ZoneToken = token::validate(&zone, Purpose::Zone, &snapshot, late).unwrap();
    assert_eq!(
        (claims.zone.as_str(), claims.scope),
        ("east", vec!["ingress".to_owned(), "egress".to_owned()])
    );
    let later = Timestamp::now() + SignedDuration::from_hours(24 * 3651);
    assert!(token::validate::<ZoneToken>(&zone, Purpose::Zone, &snapshot, later).is_err());
}

#[tokio::test]
async fn tokens_that_anyone_could_use_for_years_come_with_warnings() {
    let world = with_keys().await;
    let warnings = async |kind: &str, body: Value| {
        let answer = world.post(&format!("/tokens/{kind}"), &body).await.expect(200);
        let all = answer.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = warnings("dataplane", json!({ "mesh": "default" })).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("299 kuma-cp \"any proxy of mesh 'default' can use the token"), "{found:?}");
    assert!(found[1].contains("valid for 3650 days"), "{found:?}");
    let found = warnings("zone", json!({ "scope": ["ingress"], "validFor": "24h" })).await;
    assert!(matches!(&*found, [one] if one.contains("any zone can use")), "{found:?}");
    let found = warnings("user", json!({ "name": "jane", "validFor": "87600h" })).await;
    assert!(matches!(&*found, [one] if one.contains("valid for 3650 days")), "{found:?}");
    let bound = json!({ "mesh": "default", "name": "web", "validFor": "720h" });
    assert_eq!(warnings("dataplane", bound).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_user_token_opens_the_api_to_its_user() {
    let world = with_keys().await;
    let body = json!({ "name": "jane", "groups": ["mesh-system:admin"], "validFor": "10m" });
    let token = world.post("/tokens/user", &body).await.expect(200).body;
    let snapshot = world.registrar.store().snapshot().unwrap();
    token::validate::<UserToken>(&token, Purpose::User, &snapshot, Timestamp::now()).unwrap();
    let mut request = remote(Method::GET, "/global-secrets", Body::empty());
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    world.send(request).await.expect(200);
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_field_by_field() {
    let world = with_keys().await;
    for (path, body, fields) in [
        ("dataplane", json!({}), &["mesh"][..]),
        ("dataplane", json!({ "type": "odd", "validFor": "soon" }), &["mesh", "type", "validFor"]),
        ("dataplane", json!({ "mesh": "default", "validFor": "-1h" }), &["validFor"]),
        ("dataplane", json!({ "mesh": "default", "labels": { "app": [] } }), &["labels[\"app\"]"]),
        ("zone", json!({ "zone": "east" }), &["scope"]),
        ("zone", json!({ "zone": "east", "scope": ["ingress", "odd"] }), &["scope[1]"]),
        ("user", json!({}), &["name", "validFor"]),
        ("user", json!({ "name": "jane", "validFor": "0s" }), &["validFor"]),
    ] {
        let answer = world.post(&format!("/tokens/{path}"), &body).await;
        let problem = answer.expect_problem(400, "Invalid request", "Resource is not valid");
        let found: Vec<&str> = problem["invalid_parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["field"].as_str().unwrap())
            .collect();
        assert_eq!(found, fields, "{path} {body}");
    }
    for body in [json!([]), json!({ "mesh": 1 })] {
        world.post("/tokens/dataplane", &body).await.expect_problem_titled(400, "Bad Request");
    }
}

#[tokio::test]
async fn without_a_signing_key_there_is_no_token() {
    let world = World::new().await;
    let problem = world.post("/tokens/dataplane", &json!({ "mesh": "none" })).await;
    let problem = problem.expect_problem_titled(404, "Signing Key not found");
    let says = |secret: &str| {
        let rotated = "If signing key was rotated, regenerate the token";
        format!("there is no signing key with KID 1. {secret} is not found. {rotated}")
    };
    let secret = r#"Secret of name "dataplane-token-signing-key-none-1" in mesh "none""#;
    assert_eq!(problem["detail"], says(secret));
    let user = world.post("/tokens/user", &json!({ "name": "john", "validFor": "1h" })).await;
    let secret = r#"GlobalSecret of name "user-token-signing-key-1""#;
    user.expect_problem(404, "Signing Key not found", &says(secret));
}

#[tokio::test]
async fn only_administrators_may_issue() {
    let world = with_keys().await;
    for kind in ["dataplane", "zone", "user"] {
        let answer = world.send(remote(Method::POST, &format!("/tokens/{kind}"), Body::from("{}"))).await;
        let detail = format!(
            "user \"mesh-system:anonymous/mesh-system:unauthenticated\" cannot generate {kind} token"
        );
        answer.expect_problem(403, "Access Denied", &detail);
    }
}

#[tokio::test]
async fn an_issuer_that_is_switched_off_issues_nothing() {
    let issuers = Issuers { user: false, dataplane: false, zone: false };
    let world = World::with(zone(), Settings { issuers, ..Settings::default() }).await;
    for kind in ["dataplane", "zone", "user"] {
        let answer = world.post(&format!("/tokens/{kind}"), &json!({})).await;
        let problem = answer.expect_problem_titled(400, "Could not issue a token");
        assert!(problem["detail"].as_str().unwrap().contains("disabled"), "{problem}");
    }
}
