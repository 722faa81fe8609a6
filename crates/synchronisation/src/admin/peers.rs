//! Questions between instances of a control plane that share a store.
//!
//! A zone is connected to one instance of a global control plane, and a proxy to one instance of its zone's. An instance
//! that is asked about a proxy finds in the insight of the zone, or of the proxy, which instance is connected to it and
//! where that one listens, and passes the question on. All instances show one certificate, whose key is in the store they
//! share, and trust no other: a process with the key may read everything anyway.

use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::Arc,
    time::Duration,
};

use admission::{Refusal, Registrar};
use api::{AdminAnswer, Inspect, InspectError};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    routing::any,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, Uri, header::CONTENT_TYPE};
use identity::certificate::{CertificateAndKey, Usage, self_signed};
use insights::kinds;
use jiff::Timestamp;
use kds::wire::{XdsConfigResponse, XdsConfigResult};
use resources::{
    Draft, Key, Kind,
    kinds::{
        secret::{GlobalSecret, SecretBytes},
        zone_insight::{KdsStream, ZoneInsight},
    },
};
use runtime::{
    listen::Peer,
    tls::{MinVersion, ServerTls, TrustedServers, certificates, client_config_showing},
};
use rustls::pki_types::ServerName;
use store::{Snapshot, Store};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tonic::Status;

use super::{AdminQuestion, PATIENCE, Questions, answered, bounded, said};
use crate::{
    KeepAlive,
    client::{judged, speak},
    frame::{Messages, Outgoing, ResponseFuture},
    server::answer,
    zones::ZoneStream,
};

/// The name in the certificate of all instances.
const NAME: &str = "inter-cp";
const ZONE: &str = "zone";
/// Time limit for another instance; it waits for the zone itself.
const ANSWER: Duration = PATIENCE.saturating_add(Duration::from_secs(2));

/// Work that fails when a request cannot be written.
const REQUEST: &str = "cannot create a request";

