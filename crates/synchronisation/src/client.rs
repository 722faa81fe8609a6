//! A zone's connection to the global control plane.
//!
//! One connection carries six calls. When one of them ends, all do, and the zone connects again after a while: what
//! it has stored stays, and its proxies notice nothing.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::Inspect;
use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header::CONTENT_TYPE};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use kds::{
    receiver::Role,
    select::{Direction, Selection},
    unreceived::{NamesResponse, Unreceived},
    wire::{self, service},
};
use resources::{Kind, superseded::Superseded};
use runtime::{Backoff, Shutdown};
use rustls::{ClientConfig, pki_types::ServerName};
use store::Store;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::Status;

use super::{
    AUTHORIZATION, CLIENT_ID, HEALTH_CHECK, KeepAlive,
    admin::AnswerParts,
    config::ZoneKds,
    frame::{Messages, Outgoing, ResponseFuture},
    metrics::SyncMetrics,
    node::{self, Implementation, Introduction},
    providing::{self, ProvidingParts},
    public_key,
    receiving::{self, DeletionGuard, ReceivingParts, TURNS},
    zones::{StreamVisit, SyncProblemKind, ZoneRegistry, ZoneStream},
};

/// Time limit for connecting, and for the handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection that held this long was a good one.
const GOOD: Duration = Duration::from_secs(60);
/// Time limit for the answer to a sign of life.
const HEALTH_ANSWER: Duration = Duration::from_secs(10);
/// Windows of HTTP/2: a message should not need many round trips.
const WINDOW: u32 = 1 << 20;

/// Parts needed to connect.
pub struct GlobalClient {
    pub zone: Arc<str>,
    /// Record of this zone's own connection.
    pub own: Arc<ZoneRegistry>,
    pub meter: Arc<SyncMetrics>,
    pub address: GlobalAddress,
    pub store: Arc<dyn Store>,
    pub inspect: Arc<dyn Inspect>,
    pub held: Arc<DeletionGuard>,
    /// Resources that global has and this zone does not keep.
    pub unreceived: Arc<Mutex<Unreceived>>,
    pub node: wire::Node,
    pub version: String,
    pub settings: ZoneKds,
    /// Delays after a connection that failed: between the two, longer each time.
    pub pauses: (Duration, Duration),
}

/// Address of the global control plane.
pub struct GlobalAddress {
    pub host: String,
    pub port: u16,
    pub tls: Option<Arc<ClientConfig>>,
}

impl GlobalClient {
    /// Stays connected until the shutdown begins.
    pub fn start(self, shutdown: &Shutdown) {
        let ending = shutdown.clone();
        let client = Arc::new(self);
        shutdown.spawn(async move {
            tokio::select! {
                () = client.stay_connected() => {}
                () = ending.begun() => {}
            }
        });
    }

    async fn stay_connected(self: Arc<Self>) {
        let mut backoff = Backoff::new(self.pauses.0, self.pauses.1);
        if let Err(status) = self.own.enter(&self.zone).await {
            tracing::warn!(
                reason = status.message(),
                "cannot store the state of the connection to the global control plane"
            );
        }
        loop {
            let begun = Timestamp::now();
            let ended = self.clone().session().await;
            let lasted = Duration::try_from(Timestamp::now().duration_since(begun)).unwrap_or_default();
            if lasted >= GOOD {
                backoff.reset();
            }
            self.own.is_away(&self.zone, &ended);
            let pause = backoff.next_delay();
            let GlobalAddress { host, port, .. } = &self.address;
            tracing::warn!(
                global = format!("{host}:{port}"),
                reason = ended,
                retry_in_ms = pause.as_millis(),
                "not connected to the global control plane; serving proxies from the store"
            );
            tokio::time::sleep(pause).await;
        }
    }

