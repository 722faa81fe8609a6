//! Server for zones.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    routing::any,
};
use http::{Extensions, HeaderMap, HeaderValue, Response, header::CONTENT_TYPE, request::Parts};
use identity::{Purpose, ZoneToken};
use jiff::Timestamp;
use kds::{
    receiver::Role,
    select::{Direction, Selection},
    wire::{self, service},
};
use prost_types::Duration as WireDuration;
use resources::{Kind, kinds::zone_insight::KdsSubscription, naming::dns};
use runtime::{
    Shutdown,
    listen::{Peer, Tally},
};
use store::Store;
use tokio::sync::Semaphore;
use tonic::Status;

use super::{
    AUTHORIZATION, CLIENT_ID, HEALTH_CHECK,
    admin::Questions,
    config::GlobalKds,
    frame::{Frames, Messages, Outgoing},
    metrics::SyncMetrics,
    node, providing,
    providing::ProvidingParts,
    public_key, receiving,
    receiving::ReceivingParts,
    zones::{StreamVisit, SyncProblemKind, ZoneRegistry, ZoneStream},
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
/// Name of the global control plane.
const GLOBAL: &str = "global";
/// Bytes of a request on a stream that only goes to the zone: its configuration, or the reasons of a rejection.
const LARGEST_REQUEST: usize = 1 << 20;
/// Interval of checking the token of a connected zone again.
const TOKEN_CHECK: Duration = Duration::from_secs(5);

/// Parts needed to serve zones.
pub struct ZoneContext {
    pub store: Arc<dyn Store>,
    pub zones: Arc<ZoneRegistry>,
    pub questions: Arc<Questions>,
    pub settings: GlobalKds,
    pub meter: Arc<SyncMetrics>,
    /// Counter of rejected zones.
    pub tally: Tally,
    /// For large messages.
    pub turns: Arc<Semaphore>,
    pub shutdown: Shutdown,
}

pub fn router(context: Arc<ZoneContext>) -> Router {
    Router::new()
        .route(service::GLOBAL_TO_ZONE_SYNC, any(global_to_zone))
        .route(service::ZONE_TO_GLOBAL_SYNC, any(zone_to_global))
        .route(service::STREAM_XDS_CONFIGS, any(config_dumps))
        .route(service::STREAM_STATS, any(stats))
        .route(service::STREAM_CLUSTERS, any(clusters))
        .route(service::HEALTH_CHECK, any(health_check))
        .with_state(context)
}

/// A zone that is let in.
struct Caller {
    zone: Arc<str>,
    peer: Option<SocketAddr>,
    token: Option<String>,
    compress: bool,
}

impl ZoneContext {
    /// Lets a zone in with a stream, or says why not.
    async fn welcome(&self, request: &Parts, stream: ZoneStream) -> Result<(Caller, StreamVisit), Status> {
        let caller = self.admit(&request.headers, &request.extensions).await?;
        let visit = self.zones.visit(&caller.zone, stream, caller.token.is_some())?;
        Ok((caller, visit))
    }

    /// Lets a zone in, or says why not.
    async fn admit(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<Caller, Status> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let zone = text(CLIENT_ID).filter(|zone| !zone.is_empty());
        let zone = zone.ok_or_else(|| Status::invalid_argument("metadata client-id must name the zone"))?;
        if !dns::is_rfc1123_label(&zone) {
            return Err(Status::invalid_argument(format!(
                "{zone:?} is not the name of a zone: at most 63 lowercase letters, digits and \"-\""
            )));
        }
        let token = text(AUTHORIZATION).map(|token| bare(&token).to_owned());
        let peer = extensions.get::<Peer>().map(|peer| peer.addr);
        self.check_token(&zone, token.as_deref()).inspect_err(|status| self.refused(peer, status))?;
        self.zones.enter(&zone).await?;
        let accepted = text("grpc-accept-encoding").unwrap_or_default();
        let compress = accepted.split(',').any(|encoding| encoding.trim() == "gzip");
        Ok(Caller { zone: zone.into(), peer, token, compress })
    }

    /// Counts and logs a token that is refused.
    fn refused(&self, peer: Option<SocketAddr>, status: &Status) {
        self.tally.rejected(peer, "unauthenticated", status.message());
    }

    fn check_token(&self, zone: &str, token: Option<&str>) -> Result<(), Status> {
        if !self.settings.zone_token_required {
            return Ok(());
        }
        let token = token.ok_or_else(|| {
            self.tally.auth_failed("missing");
            Status::unauthenticated(
                "no zone token: generate one with 'kumactl generate zone-token --scope cp', and set \
                 multizone.zone.kds.tokenFile of the zone",
            )
        })?;
        let snapshot = self.store.snapshot().map_err(|error| Status::unavailable(error.to_string()))?;
        let claims: ZoneToken = identity::token::validate(token, Purpose::Zone, &snapshot, Timestamp::now())
            .map_err(|error| {
                self.tally.auth_failed(error.reason());
                Status::unauthenticated(format!("the zone token is refused: {error}"))
            })?;
        if claims.zone != zone || !claims.scope.iter().any(|scope| scope == "cp") {
            self.tally.auth_failed("not_permitted");
        }
        if claims.zone != zone {
            let other = claims.zone;
            return Err(Status::permission_denied(format!(
                "the zone token is for zone {other:?}, not for {zone:?}"
            )));
        }
        if !claims.scope.iter().any(|scope| scope == "cp") {
            return Err(Status::permission_denied("the zone token has no scope \"cp\""));
        }
        Ok(())
    }

    /// Waits until the token is no longer good.
    async fn distrust(&self, caller: &Caller) -> Status {
        loop {
            tokio::time::sleep(TOKEN_CHECK).await;
            if let Err(status) = self.check_token(&caller.zone, caller.token.as_deref()) {
                self.refused(caller.peer, &status);
                return status;
            }
        }
    }

    /// Answers a call with a stream that lives as long as `life` takes.
    fn open<L>(
        self: &Arc<Self>,
        caller: Caller,
        (body, limit): (Body, usize),
        life: impl FnOnce(Messages, Outgoing, Arc<str>) -> L + Send + 'static,
    ) -> Response<Body>
    where
        L: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (outgoing, frames) = Outgoing::of_answer(caller.compress, self.settings.patience());
        let incoming = Messages::of(body, limit);
        let compress = caller.compress;
        let context = self.clone();
        let life = Box::pin(life(incoming, outgoing.clone(), caller.zone.clone()));
        self.shutdown.spawn(async move {
            let ended = tokio::select! {
                ended = life => ended,
                () = context.shutdown.begun() => Err(Status::unavailable("this control plane is shutting down")),
                status = context.distrust(&caller) => Err(status),
            };
            if let Err(status) = ended {
                tracing::info!(zone = &*caller.zone, reason = status.message(), "stream of a zone ended");
                outgoing.end(status).await;
            }
        });
        answer(frames, compress)
    }
}