/// Reason why an instance has no certificate, or another one does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot create {secret}")]
    Refused {
        secret: String,
        #[source]
        cause: Refusal,
    },
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Tls(#[from] runtime::Error),
    /// The stored certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    #[error("{0}")]
    Call(String),
    #[error(transparent)]
    Status(#[from] Status),
}

impl Error {
    /// A call that failed while this was done.
    fn failed<E: Display>(work: &'static str) -> impl FnOnce(E) -> Error {
        move |cause| Error::Call(format!("{work}: {cause}"))
    }
}

/// The secret with the certificate and its key, one after the other.
pub fn secret() -> Key {
    Key::global(Kind::GlobalSecret, "inter-cp-certificate")
}

/// Makes the certificate, if no instance has done so.
pub async fn ensure(registrar: &Registrar, now: Timestamp) -> Result<(), Error> {
    let key = secret();
    let refused = |cause: Refusal| Error::Refused { secret: key.to_string(), cause };
    let snapshot = registrar.store().snapshot().map_err(|cause| refused(cause.into()))?;
    if snapshot.get(&key).is_none() {
        let pair = self_signed(Usage::Server, &[NAME.to_owned()], &[], now)?;
        let data = SecretBytes::new(pair.certificate + &pair.key);
        let made = registrar.ensure(vec![Draft::new(key.clone(), GlobalSecret { data }.into())]).await;
        made.map_err(refused)?;
    }
    Ok(())
}

fn stored(snapshot: &Snapshot) -> Result<CertificateAndKey, Error> {
    let unusable = Error::Certificate;
    let key = secret();
    let text = snapshot.get(&key).and_then(|stored| stored.spec.get::<GlobalSecret>());
    let text = text.ok_or_else(|| unusable(format!("there is no {key}: restart the control plane")))?;
    let text = std::str::from_utf8(text.data.as_bytes());
    let text = text.map_err(|error| unusable(format!("{key} is no text: {error}")))?;
    let marker = "-----END CERTIFICATE-----\n";
    let begins = text.find(marker).ok_or_else(|| unusable(format!("{key} has no certificate")))?;
    let (certificate, key) = text.split_at(begins + marker.len());
    Ok(CertificateAndKey { certificate: certificate.to_owned(), key: key.to_owned() })
}

/// The certificate an instance presents to others, and the authorities it trusts.
pub fn server_tls(snapshot: &Snapshot) -> Result<ServerTls, Error> {
    let pair = stored(snapshot)?;
    let client_certificates = certificates(&pair.certificate)?;
    let min_version = MinVersion::Tls13;
    Ok(ServerTls { certificate_pem: pair.certificate, key_pem: pair.key, min_version, client_certificates })
}

/// The address from which this machine reaches a host; others are reached from there, too, as a rule.
pub fn own_address(towards: &str, port: u16) -> IpAddr {
    let local = || {
        let there = (towards, port).to_socket_addrs().ok()?.next()?;
        let from: SocketAddr = if there.is_ipv6() {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        };
        // Nothing is sent: the system only chooses the way.
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(there).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    local().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The other instances.
pub struct Peers {
    pub store: Arc<dyn Store>,
    pub instance_id: String,
    /// Bytes of an answer.
    pub limit: usize,
}

/// An instance that can answer, and what is connected to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub instance: String,
    /// Its address; empty where it has not published one.
    pub address: String,
    pub of: ConnectedPeer,
}

/// A zone or a proxy with a connection to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectedPeer {
    Zone(String),
    Proxy(Key),
}

impl Peers {
    /// The instance that has a stream of a zone, if it is another one.
    pub(super) fn holder(&self, zone: &str, stream: ZoneStream) -> Option<Holder> {
        let snapshot = self.store.snapshot().ok()?;
        let insight = snapshot.get(&Key::global(Kind::ZoneInsight, zone))?.spec.get::<ZoneInsight>()?;
        let streams = insight.kds_streams.as_ref()?;
        let holder = match stream {
            ZoneStream::ConfigDump => &streams.config_dump,
            ZoneStream::Stats => &streams.stats,
            ZoneStream::Clusters => &streams.clusters,
            ZoneStream::GlobalToZone => &streams.global_to_zone,
            ZoneStream::ZoneToGlobal => &streams.zone_to_global,
        };
        let KdsStream { global_instance_id, global_address, .. } = holder.as_ref()?;
        self.other(global_instance_id, global_address, ConnectedPeer::Zone(zone.to_owned()))
    }

    /// The instance that a proxy is connected to, if it is another one.
    pub fn holder_of_proxy(&self, snapshot: &Snapshot, proxy: &Key) -> Option<Holder> {
        let insight = Key { kind: kinds::of_proxy(proxy.kind), ..proxy.clone() };
        let last = kinds::subscriptions(&snapshot.get(&insight)?.spec).last()?;
        let is_online = last.is_online();
        let of = ConnectedPeer::Proxy(proxy.clone());
        self.other(&last.control_plane_instance_id, &last.control_plane_address, of).filter(|_| is_online)
    }

    fn other(&self, instance: &str, address: &str, of: ConnectedPeer) -> Option<Holder> {
        let holder = Holder { instance: instance.to_owned(), address: address.to_owned(), of };
        (!instance.is_empty() && instance != self.instance_id).then_some(holder)
    }

    /// Passes a question on.
    pub async fn ask(&self, holder: &Holder, question: AdminQuestion) -> Result<AdminAnswer, InspectError> {
        let Holder { instance, address, of } = holder;
        let whose = match of {
            ConnectedPeer::Zone(zone) => {
                format!("zone {zone:?} is connected to the instance {instance:?} of the global control plane")
            }
            ConnectedPeer::Proxy(proxy) => {
                format!("{proxy} is connected to the instance {instance:?} of this control plane")
            }
        };
        let failed = |why: &str| {
            InspectError::Unreachable(format!(
                "{whose}: ask that one. The request cannot be forwarded: {why}"
            ))
        };
        if address.is_empty() {
            return Err(failed("it has not published its address"));
        }
        let content_type = question.content_type();
        let answered = timeout(ANSWER, self.call(address, of, question)).await;
        let answered =
            answered.map_err(|_| failed(&format!("{address} did not answer within {ANSWER:?}")))?;
        let hint = "interCp.catalog.instanceAddress and interCp.server.port set its address";
        match answered.map_err(|error| failed(&format!("{address}: {error}; {hint}")))? {
            Some(XdsConfigResult::Config(body)) => Ok(AdminAnswer { content_type, body }),
            Some(XdsConfigResult::Error(error)) => Err(InspectError::Unreachable(bounded(&error))),
            None => Err(failed("its answer is empty")),
        }
    }

    async fn call(
        &self,
        address: &str,
        of: &ConnectedPeer,
        question: AdminQuestion,
    ) -> Result<Option<XdsConfigResult>, Error> {
        let pair = stored(&*self.store.snapshot()?)?;
        let trust = TrustedServers::Certificates(certificates(&pair.certificate)?);
        let tls = client_config_showing(&pair.certificate, &pair.key, trust, b"h2")?;
        let stream = TcpStream::connect(address).await.map_err(Error::failed("cannot connect"))?;
        let name = ServerName::try_from(NAME).map_err(Error::failed("TLS"))?;
        let stream =
            TlsConnector::from(Arc::new(tls)).connect(name, stream).await.map_err(Error::failed("TLS"))?;
        let mut sender = speak(stream, KeepAlive::default()).await.map_err(Error::Call)?;
        let (asked, frames) = Outgoing::of_call(false, PATIENCE);
        let uri = Uri::builder().scheme("https").authority(NAME).path_and_query(path(question.stream()));
        let mut request = http::Request::post(uri.build().map_err(Error::failed(REQUEST))?)
            .body(Body::new(frames))
            .map_err(Error::failed(REQUEST))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let ConnectedPeer::Zone(zone) = of {
            request.headers_mut().insert(ZONE, HeaderValue::try_from(zone).map_err(Error::failed(REQUEST))?);
        }
        question.send(&asked, String::new()).await?;
        drop(asked);
        let response: ResponseFuture = Box::pin(async move {
            let broken = |error: hyper::Error| Status::unavailable(format!("the connection broke: {error}"));
            let response = sender.send_request(request).await.map_err(broken)?;
            judged(response.status(), response.headers())?;
            Ok(Body::new(response.into_body()))
        });
        let answer = Messages::of_answer(response, self.limit).next::<XdsConfigResponse>().await?;
        Ok(answer.and_then(|answer| answer.result))
    }
}

fn path(stream: ZoneStream) -> &'static str {
    match stream {
        ZoneStream::ConfigDump | ZoneStream::GlobalToZone | ZoneStream::ZoneToGlobal => {
            "/questions/config-dump"
        }
        ZoneStream::Stats => "/questions/stats",
        ZoneStream::Clusters => "/questions/clusters",
    }
}

