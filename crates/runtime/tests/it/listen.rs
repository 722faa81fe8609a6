use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router, routing::get};
use runtime::{
    Shutdown,
    listen::{Limits, Listener, Peer},
    tls::{MinVersion, ServerTls},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};

use crate::client::{self, Pair, exchange};

async fn who(Extension(peer): Extension<Peer>) -> String {
    format!(
        "loopback={} tls={} known={}",
        peer.addr.ip().is_loopback(),
        peer.tls,
        peer.client_certificate.is_some()
    )
}

async fn serve(router: Router, tls: Option<ServerTls>, limits: Limits, shutdown: &Shutdown) -> SocketAddr {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.addr();
    listener.serve(router, tls.map(|tls| tls.to_config().unwrap()), limits, shutdown);
    addr
}

fn server_tls(pair: &Pair, min_version: MinVersion, clients: &[&Pair]) -> ServerTls {
    ServerTls {
        certificate_pem: pair.certificate.clone(),
        key_pem: pair.key.clone(),
        min_version,
        client_certificates: clients.iter().map(|pair| pair.der()).collect(),
    }
}

#[tokio::test]
async fn a_plain_listener_tells_the_router_who_is_asking() {
    let shutdown = Shutdown::default();
    let addr = serve(Router::new().route("/", get(who)), None, Limits::default(), &shutdown).await;
    let answer = exchange(TcpStream::connect(addr).await.unwrap(), "/").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("loopback=true tls=false known=false"), "{answer}");
    assert!(shutdown.finish(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn clients_are_known_by_certificate_and_foreign_ones_are_refused() {
    let shutdown = Shutdown::default();
    let server = client::self_signed();
    let friend = client::self_signed();
    let stranger = client::self_signed();
    for version in [MinVersion::Tls12, MinVersion::Tls13] {
        let tls = server_tls(&server, version, &[&friend]);
        let addr = serve(Router::new().route("/", get(who)), Some(tls), Limits::default(), &shutdown).await;
        for (identity, expect) in [(None, "tls=true known=false"), (Some(&friend), "tls=true known=true")] {
            let stream = client::tls(addr, &server, identity).await.unwrap();
            let answer = exchange(stream, "/").await.unwrap();
            assert!(answer.ends_with(expect), "{answer}");
        }
        let refused = match client::tls(addr, &server, Some(&stranger)).await {
            Ok(stream) => exchange(stream, "/").await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "an unknown certificate must end the connection");
    }
    assert!(shutdown.finish(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn shutdown_finishes_open_requests_and_accepts_no_others() {
    let shutdown = Shutdown::default();
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let in_handler = begun.clone();
    let may_answer = go.clone();
    let slow = move || async move {
        in_handler.notify_one();
        may_answer.notified().await;
        "finished"
    };
    let addr = serve(Router::new().route("/slow", get(slow)), None, Limits::default(), &shutdown).await;
    let _idle = TcpStream::connect(addr).await.unwrap();
    let request =
        tokio::spawn(async move { exchange(TcpStream::connect(addr).await.unwrap(), "/slow").await });
    begun.notified().await;
    shutdown.begin();
    go.notify_one();
    assert!(request.await.unwrap().unwrap().ends_with("finished"));
    assert!(shutdown.finish(Duration::from_secs(30)).await, "idle connections must not hold up the shutdown");
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn an_unfinished_head_ends_a_connection_and_idleness_does_not() {
    let shutdown = Shutdown::default();
    let limits = Limits { header_read: Duration::from_millis(50), ..Limits::default() };
    let addr = serve(Router::new().route("/", get(who)), None, limits, &shutdown).await;
    let mut idle = TcpStream::connect(addr).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.unwrap();

    let mut slow = TcpStream::connect(addr).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nhost: local").await.unwrap();
    let mut rest = Vec::new();
    let _closed = slow.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));

    // By now the idle connection has been idle for longer than a head may take.
    let answer = exchange(idle, "/").await.unwrap();
    assert!(answer.contains("HTTP/1.1 200 OK"), "{answer}");
    assert!(shutdown.finish(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn a_request_over_its_limit_is_answered_with_503() {
    let shutdown = Shutdown::default();
    let limits = Limits { request: Duration::from_millis(10), ..Limits::default() };
    let router = Router::new().route("/", get(std::future::pending::<String>));
    let addr = serve(router, None, limits, &shutdown).await;
    let answer = exchange(TcpStream::connect(addr).await.unwrap(), "/").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = Listener::bind(taken.addr()).await.unwrap_err().to_string();
    assert!(error.contains(&taken.addr().to_string()) && error.contains("another process"), "{error}");
}

#[test]
fn a_key_that_does_not_belong_to_the_certificate_is_refused() {
    let one = client::self_signed();
    let other = client::self_signed();
    let mixed = Pair { certificate: one.certificate, key: other.key };
    let error = server_tls(&mixed, MinVersion::Tls12, &[]).to_config().unwrap_err().to_string();
    assert!(error.contains("cannot be used"), "{error}");
}