/// The token without the scheme that some clients put before it.
fn bare(token: &str) -> &str {
    match token.trim().split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
        _ => token.trim(),
    }
}

pub(super) fn answer(frames: Frames, compress: bool) -> Response<Body> {
    let mut response = Response::new(Body::new(frames));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response.headers_mut().insert("grpc-accept-encoding", GZIP);
    if compress {
        response.headers_mut().insert("grpc-encoding", GZIP);
    }
    response
}

async fn global_to_zone(State(context): State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let (caller, visit) = match context.welcome(&parts, ZoneStream::GlobalToZone).await {
        Ok(welcome) => welcome,
        Err(status) => return status.into_http(),
    };
    let setup = ProvidingParts {
        store: context.store.clone(),
        selection: Selection {
            direction: Direction::ToZone(caller.zone.clone()),
            skipped_labels: context.settings.labels.skip_prefixes.clone(),
            producer_policies: false,
            public_key,
        },
        limit: context.settings.message(),
        identifier: GLOBAL.to_owned(),
        meter: context.meter.clone(),
    };
    let body = (body, context.settings.message().min(LARGEST_REQUEST));
    context.open(caller, body, |requests, responses, _| async move {
        setup.run(requests, &responses, &mut Sending { visit, unsent: Vec::new() }).await
    })
}

