//! The control plane that is attacked, in this process and on real sockets.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use control_plane::{
    boot::{self, Running},
    config::{Config, setting::StoreType},
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::TlsConnector;

type Connection = hyper::client::conn::http2::SendRequest<Body>;

pub type Body = BoxBody<Bytes, std::convert::Infallible>;

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// A running control plane, and what is needed to talk to it.
pub struct Server {
    running: Running,
    tls: Arc<ClientConfig>,
    panics: Arc<AtomicU64>,
    /// A token for any proxy of the mesh `default`.
    pub token: String,
    /// The last connection to the server of proxies: handshakes are most of the cost of an input.
    connection: Mutex<Option<Connection>>,
    _work_dir: TempDir,
}

impl Server {
    pub async fn start() -> anyhow::Result<Server> {
        let panics = count_panics();
        let work_dir = tempfile::tempdir()?;
        let running = boot::start(config(&work_dir)?).await?;
        let pem = std::fs::read_to_string(work_dir.path().join("kuma-cp.crt"))?;
        let mut roots = RootCertStore::empty();
        for certificate in runtime::tls::certificates(&pem)? {
            roots.add(certificate)?;
        }
        let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let mut server = Server {
            running,
            tls: Arc::new(tls),
            panics,
            token: String::new(),
            connection: Mutex::default(),
            _work_dir: work_dir,
        };
        let request = json!({"mesh": "default", "validFor": "1h"});
        let answer = server.api("POST", "/tokens/dataplane", request.to_string().into()).await?;
        ensure!(answer.status == StatusCode::OK, "no token: {answer:?}");
        server.token = String::from_utf8(answer.body.into())?;
        Ok(server)
    }

    pub async fn finish(self) {
        self.running.finish().await;
    }

    /// A task that panics ends alone, and its caller may never know; the process does.
    pub fn has_not_panicked(&self) -> anyhow::Result<()> {
        ensure!(self.panics.load(Ordering::Relaxed) == 0, "a task panicked");
        Ok(())
    }

    /// One request to the REST API.
    pub async fn api(&self, method: &str, path: &str, body: Bytes) -> anyhow::Result<Answer> {
        let address = self.running.http.context("no HTTP port")?;
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let answer = collect(sender.send_request(request).await?).await;
        connection.abort();
        answer
    }

    /// A connection to the server of proxies: the last one, if an input has not ended it.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let mut last = self.connection.lock().await;
        if let Some(open) = last.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(open.clone());
        }
        Ok(last.insert(self.connect_again().await?).clone())
    }

    async fn connect_again(&self) -> anyhow::Result<Connection> {
        let port = self.running.dp_server.context("no server of proxies")?.port();
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

pub async fn collect(response: Response<hyper::body::Incoming>) -> anyhow::Result<Answer> {
    let (head, body) = response.into_parts();
    Ok(Answer { status: head.status, body: body.collect().await?.to_bytes() })
}

/// Whether an answer is one that a caller can act on: success, or a refusal with a reason.
pub fn is_sound(answer: &Answer) -> anyhow::Result<()> {
    ensure!(!answer.status.is_server_error(), "the control plane failed: {answer:?}");
    ensure!(answer.status.is_success() || !answer.body.is_empty(), "refused without a reason: {answer:?}");
    Ok(())
}

/// The fields of an answer.
pub fn fields(answer: &Answer) -> anyhow::Result<Value> {
    serde_json::from_slice(&answer.body).with_context(|| format!("not JSON: {answer:?}"))
}

fn config(work_dir: &TempDir) -> anyhow::Result<Config> {
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut config = Config::default();
    config.general.work_dir = work_dir.path().to_str().context("an odd temporary folder")?.to_owned();
    config.store.kind = StoreType::Memory;
    (config.api_server.http.interface, config.api_server.http.port) = (local, 0);
    (config.api_server.https.interface, config.api_server.https.port) = (local, 0);
    (config.diagnostics.interface, config.diagnostics.server_port) = (local, 0);
    config.dp_server.port = 0;
    Ok(config)
}

/// Counts panics of any thread from now on; the usual message is printed as well.
fn count_panics() -> Arc<AtomicU64> {
    let panics = Arc::new(AtomicU64::new(0));
    let (counted, usual) = (panics.clone(), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        counted.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    panics
}
