//! Limits of a listener: more clients than it serves, and clients that waste its time.

use std::{
    cell::RefCell,
    io::{self, Write},
    net::SocketAddr,
    sync::{Arc, Once},
    time::Duration,
};

use axum::{Router, routing::get};
use runtime::{
    Shutdown,
    listen::{Connection, Limits, Listener, Tally},
    logs::{self, Level, LogFormat},
    metrics::Metrics,
    tls::{MinVersion, ServerTls},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::client::{self, Pair, exchange};

const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

/// A server with TLS, and what it says about itself.
struct Server {
    addr: SocketAddr,
    pair: Pair,
    metrics: Metrics,
    shutdown: Shutdown,
}

impl Server {
    async fn new(limits: Limits) -> Server {
        let metrics = Metrics::default();
        let shutdown = Shutdown::default();
        let pair = client::self_signed();
        let tls = ServerTls {
            certificate_pem: pair.certificate.clone(),
            key_pem: pair.key.clone(),
            min_version: MinVersion::Tls12,
            client_certificates: Vec::new(),
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.addr();
        let open = |connection: axum::Extension<Connection>| async move {
            format!("open={}", connection.open_requests())
        };
        let router = Router::new().route("/", get(open));
        let tls = Some(tls.to_config().unwrap());
        listener.counted(Tally::register(&metrics, "test")).serve(router, tls, limits, &shutdown);
        Server { addr, pair, metrics, shutdown }
    }

    async fn ask(&self) -> io::Result<String> {
        exchange(client::tls(self.addr, &self.pair, None).await?, "/").await
    }

    /// Waits until a line of the metrics is there.
    async fn told(&self, line: &str) {
        let there = async {
            while !self.metrics.encode().lines().any(|it| it == line) {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(SOON, there).await;
        assert!(waited.is_ok(), "{line} is not in\n{}", self.metrics.encode());
    }
}

thread_local! {
    /// Lines logged on this thread. A test and the server it starts share one.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of the thread that logs.
struct ThreadLog;

impl Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps log lines from here on. One subscriber serves the whole process: tracing asks only the
/// subscriber of the first thread that passes an event whether anyone wants it, so an event that a
/// test without a subscriber passes first would stay disabled for the others.
fn keep_log_lines() {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let subscriber = logs::subscriber(Level::Info, LogFormat::Text, || ThreadLog);
        tracing::subscriber::set_global_default(subscriber).unwrap();
        // Events that another test passed while there was none.
        tracing::callsite::rebuild_interest_cache();
    });
}

/// The log lines of this thread that contain a text.
fn log_lines_with(text: &str) -> Vec<String> {
    let all = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
    all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// A client that begins a handshake and never goes on.
async fn half_a_handshake(server: &Server) -> TcpStream {
    let mut hello = Vec::new();
    client::handshake(&server.pair).write_tls(&mut hello).unwrap();
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    stream
}

/// Waits until the server closes.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _closed = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is closed");
}

#[tokio::test]
async fn handshakes_over_the_limit_wait_in_line_and_all_get_in() {
    let limits = Limits { handshakes: 1, handshake: SOON, ..Limits::default() };
    let server = Arc::new(Server::new(limits).await);
    let mut stuck = Vec::new();
    for _ in 0..4 {
        stuck.push(half_a_handshake(&server).await);
    }
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let server = server.clone();
        clients.spawn(async move { server.ask().await.unwrap() });
    }
    for answer in clients.join_all().await {
        assert!(answer.ends_with("open=1"), "{answer}");
    }
    server.told("test_handshakes_waiting 0").await;
    assert!(!server.metrics.encode().contains("test_rejected_total"), "{}", server.metrics.encode());
}

/// Begins a request and waits until the server has had enough of it.
async fn slow_head(server: &Server) {
    let mut slow = client::tls(server.addr, &server.pair, None).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nhost: local").await.unwrap();
    let mut rest = Vec::new();
    let _closed = tokio::time::timeout(SOON, slow.read_to_end(&mut rest)).await.expect("it is closed");
    server.told(r#"test_rejected_total{reason="slow_head"} 1"#).await;
}

#[tokio::test]
async fn an_unfinished_handshake_is_counted_and_now_and_then_logged() {
    keep_log_lines();
    let server = Server::new(Limits { handshake: SHORT, ..Limits::default() }).await;
    let silent = TcpStream::connect(server.addr).await.unwrap();
    let halfway = half_a_handshake(&server).await;
    closed(silent).await;
    closed(halfway).await;
    server.told(r#"test_rejected_total{reason="handshake_timeout"} 2"#).await;
    server.told(r#"test_connections_ended_total{reason="handshake_timeout"} 2"#).await;
    let said = log_lines_with("handshake_timeout");
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["WARN", "peer=127.0.0.1:", "server=\"test\"", "20ms"] {
        assert!(said[0].contains(part), "{part}: {said:?}");
    }
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_counted_and_logged_with_what_was_wrong() {
    keep_log_lines();
    let server = Server::new(Limits::default()).await;
    let mut plain = TcpStream::connect(server.addr).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    closed(plain).await;
    server.told(r#"test_rejected_total{reason="handshake_failed"} 1"#).await;
    assert_eq!(log_lines_with("handshake_failed").len(), 1);
    drop(TcpStream::connect(server.addr).await.unwrap());
    server.told(r#"test_connections_ended_total{reason="handshake_abandoned"} 1"#).await;
}

#[tokio::test]
async fn a_connection_over_the_limit_gets_a_reason_until_another_leaves() {
    keep_log_lines();
    let server = Server::new(Limits { connections: 1, spare: SOON, ..Limits::default() }).await;
    let first = client::tls(server.addr, &server.pair, None).await.unwrap();
    let refused = server.ask().await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 5"), "{refused}");
    assert!(refused.contains("1 connections open, which is its limit; try again in 5 s"), "{refused}");

    let mut grpc = client::tls(server.addr, &server.pair, None).await.unwrap();
    let call = "POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/grpc\r\n\r\n";
    grpc.write_all(call.as_bytes()).await.unwrap();
    let mut refused = String::new();
    grpc.read_to_string(&mut refused).await.unwrap();
    for part in
        ["HTTP/1.1 200", "grpc-status: 8", "grpc-message: this server has", "grpc-retry-pushback-ms: 5000"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    server.told(r#"test_rejected_total{reason="connection_limit"} 2"#).await;
    assert_eq!(log_lines_with("connection_limit").len(), 1, "the second follows at once and is only counted");

    drop(first);
    server.told("test_connections 0").await;
    assert!(server.ask().await.unwrap().ends_with("open=1"));
}

#[tokio::test]
async fn a_connection_without_any_request_is_closed_and_counted() {
    let server = Server::new(Limits { first_request: SHORT, ..Limits::default() }).await;
    let mut silent = client::tls(server.addr, &server.pair, None).await.unwrap();
    let read = tokio::time::timeout(SOON, silent.read_to_end(&mut Vec::new())).await;
    assert!(read.is_ok(), "it is closed");
    server.told(r#"test_connections_ended_total{reason="no_request"} 1"#).await;
    assert!(server.shutdown.finish(SOON).await);
}

#[tokio::test]
async fn a_head_has_a_deadline_which_on_http2_begins_at_the_first_request() {
    let server = Server::new(Limits { header_read: SHORT, ..Limits::default() }).await;
    let mut stream = client::tls(server.addr, &server.pair, None).await.unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).await.unwrap();
    let mut read = Vec::new();
    expect(&mut stream, &mut read, &[0, 0, 0, 4, 1, 0, 0, 0, 0]).await;
    // It began later, so that the first one's time is over too when this one's is.
    slow_head(&server).await;
    stream.write_all(&[&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"are you?"].concat()).await.unwrap();
    expect(&mut stream, &mut read, &[&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], b"are you?"].concat()).await;
}

/// Reads until some bytes have come.
async fn expect(stream: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>, bytes: &[u8]) {
    while !read.windows(bytes.len()).any(|found| found == bytes) {
        let more = tokio::time::timeout(SOON, stream.read_buf(read)).await.expect("bytes in time").unwrap();
        assert_ne!(more, 0, "the connection was closed");
    }
}

#[tokio::test]
async fn a_pause_that_is_too_long_and_a_broken_connection_are_told_apart() {
    let server = Server::new(Limits { idle: SHORT, ..Limits::default() }).await;
    let mut pausing = client::tls(server.addr, &server.pair, None).await.unwrap();
    pausing.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, pausing.read_to_end(&mut answer)).await;
    read.expect("it is closed").unwrap();
    assert!(answer.ends_with(b"open=1"), "{answer:?}");
    server.told(r#"test_connections_ended_total{reason="idle"} 1"#).await;

    let server = Server::new(Limits::default()).await;
    let mut breaking = client::tls(server.addr, &server.pair, None).await.unwrap();
    breaking.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    expect(&mut breaking, &mut Vec::new(), b"open=1").await;
    socket2::SockRef::from(breaking.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
    drop(breaking);
    server.told(r#"test_connections_ended_total{reason="reset"} 1"#).await;
    server.told("test_connections 0").await;
}
