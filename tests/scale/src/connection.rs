//! One TLS connection with one discovery stream on it.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Uri, uri::PathAndQuery};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming, body::Body};

use crate::{envoy::Variant, wire::Raw};

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const WORLD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// As long as Envoy waits in the configuration that `kuma-dp` gives it, and then some: the machine is full.
const CONNECT: Duration = Duration::from_secs(60);
/// The name in the server's certificate.
pub const SERVER_NAME: &str = "localhost";

/// Address that proxies connect to, and the certificates that they trust.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    pub address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl ServerAddress {
    /// A server whose certificate is in a file, or was signed by one that is.
    pub fn trusting(address: SocketAddr, authority: &Path) -> anyhow::Result<ServerAddress> {
        let mut roots = RootCertStore::empty();
        let reading = || format!("reading the certificate authority {}", authority.display());
        for certificate in CertificateDer::pem_file_iter(authority).with_context(reading)? {
            roots.add(certificate.with_context(reading)?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        // Every proxy is another machine: none has a session of another to resume.
        tls.resumption = rustls::client::Resumption::disabled();
        Ok(ServerAddress { address, tls: Arc::new(tls) })
    }
}

pub type Requests = mpsc::UnboundedSender<Vec<Bytes>>;

/// End of a stream that was open, or should have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The server said why.
    Reported(String),
    /// The stream or the connection ended without a reason.
    Silent(String),
    /// There was no connection.
    Unreachable(String),
}

impl End {
    pub fn of(status: &Status) -> End {
        let text = format!("{:?}: {}", status.code(), status.message());
        // What the server sent in its trailers has no cause on this side.
        let mut cause = std::error::Error::source(status);
        if cause.is_none() {
            return End::Reported(text);
        }
        let mut causes = vec![text];
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        causes.dedup();
        End::Silent(causes.join(": "))
    }
}

/// Opens a stream; the first requests go out with it.
pub async fn open(
    server: &ServerAddress,
    variant: Variant,
    opening: Vec<Bytes>,
) -> Result<(Requests, Streaming<Bytes>), End> {
    let unreachable = |error: anyhow::Error| End::Unreachable(format!("{error:#}"));
    let connecting = timeout(CONNECT, connect(server));
    let sender = connecting.await.map_err(|_| End::Unreachable("no answer".to_owned()))?;
    let sender = sender.map_err(unreachable)?;
    let (requests, outgoing) = mpsc::unbounded_channel();
    for request in opening {
        // The receiver is right here.
        let _ = requests.send(vec![request]);
    }
    let service = tower::service_fn(move |request: http::Request<Body>| sender.clone().send_request(request));
    let origin: Uri = format!("https://{SERVER_NAME}:{}", server.address.port())
        .parse()
        .map_err(|error: http::uri::InvalidUri| unreachable(error.into()))?;
    let mut grpc = tonic::client::Grpc::with_origin(service, origin).max_decoding_message_size(usize::MAX);
    let path = match variant {
        Variant::Delta => DELTA,
        Variant::World => WORLD,
    };
    let request = tonic::Request::new(UnboundedReceiverStream::new(outgoing));
    grpc.ready().await.map_err(|error| End::Silent(error.to_string()))?;
    let answer = grpc.streaming(request, PathAndQuery::from_static(path), Raw).await;
    let responses = answer.map_err(|status| End::of(&status))?.into_inner();
    Ok((requests, responses))
}

async fn connect(server: &ServerAddress) -> anyhow::Result<hyper::client::conn::http2::SendRequest<Body>> {
    let stream = TcpStream::connect(server.address).await.context("connecting")?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(SERVER_NAME)?;
    let stream =
        TlsConnector::from(server.tls.clone()).connect(name, stream).await.context("TLS handshake")?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .context("HTTP/2 handshake")?;
    // Ends when the stream does; how, the stream tells.
    tokio::spawn(connection);
    Ok(sender)
}