    /// One connection, from beginning to end; says why it ended.
    async fn session(self: Arc<Self>) -> String {
        let sender = match self.connect().await {
            Ok(sender) => sender,
            Err(reason) => return reason,
        };
        let token = match self.token() {
            Ok(token) => token,
            Err(reason) => return reason,
        };
        tracing::info!(global = self.address.host, "connected to the global control plane");
        let link = Link { client: self, sender, token, global: watch::Sender::new(None) };
        let (call, status) = tokio::select! {
            ended = Box::pin(link.receive()) => ("GlobalToZoneSync", ended),
            ended = Box::pin(link.provide()) => ("ZoneToGlobalSync", ended),
            ended = link.answer(service::STREAM_XDS_CONFIGS, ZoneStream::ConfigDump) => ("StreamXDSConfigs", ended),
            ended = link.answer(service::STREAM_STATS, ZoneStream::Stats) => ("StreamStats", ended),
            ended = link.answer(service::STREAM_CLUSTERS, ZoneStream::Clusters) => ("StreamClusters", ended),
            status = link.live() => ("HealthCheck", Err(status)),
        };
        match status {
            Ok(()) => format!("{call} was ended by the global control plane"),
            Err(status) => format!("{call}: {:?}: {}", status.code(), status.message()),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Body>, String> {
        let GlobalAddress { host, port, tls } = &self.address;
        let late = |_| format!("no connection within {CONNECT:?}");
        let stream = timeout(CONNECT, TcpStream::connect((host.as_str(), *port))).await.map_err(late)?;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        // Messages are complete; waiting for more bytes only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return timeout(CONNECT, speak(stream, self.settings.keep_alive())).await.map_err(late)?;
        };
        let name =
            ServerName::try_from(host.clone()).map_err(|_| format!("{host:?} is no name of a host"))?;
        let shaken =
            timeout(CONNECT, TlsConnector::from(tls.clone()).connect(name, stream)).await.map_err(late)?;
        let stream = shaken.map_err(|error| {
            format!("TLS: {error}; is multizone.zone.kds.rootCaFile the authority of its certificate?")
        })?;
        timeout(CONNECT, speak(stream, self.settings.keep_alive())).await.map_err(late)?
    }

    fn token(&self) -> Result<Option<HeaderValue>, String> {
        let file = self.settings.token_file.as_str();
        if file.is_empty() {
            return Ok(None);
        }
        let hint = "multizone.zone.kds.tokenFile";
        let text = std::fs::read_to_string(file).map_err(|error| format!("{hint}: {file}: {error}"))?;
        let value =
            HeaderValue::try_from(text.trim()).map_err(|_| format!("{hint}: {file}: this is no token"))?;
        Ok(Some(value))
    }
}

/// Begins HTTP/2 on a connection.
pub(super) async fn speak<S>(stream: S, keep_alive: KeepAlive) -> Result<SendRequest<Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive.interval)
        .keep_alive_timeout(keep_alive.timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("no HTTP/2: {error}"))?;
    // Ends with the last call; errors reach the calls.
    tokio::spawn(connection);
    Ok(sender)
}

/// One connection.
struct Link {
    client: Arc<GlobalClient>,
    sender: SendRequest<Body>,
    token: Option<HeaderValue>,
    /// The project that the global control plane is of, when it has introduced itself.
    global: watch::Sender<Option<Implementation>>,
}

impl Link {
    /// A call; messages come and go independently.
    fn call(&self, path: &'static str) -> Result<(Outgoing, Messages), Status> {
        let (outgoing, frames) = Outgoing::of_call(true, self.client.settings.patience());
        let request = self.request(path, Body::new(frames))?;
        let mut sender = self.sender.clone();
        let answer: ResponseFuture = Box::pin(async move {
            let broken = |error: hyper::Error| Status::unavailable(format!("the connection broke: {error}"));
            let response = sender.send_request(request).await.map_err(broken)?;
            judged(response.status(), response.headers())?;
            Ok(Body::new(response.into_body()))
        });
        Ok((outgoing, Messages::of_answer(answer, self.client.settings.message())))
    }

