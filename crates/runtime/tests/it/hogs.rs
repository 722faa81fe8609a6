//! Clients that hold connections and do nothing with them.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use runtime::{
    Shutdown,
    listen::{Limits, Listener, Tally},
    metrics::Metrics,
    tls::{MinVersion, ServerTls},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::client::{self, exchange};

const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

struct Server {
    addr: SocketAddr,
    metrics: Metrics,
}

impl Server {
    async fn start(limits: Limits, tls: bool) -> Server {
        let metrics = Metrics::default();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.addr();
        let pair = client::self_signed();
        let tls = tls.then(|| {
            let tls = ServerTls {
                certificate_pem: pair.certificate.clone(),
                key_pem: pair.key.clone(),
                min_version: MinVersion::Tls12,
                client_certificates: Vec::new(),
            };
            tls.to_config().unwrap()
        });
        // More than any buffer between here and a client takes.
        let large = || async { vec![b'x'; 64 << 20] };
        let router = Router::new().route("/", get(|| async { "served" })).route("/large", get(large));
        let listener = listener.counted(Tally::register(&metrics, "test"));
        listener.serve(router, tls, limits, &Shutdown::default());
        Server { addr, metrics }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn told(&self, line: &str) {
        let there = async {
            while !self.metrics.encode().lines().any(|it| it == line) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, there).await;
        assert!(waited.is_ok(), "{line} is not in\n{}", self.metrics.encode());
    }
}

async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _closed = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is closed");
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_is_closed_with_and_without_tls() {
    for (tls, reason) in [(false, "silent"), (true, "handshake_timeout")] {
        let server = Server::start(Limits { first_byte: SHORT, ..Limits::default() }, tls).await;
        closed(server.connect().await).await;
        server.told(&format!("test_connections_ended_total{{reason=\"{reason}\"}} 1")).await;
    }
}

#[tokio::test]
async fn a_full_server_closes_the_connection_that_is_unused_for_longest() {
    let limits = Limits { connections: 2, spare: Duration::ZERO, ..Limits::default() };
    for tls in [false, true] {
        let server = Server::start(limits, tls).await;
        let oldest = server.connect().await;
        server.told("test_connections 1").await;
        let _younger = server.connect().await;
        server.told("test_connections 2").await;
        let _newest = server.connect().await;
        closed(oldest).await;
        server.told(r#"test_rejected_total{reason="shed"} 1"#).await;
        server.told("test_connections 2").await;
    }
}

#[tokio::test]
async fn a_client_is_served_however_many_silent_ones_there_are() {
    let limits = Limits { connections: 4, spare: Duration::ZERO, ..Limits::default() };
    let server = Server::start(limits, false).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(server.connect().await);
    }
    let served = tokio::time::timeout(SOON, async {
        // One that connects at a bad moment is rejected and may connect again.
        while !exchange(server.connect().await, "/").await.is_ok_and(|answer| answer.ends_with("served")) {}
    });
    served.await.expect("it is served");
}

#[tokio::test]
async fn a_connection_in_use_does_not_make_room() {
    let limits = Limits { connections: 1, spare: Duration::ZERO, ..Limits::default() };
    let server = Server::start(limits, false).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    busy.read_exact(&mut [0; 16]).await.unwrap();
    let refused = exchange(server.connect().await, "/").await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    busy.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
}

#[tokio::test]
async fn one_address_does_not_get_all_connections() {
    let server = Server::start(Limits { per_peer: 2, ..Limits::default() }, false).await;
    let first = server.connect().await;
    let _second = server.connect().await;
    server.told("test_connections 2").await;
    let refused = exchange(server.connect().await, "/").await.unwrap();
    assert!(refused.contains("2 connections open from your address"), "{refused}");
    server.told(r#"test_rejected_total{reason="peer_limit"} 1"#).await;
    drop(first);
    server.told("test_connections 1").await;
    assert!(exchange(server.connect().await, "/").await.unwrap().ends_with("served"));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_disconnected() {
    let server = Server::start(Limits { send: SHORT, ..Limits::default() }, false).await;
    let mut deaf = server.connect().await;
    deaf.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    server.told(r#"test_rejected_total{reason="slow_reader"} 1"#).await;
    server.told("test_connections 0").await;
}