async fn zone_to_global(State(context): State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let (caller, visit) = match context.welcome(&parts, ZoneStream::ZoneToGlobal).await {
        Ok(welcome) => welcome,
        Err(status) => return status.into_http(),
    };
    let setup = ReceivingParts {
        store: context.store.clone(),
        role: Role::Global(caller.zone.clone()),
        held: context.zones.held(&caller.zone),
        node: node::ours(&caller.zone, context.zones.instance_id(), insights::BASED_ON_KUMA, String::new()),
        meter: context.meter.clone(),
        turns: context.turns.clone(),
    };
    let body = (body, context.settings.message());
    context.open(caller, body, |responses, requests, _| async move {
        setup.run(responses, &requests, &mut Storing(visit)).await
    })
}

async fn health_check(State(context): State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    let caller = match context.admit(request.headers(), request.extensions()).await {
        Ok(caller) => caller,
        Err(status) => return status.into_http(),
    };
    context.zones.is_alive(&caller.zone);
    let seconds = i64::try_from(HEALTH_CHECK.as_secs()).unwrap_or(i64::MAX);
    let interval = Some(WireDuration { seconds, nanos: 0 });
    let (outgoing, frames) = Outgoing::of_answer(false, context.settings.patience());
    // The channel has room for one message.
    match outgoing.send(&wire::ZoneHealthCheckResponse { interval }).await {
        Ok(()) => answer(frames, false),
        Err(status) => status.into_http(),
    }
}

/// Questions about proxies that are asked on a stream of the zone.
async fn config_dumps(state: State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    ask(state, request, ZoneStream::ConfigDump).await
}

async fn stats(state: State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    ask(state, request, ZoneStream::Stats).await
}

async fn clusters(state: State<Arc<ZoneContext>>, request: Request) -> Response<Body> {
    ask(state, request, ZoneStream::Clusters).await
}

async fn ask(
    State(context): State<Arc<ZoneContext>>,
    request: Request,
    stream: ZoneStream,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let (caller, visit) = match context.welcome(&parts, stream).await {
        Ok(welcome) => welcome,
        Err(status) => return status.into_http(),
    };
    let questions = context.questions.clone();
    let body = (body, context.settings.message());
    context.open(caller, body, move |answers, asked, zone| async move {
        let _visit = visit;
        questions.ask(&zone, stream, answers, &asked).await
    })
}

/// Records what is sent to a zone, for its insight.
struct Sending {
    visit: StreamVisit,
    unsent: Vec<(Kind, String)>,
}

impl Sending {
    fn count(&self, kind: Kind, count: impl Fn(&mut resources::kinds::dataplane_insight::ResponseCounts)) {
        self.visit.subscription(|subscription: &mut KdsSubscription| {
            let status = subscription.status.get_or_insert_default();
            count(&mut status.total);
            count(status.stat.entry(kind.name().to_owned()).or_default());
            status.last_update_time = Some(Timestamp::now());
        });
    }
}

impl providing::Watch for Sending {
    fn introduced(&mut self, introduction: node::Introduction) {
        self.visit.introduced(introduction);
    }

    fn sent(&mut self, kind: Kind) {
        self.count(kind, |counts| counts.responses_sent += 1);
    }

    fn answered(&mut self, kind: Kind, rejected: Option<&str>) {
        match rejected {
            None => self.count(kind, |counts| counts.responses_acknowledged += 1),
            Some(_) => self.count(kind, |counts| counts.responses_rejected += 1),
        }
        self.visit.problem(SyncProblemKind::ToZone, kind, rejected);
    }

    fn unsent(&mut self, problems: Vec<(Kind, String)>) {
        for (kind, _) in std::mem::take(&mut self.unsent) {
            self.visit.problem(SyncProblemKind::Unsent, kind, None);
        }
        for (kind, why) in &problems {
            self.visit.problem(SyncProblemKind::Unsent, *kind, Some(why));
        }
        self.unsent = problems;
    }
}

/// Records what comes from a zone, for its insight.
struct Storing(StreamVisit);

impl receiving::Watch for Storing {
    fn stored(&mut self, kind: Kind, complaint: Option<&str>) {
        self.0.problem(SyncProblemKind::ToGlobal, kind, complaint);
    }
}
