//! Calls over loopback that a web page of somebody else may make.

use std::time::Duration;

use api::Settings;
use axum::body::Body;
use http::Method;
use identity::token;
use jiff::Timestamp;
use testkit::body::timeout;

use crate::{
    authn::{ANONYMOUS, bearer, john, name, who_am_i, with, with_key},
    world::{World, peer, request, zone},
};

#[tokio::test]
async fn a_caller_on_this_machine_without_a_token_must_name_this_machine() {
    let settings = Settings {
        hostname: "cp-1".into(),
        root_url: "https://kuma.example.com/api".into(),
        allowed_hosts: vec!["cp.internal".into()],
        ..Settings::default()
    };
    let world = World::with(zone(), settings).await;
    let mut two_hosts = who_am_i();
    two_hosts.headers_mut().append("host", "rebound.example.com".parse().unwrap());
    let mut of_uri = who_am_i();
    *of_uri.uri_mut() = "http://rebound.example.com/who-am-i".parse().unwrap();
    for request in [
        with("host", "rebound.example.com"),
        with("host", "localhost.example.com"),
        with("host", "other.cp.internal"),
        with("host", "[::1]evil"),
        with("host", "[::1]:5681evil"),
        with("host", "[127.0.0.1]"),
        with("host", "localhost:evil"),
        with("host", "localhost:1:2"),
        two_hosts,
        of_uri,
    ] {
        let described = format!("{:?}", request.headers());
        let problem = world.send(request).await.expect_problem_titled(403, "Access Denied");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("which is no name of this machine"), "{described}: {detail}");
    }
    for host in ["CP-1:5681", "kuma.example.com", "cp.internal:5681", "192.0.2.1"] {
        assert_eq!(name(&world, with("host", host)).await, ANONYMOUS, "{host}");
    }
    // A page in a browser on another machine is for that machine's network to stop.
    let mut elsewhere = with("host", "kuma.example.org");
    elsewhere.extensions_mut().insert(peer("192.0.2.7:1"));
    assert_eq!(name(&world, elsewhere).await, ANONYMOUS);
    // A token is proof: a page of another site does not have it.
    let (world, key) = with_key().await;
    let hour = Duration::from_secs(3600);
    let token = token::issue(&john(&[]), &key, Timestamp::now(), hour).unwrap();
    let mut proven = bearer("/who-am-i", &token);
    proven.extensions_mut().insert(peer("127.0.0.1:1"));
    proven.headers_mut().insert("host", "rebound.example.com".parse().unwrap());
    assert_eq!(name(&world, proven).await, "john");
}

#[tokio::test]
async fn a_page_that_a_name_of_its_own_leads_here_writes_nothing() {
    let world = World::new().await;
    let put = |headers: &[(&'static str, &str)]| {
        let body = Body::from(timeout("t", "1s").to_string());
        let mut put = request(Method::PUT, "/meshes/default/meshtimeouts/t", body);
        for (name, value) in headers {
            put.headers_mut().insert(*name, value.parse().unwrap());
        }
        put
    };
    let stored = || world.registrar.store().snapshot().unwrap().iter().count();
    let before = stored();
    for headers in [
        &[("host", "evil.example")][..],
        &[("host", "evil.example"), ("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
    ] {
        world.send(put(headers)).await.expect_problem_titled(403, "Access Denied");
        assert_eq!(stored(), before, "{headers:?}");
    }
    world.send(put(&[("origin", "http://localhost:5681")])).await.expect(201);
    world
        .send(put(&[("origin", "http://localhost:5681"), ("sec-fetch-site", "same-origin")]))
        .await
        .expect(200);
    let cors_allowed_domains = vec!["https://gui.example".to_owned()];
    let open = World::with(zone(), Settings { cors_allowed_domains, ..Settings::default() }).await;
    let page = put(&[("origin", "https://gui.example"), ("sec-fetch-site", "cross-site")]);
    open.send(page).await.expect(201);
}
