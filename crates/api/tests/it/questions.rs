//! Questions that take long: one of each caller at a time, and no longer than somebody waits for the answer.

use std::{pin::Pin, task::Poll, time::Duration};

use api::{Authn, Settings};
use axum::body::Body;
use http::{Method, Request};
use runtime::{
    Shutdown,
    listen::{Limits, Listener, Tally},
    metrics::Metrics,
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::world::{World, peer, request, zone};

const PATH: &str = "/meshes/default/_what-if";
/// Looks once whether it is ready.
async fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

const SOON: Duration = Duration::from_secs(60);

fn about(name: &str) -> Value {
    let conf = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }] });
    json!({ "resources": [{ "type": "MeshTimeout", "name": name, "spec": conf }] })
}

/// A question from this address, without a token.
fn from(address: &str, name: &str) -> Request<Body> {
    let mut question = request(Method::POST, PATH, Body::from(about(name).to_string()));
    question.extensions_mut().insert(peer(address));
    question
}

#[tokio::test]
async fn a_caller_has_two_questions_at_a_time_and_delays_no_other_caller() {
    let world = World::new().await;
    for [here, also_here, elsewhere] in [
        ["192.0.2.7:1", "192.0.2.7:2", "192.0.2.8:1"],
        ["[2001:db8:0:1::7]:1", "[2001:db8:0:1:8::1]:1", "[2001:db8:0:2::7]:1"],
    ] {
        let mut first = Box::pin(world.send(from(here, "endless")));
        let mut second = Box::pin(world.send(from(also_here, "short")));
        // Asked, and not answered.
        assert!(matches!(poll(&mut first).await, Poll::Pending));
        assert!(matches!(poll(&mut second).await, Poll::Pending));
        let refused = world.send(from(here, "short")).await;
        assert_eq!(refused.header("retry-after"), "1");
        let problem = refused.expect_problem_titled(429, "Too Many Requests");
        assert!(problem["detail"].as_str().unwrap().contains("ask again"), "{problem}");
        world.send(from(elsewhere, "short")).await.expect(200);
        // What would be written is not worked out for proxies, and does not wait.
        let path = format!("{PATH}?only=admission");
        let mut quick = request(Method::POST, &path, Body::from(about("short").to_string()));
        quick.extensions_mut().insert(peer(here));
        world.send(quick).await.expect(200);

        // The first one is given up, as when its client closes the connection.
        drop(first);
        let answer = tokio::time::timeout(SOON, second).await.unwrap().expect(200).json();
        assert_eq!(answer["proxies"]["affected"], 1);
        world.send(from(here, "short")).await.expect(200);
    }
}

#[tokio::test]
async fn a_closed_connection_ends_the_work_for_its_question() {
    // Any user may run the test: both callers are anonymous and on this machine.
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = listener.addr();
    let shutdown = Shutdown::default();
    let tally = Tally::register(&Metrics::default(), "test");
    listener.counted(tally).serve(world.router.clone(), None, Limits::default(), &shutdown);
    let body = about("endless").to_string();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    // Another question of the same user has to wait until no caller waits for the first.
    let mut next = Box::pin(world.send(request(Method::POST, PATH, Body::from(about("short").to_string()))));
    let is_waiting = async {
        while let Poll::Ready(answer) = poll(&mut next).await {
            answer.expect(200);
            next = Box::pin(world.send(request(Method::POST, PATH, Body::from(about("short").to_string()))));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, is_waiting).await.unwrap();
    drop(client);
    tokio::time::timeout(SOON, next).await.unwrap().expect(200);
}
