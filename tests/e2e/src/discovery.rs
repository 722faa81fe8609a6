//! A proxy without an Envoy: it opens a discovery stream, remembers what it is sent, and acknowledges it.
//!
//! Fifty real Envoys are too many for a small machine, and no Envoy sends garbage.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use http::{Uri, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{net::TcpSocket, sync::mpsc, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming, body::Body};
use tonic_prost::ProstCodec;
use xds::{
    Type,
    message::{DeltaRequest, DeltaResponse, Node},
};

use crate::{ControlPlane, DEADLINE, proxy::dataplane_token};

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// URL of a control plane and its trust anchor; outlives the process itself.
#[derive(Debug, Clone)]
pub struct Address {
    url: String,
    authority: PathBuf,
}

impl Address {
    pub fn of(control_plane: &ControlPlane) -> Address {
        let authority = control_plane.work_dir().join("kuma-cp.crt");
        Address { url: control_plane.dp_server(), authority }
    }

    /// URL of discovery streams.
    pub fn discovery(&self) -> String {
        format!("{}{METHOD}", self.url)
    }
}

/// Identity that a stream claims.
#[derive(Debug, Clone)]
pub struct Identity {
    pub mesh: String,
    pub name: String,
    pub dataplane: Option<Value>,
    pub token: Option<String>,
}

impl Identity {
    /// A proxy that brings its Dataplane along and has a token of its own.
    pub fn of(control_plane: &ControlPlane, dataplane: Value) -> anyhow::Result<Identity> {
        let text = |field: &str| dataplane[field].as_str().unwrap_or("default").to_owned();
        let mesh = text("mesh");
        let name = text("name");
        let token = Some(dataplane_token(control_plane, &mesh, &name)?);
        Ok(Identity { mesh, name, dataplane: Some(dataplane), token })
    }

    pub fn node(&self) -> Node {
        let text = |text: &str| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
        };
        let mut fields = BTreeMap::from([("dataplane.proxyType".to_owned(), text("dataplane"))]);
        if let Some(dataplane) = &self.dataplane {
            fields.insert("dataplane.resource".to_owned(), text(&dataplane.to_string()));
        }
        Node {
            id: format!("{}.{}", self.mesh, self.name),
            cluster: self.name.clone(),
            metadata: Some(prost_types::Struct { fields }),
        }
    }
}

/// Resources of a proxy: versions by name, for each type.
pub type KnownVersions = HashMap<Type, HashMap<String, String>>;

/// An open stream.
pub struct Stream {
    requests: mpsc::UnboundedSender<DeltaRequest>,
    responses: Streaming<DeltaResponse>,
    pub known: KnownVersions,
    /// Bytes of resources that came on this stream.
    pub received: HashMap<Type, usize>,
}

impl Stream {
    /// Connects and asks for all clusters and listeners, saying what is known of them already.
    pub async fn open(
        address: &Address,
        identity: &Identity,
        known: KnownVersions,
    ) -> Result<Stream, Status> {
        let (requests, outgoing) = mpsc::unbounded_channel();
        for kind in [Type::Cluster, Type::Listener] {
            let asked = DeltaRequest {
                node: Some(identity.node()),
                type_url: kind.url().to_owned(),
                resource_names_subscribe: vec!["*".to_owned()],
                initial_resource_versions: known.get(&kind).cloned().unwrap_or_default(),
                ..DeltaRequest::default()
            };
            let _ = requests.send(asked);
        }
        let failed = |error: anyhow::Error| Status::unavailable(format!("{error:#}"));
        let connection = connect(address).await.map_err(failed)?;
        let origin = Uri::try_from(&address.url).map_err(|error| failed(error.into()))?;
        let service =
            tower::service_fn(move |request: http::Request<Body>| connection.clone().send_request(request));
        let mut grpc = tonic::client::Grpc::with_origin(service, origin);
        let mut request = tonic::Request::new(UnboundedReceiverStream::new(outgoing));
        if let Some(token) = &identity.token {
            let token = token.parse().map_err(|_| Status::internal("a token that is no header value"))?;
            request.metadata_mut().insert("authorization", token);
        }
        let codec = ProstCodec::<DeltaRequest, DeltaResponse>::default();
        let path = PathAndQuery::from_static(METHOD);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let responses = grpc.streaming(request, path, codec).await?.into_inner();
        Ok(Stream { requests, responses, known, received: HashMap::new() })
    }

    /// Sends a request as it is.
    pub fn send(&self, request: DeltaRequest) {
        // Fails when the stream has ended, which the next response tells.
        let _ = self.requests.send(request);
    }

    /// Takes the next response in and acknowledges it; says which type it was about.
    pub async fn next(&mut self) -> Result<Type, Status> {
        let ended = || Status::aborted("the control plane has ended the stream");
        let late = |_| Status::deadline_exceeded("the control plane says nothing");
        let response = timeout(DEADLINE, self.responses.message()).await.map_err(late)??.ok_or_else(ended)?;
        let kind = Type::by_url(&response.type_url)
            .ok_or_else(|| Status::internal("a type that was not asked for"))?;
        let known = self.known.entry(kind).or_default();
        let resources = response.decoded().map_err(|error| Status::internal(error.to_string()))?;
        for resource in resources {
            *self.received.entry(kind).or_default() += resource.resource.map_or(0, |body| body.value.len());
            known.insert(resource.name, resource.version);
        }
        for name in &response.removed_resources {
            known.remove(name);
        }
        let acknowledged = DeltaRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            ..DeltaRequest::default()
        };
        self.send(acknowledged);
        Ok(kind)
    }

    /// Takes responses in until one is about `kind`.
    pub async fn until(&mut self, kind: Type) -> Result<(), Status> {
        while self.next().await? != kind {}
        Ok(())
    }

    /// Reads until the control plane ends the stream, and says why it did.
    pub async fn refusal(mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
}

/// Sends bytes as the body of a discovery call; says how the control plane ends it.
pub async fn send_raw(address: &Address, token: &str, body: Bytes) -> anyhow::Result<Status> {
    let mut connection = connect(address).await?;
    let request = http::Request::post(address.discovery())
        .header("content-type", "application/grpc")
        .header("authorization", token)
        .header("te", "trailers")
        .body(Body::new(Full::new(body)))?;
    let (head, body) = connection.send_request(request).await?.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        return Ok(status);
    }
    let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
    Status::from_header_map(&trailers).context("neither headers nor trailers have a status")
}

async fn connect(address: &Address) -> anyhow::Result<SendRequest<Body>> {
    connect_from(address, Ipv4Addr::LOCALHOST).await
}

/// Connects from a loopback address of the caller's choice.
pub async fn connect_from(address: &Address, source: Ipv4Addr) -> anyhow::Result<SendRequest<Body>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&address.authority)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let port = Uri::try_from(&address.url)?.port_u16().context("no port")?;
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    let name = ServerName::try_from("localhost")?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