    fn request(&self, path: &'static str, body: Body) -> Result<Request<Body>, Status> {
        let GlobalAddress { host, port, tls } = &self.client.address;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let failed = |error: http::Error| Status::internal(format!("cannot create a request: {error}"));
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(path)
            .build()
            .map_err(failed)?;
        let mut request = Request::post(uri).body(body).map_err(failed)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        for (name, value) in [
            ("te", "trailers"),
            ("grpc-encoding", "gzip"),
            ("grpc-accept-encoding", "gzip"),
            ("kds-version", "v3"),
            ("features", "zone-ping-health"),
            ("features", "hash-suffix"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        for (name, value) in [(CLIENT_ID, &*self.client.zone), ("version", self.client.version.as_str())] {
            let value = HeaderValue::try_from(value).map_err(|error| failed(error.into()))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        if let Some(token) = &self.token {
            headers.insert(HeaderName::from_static(AUTHORIZATION), token.clone());
        }
        Ok(request)
    }

    async fn receive(&self) -> Result<(), Status> {
        let client = &self.client;
        let (requests, responses) = self.call(service::GLOBAL_TO_ZONE_SYNC)?;
        let setup = ReceivingParts {
            store: client.store.clone(),
            role: Role::Zone(client.zone.clone()),
            held: client.held.clone(),
            node: client.node.clone(),
            meter: client.meter.clone(),
            // The global control plane sends one at a time.
            turns: Arc::new(Semaphore::new(TURNS)),
        };
        setup
            .run(responses, &requests, &mut Storing { link: self, visit: None, complete: BTreeSet::new() })
            .await
    }

    async fn provide(&self) -> Result<(), Status> {
        let client = &self.client;
        let (responses, requests) = self.call(service::ZONE_TO_GLOBAL_SYNC)?;
        let setup = ProvidingParts {
            store: client.store.clone(),
            selection: Selection {
                direction: Direction::ToGlobal(client.zone.clone()),
                skipped_labels: client.settings.labels.skip_prefixes.clone(),
                producer_policies: true,
                public_key,
            },
            limit: client.settings.message(),
            identifier: client.zone.to_string(),
            meter: client.meter.clone(),
        };
        setup.run(requests, &responses, &mut Sending { link: self, unsent: Vec::new() }).await
    }

    async fn answer(&self, path: &'static str, stream: ZoneStream) -> Result<(), Status> {
        let (answers, questions) = self.call(path)?;
        let answering = AnswerParts {
            inspect: self.client.inspect.clone(),
            store: self.client.store.clone(),
            asker: self.global.subscribe(),
            limit: self.client.settings.message(),
        };
        answering.run(stream, questions, answers).await
    }

    /// Gives signs of life until one is not answered.
    async fn live(&self) -> Status {
        loop {
            let asked = timeout(HEALTH_ANSWER, self.health_check()).await;
            let late = || Status::deadline_exceeded(format!("no answer within {HEALTH_ANSWER:?}"));
            match asked.unwrap_or_else(|_| Err(late())) {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(status) => return status,
            }
        }
    }

    async fn health_check(&self) -> Result<Duration, Status> {
        let (outgoing, mut answers) = self.call(service::HEALTH_CHECK)?;
        outgoing.send(&wire::ZoneHealthCheckRequest {}).await?;
        drop(outgoing);
        let answer = answers.next::<wire::ZoneHealthCheckResponse>().await?;
        let interval = answer.and_then(|answer| answer.interval);
        let seconds = interval.and_then(|interval| u64::try_from(interval.seconds).ok()).unwrap_or(0);
        // A server that wants no signs of life is asked all the same: that it answers is a sign of its own.
        let pause = Duration::from_secs(seconds).min(HEALTH_CHECK);
        Ok(if pause.is_zero() { HEALTH_CHECK } else { pause })
    }
}

/// Refuses a call whose status is not success.
pub(super) fn judged(status: http::StatusCode, headers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != tonic::Code::Ok => Err(status),
        _ if status != http::StatusCode::OK => {
            Err(Status::unavailable(format!("the global control plane answered with {status}")))
        }
        _ => Ok(()),
    }
}

/// Records what comes from the global control plane. The zone is connected from the first response on: before that it
/// may have been refused.
struct Storing<'l> {
    link: &'l Link,
    visit: Option<StreamVisit>,
    /// Kinds that are not kept here and of which everything was named.
    complete: BTreeSet<&'static str>,
}

impl receiving::Watch for Storing<'_> {
    fn stored(&mut self, kind: Kind, complaint: Option<&str>) {
        let client = &self.link.client;
        if self.visit.is_none() {
            let authenticated = self.link.token.is_some();
            self.visit = client.own.visit(&client.zone, ZoneStream::GlobalToZone, authenticated).ok();
            self.visit.iter().for_each(|visit| visit.introduced(node::read(&client.node)));
        }
        client.own.problem(&client.zone, SyncProblemKind::ToZone, kind, complaint);
    }

    fn unreceived(&mut self, kind: &'static Superseded, names: &NamesResponse) {
        let client = &self.link.client;
        // The first response of a connection names everything.
        let names = NamesResponse { complete: self.complete.insert(kind.name), ..names.clone() };
        let mut unreceived = client.unreceived.lock().unwrap_or_else(PoisonError::into_inner);
        if !unreceived.take(kind, &names) {
            return;
        }
        let missing = unreceived.of_kind(kind).map(|missing| missing.says("in its meshes"));
        drop(unreceived);
        match &missing {
            Some(missing) => tracing::warn!(kind = kind.name, "{missing}"),
            None => {
                tracing::info!(kind = kind.name, "this zone lacks no resources of this kind any more")
            }
        }
        client.own.unreceived(&client.zone, kind.name, missing.as_deref());
    }
}

/// Records what goes to the global control plane.
struct Sending<'l> {
    link: &'l Link,
    unsent: Vec<(Kind, String)>,
}

impl Sending<'_> {
    fn problem(&self, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        let client = &self.link.client;
        client.own.problem(&client.zone, way, kind, reason);
    }
}

impl providing::Watch for Sending<'_> {
    fn introduced(&mut self, introduction: Introduction) {
        self.link.global.send_replace(Some(introduction.implementation()));
    }

    fn sent(&mut self, _: Kind) {}

    fn answered(&mut self, kind: Kind, rejected: Option<&str>) {
        if let Some(reason) = rejected {
            tracing::warn!(%kind, reason, "the global control plane rejected resources of this zone");
        }
        self.problem(SyncProblemKind::ToGlobal, kind, rejected);
    }

    fn unsent(&mut self, problems: Vec<(Kind, String)>) {
        for (kind, _) in std::mem::take(&mut self.unsent) {
            self.problem(SyncProblemKind::UnsentToGlobal, kind, None);
        }
        for (kind, reason) in &problems {
            tracing::warn!(%kind, reason, "resources were not sent to the global control plane");
            self.problem(SyncProblemKind::UnsentToGlobal, *kind, Some(reason));
        }
        self.unsent = problems;
    }
}
