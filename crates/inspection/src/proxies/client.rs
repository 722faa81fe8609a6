//! One question to Envoy's admin interface, over mutual TLS.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use api::{AdminFormat, AdminView};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header::HOST};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use identity::certificate::CertificateAndKey;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

const CONNECT: Duration = Duration::from_secs(3);
const TOTAL: Duration = Duration::from_secs(5);

/// No proxy has more to say; one that does is not worth the memory.
const MAX_ANSWER: usize = 64 << 20;

/// Statistics of zone proxies by server name, connections that none of them leads anywhere, and the time of counting: a
/// small part of all statistics.
const SNI_USAGE: &str =
    "/stats?usedonly&filter=system_sni_%7C%5Eserver%5C.uptime%24%7C%5C.no_filter_chain_match%24";

/// Address of an admin interface.
pub struct AdminEndpoint {
    pub address: IpAddr,
    pub port: u16,
    /// `None` for Envoy's own interface on this machine.
    pub tls: Option<Arc<ClientConfig>>,
}

impl AdminEndpoint {
    fn socket(&self) -> SocketAddr {
        (self.address, self.port).into()
    }
}

impl fmt::Display for AdminEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.socket())
    }
}

/// Reason that a proxy cannot be asked over TLS.
#[derive(Debug, thiserror::Error)]
pub enum AdminTlsError {
    #[error(transparent)]
    Certificate(#[from] runtime::Error),
    /// Without the reader's error, which may quote what it read.
    #[error("the key of the control plane's admin certificate is not PEM")]
    Key,
    #[error(transparent)]
    Refused(#[from] rustls::Error),
}

/// Reason that an admin interface has not answered.
#[derive(Debug, thiserror::Error)]
pub enum AdminRequestError {
    #[error("no connection within {CONNECT:?}")]
    ConnectTimeout,
    #[error("{0}")]
    Connect(std::io::Error),
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error("no answer within {TOTAL:?}")]
    AnswerTimeout,
    #[error("{0}")]
    Request(http::Error),
    #[error("{0}")]
    Exchange(hyper::Error),
    #[error("{path} was answered with {status}")]
    Status { path: String, status: StatusCode },
    #[error("the answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Presents `pair`, and trusts what `authority` signed.
pub fn tls(authority: &str, pair: &CertificateAndKey) -> Result<Arc<ClientConfig>, AdminTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in runtime::tls::certificates(authority)? {
        roots.add(certificate)?;
    }
    let chain = runtime::tls::certificates(&pair.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|_| AdminTlsError::Key)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the body of a successful answer.
pub async fn get(endpoint: &AdminEndpoint, path: &str) -> Result<Bytes, AdminRequestError> {
    send(endpoint, Method::GET, path).await
}

/// The same for what changes something.
pub async fn post(endpoint: &AdminEndpoint, path: &str) -> Result<Bytes, AdminRequestError> {
    send(endpoint, Method::POST, path).await
}

async fn send(endpoint: &AdminEndpoint, method: Method, path: &str) -> Result<Bytes, AdminRequestError> {
    let asked = timeout(TOTAL, ask(endpoint, method, path)).await;
    asked.unwrap_or_else(|_| Err(AdminRequestError::AnswerTimeout))
}

async fn ask(endpoint: &AdminEndpoint, method: Method, path: &str) -> Result<Bytes, AdminRequestError> {
    let late = |_| AdminRequestError::ConnectTimeout;
    let stream = timeout(CONNECT, TcpStream::connect(endpoint.socket())).await.map_err(late)?;
    let stream = stream.map_err(AdminRequestError::Connect)?;
    match &endpoint.tls {
        None => exchange(stream, endpoint, method, path).await,
        Some(config) => {
            let name = ServerName::IpAddress(endpoint.address.into());
            let handshake = TlsConnector::from(config.clone()).connect(name, stream);
            let stream = timeout(CONNECT, handshake).await.map_err(late)?;
            exchange(stream.map_err(AdminRequestError::Tls)?, endpoint, method, path).await
        }
    }
}

async fn exchange<S>(
    stream: S,
    endpoint: &AdminEndpoint,
    method: Method,
    path: &str,
) -> Result<Bytes, AdminRequestError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(AdminRequestError::Exchange)?;
    // Ends when the sender and the answer are dropped, whatever happens; errors reach the sender.
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header(HOST, endpoint.socket().to_string());
    let request = request.body(Empty::<Bytes>::new()).map_err(AdminRequestError::Request)?;
    let answer = sender.send_request(request).await.map_err(AdminRequestError::Exchange)?;
    if answer.status() != StatusCode::OK {
        return Err(AdminRequestError::Status { path: path.to_owned(), status: answer.status() });
    }
    match Limited::new(answer.into_body(), MAX_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(AdminRequestError::TooLarge),
        Err(error) => Err(AdminRequestError::Body(error)),
    }
}

/// The path of a view in the admin interface.
pub fn path(view: AdminView) -> &'static str {
    match view {
        AdminView::ConfigDump { include_eds: false } => "/config_dump",
        AdminView::ConfigDump { include_eds: true } => "/config_dump?include_eds",
        AdminView::Stats { format: AdminFormat::Text, used_only: false } => "/stats",
        AdminView::Stats { format: AdminFormat::Text, used_only: true } => "/stats?usedonly",
        AdminView::Stats { format: AdminFormat::Json, used_only: false } => "/stats?format=json",
        AdminView::Stats { format: AdminFormat::Json, used_only: true } => "/stats?format=json&usedonly",
        AdminView::SniUsage => SNI_USAGE,
        AdminView::Clusters { format: AdminFormat::Text } => "/clusters",
        AdminView::Clusters { format: AdminFormat::Json } => "/clusters?format=json",
    }
}