/// The subjects that an instance answers about.
pub enum Answers {
    /// Proxies of the zones that are connected to it.
    Zones(Arc<Questions>),
    /// Proxies that are connected to it. It passes nothing on: two that take each other for the right one would do so
    /// forever.
    Proxies(Arc<dyn Inspect>),
}

/// Parts needed to answer other instances.
struct Context {
    answers: Answers,
    /// Bytes of an answer.
    limit: usize,
}

/// Routes for the questions of other instances.
pub fn router(answers: Answers, limit: usize) -> Router {
    let context = Arc::new(Context { answers, limit });
    let streams = [ZoneStream::ConfigDump, ZoneStream::Stats, ZoneStream::Clusters];
    let routes = streams.into_iter().fold(Router::new(), |router, stream| {
        router.route(path(stream), any(move |state, request| respond(state, stream, request)))
    });
    routes.with_state(context)
}

async fn respond(
    State(context): State<Arc<Context>>,
    stream: ZoneStream,
    request: Request,
) -> Response<Body> {
    match put(&context, stream, request).await {
        Ok(response) => response,
        Err(status) => status.into_http(),
    }
}

impl Context {
    async fn answer(
        &self,
        headers: &HeaderMap,
        question: AdminQuestion,
    ) -> Result<Result<Bytes, InspectError>, Status> {
        match &self.answers {
            Answers::Proxies(inspect) => Ok(answered(&**inspect, &question).await),
            Answers::Zones(questions) => {
                let zone = headers.get(ZONE).and_then(|zone| zone.to_str().ok());
                let zone =
                    zone.ok_or_else(|| Status::invalid_argument("metadata zone must name the zone"))?;
                Ok(questions.put_here(zone, question).await.map(|answer| answer.body))
            }
        }
    }
}

async fn put(context: &Context, stream: ZoneStream, request: Request) -> Result<Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    // A certificate that is shown is the right one, or the handshake would have failed.
    let is_known = parts.extensions.get::<Peer>().is_some_and(|peer| peer.client_certificate.is_some());
    if !is_known {
        return Err(Status::unauthenticated("only instances of this control plane are answered"));
    }
    let asked = AdminQuestion::next(&mut Messages::of(body, context.limit), stream).await?;
    let (request_id, question) = asked.ok_or_else(|| Status::invalid_argument("no question"))?;
    let result = match question {
        Ok(question) => said(context.answer(&parts.headers, question).await?, context.limit),
        Err(unreadable) => XdsConfigResult::Error(unreadable.to_string()),
    };
    let (outgoing, frames) = Outgoing::of_answer(false, PATIENCE);
    // The channel has room for one message.
    outgoing.send(&XdsConfigResponse { request_id, result: Some(result) }).await?;
    Ok(answer(frames, false))
}

#[cfg(test)]
mod tests;
