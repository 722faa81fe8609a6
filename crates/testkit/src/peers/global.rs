//! A global control plane that says what it likes.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Response, header::CONTENT_TYPE},
    routing::any,
};
use kds::{
    Synced,
    wire::{self, service},
};
use tokio::{net::TcpListener, sync::watch, time::timeout};

use super::{
    frame::{Incoming, Sender},
    response,
};

/// Time limit for an answer of a zone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds between two signs of life of a zone.
const INTERVAL: i64 = 10;

/// A server on loopback without TLS, for one zone.
#[derive(Debug)]
pub struct HostileGlobal {
    pub address: SocketAddr,
    said: Arc<Said>,
}

/// Messages to send, kind by kind, and the zone's answers.
#[derive(Debug)]
struct Said {
    kinds: Mutex<BTreeMap<String, Saying>>,
    /// Counts what is said; those who wait for it are woken.
    turn: watch::Sender<u64>,
    answers: watch::Sender<BTreeMap<String, (u64, Option<String>)>>,
}

#[derive(Debug, Clone, Default)]
struct Saying {
    turn: u64,
    resources: Vec<Synced>,
}

impl HostileGlobal {
    pub async fn start() -> anyhow::Result<HostileGlobal> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let answers = watch::Sender::new(BTreeMap::new());
        let said = Arc::new(Said { kinds: Mutex::default(), turn: watch::Sender::new(0), answers });
        let router = Router::new()
            .route(service::GLOBAL_TO_ZONE_SYNC, any(global_to_zone))
            .route(service::HEALTH_CHECK, any(health_check))
            .fallback(any(silence))
            .with_state(said.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(HostileGlobal { address, said })
    }

    /// Sends resources of a kind, on this connection and on those to come. Returns why the zone refuses some: `None`
    /// when it stored all.
    pub async fn say(&self, kind: &str, resources: Vec<Synced>) -> anyhow::Result<Option<String>> {
        let turn = *self.said.turn.borrow() + 1;
        self.said.kinds().insert(kind.to_owned(), Saying { turn, resources });
        let mut answers = self.said.answers.subscribe();
        self.said.turn.send_replace(turn);
        let answered = answers.wait_for(|answers| answers.get(kind).is_some_and(|(to, _)| *to >= turn));
        let answers = timeout(PATIENCE, answered).await??;
        Ok(answers.get(kind).and_then(|(_, reason)| reason.clone()))
    }
}

impl Said {
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, Saying>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the messages that a stream is to send: of kinds that it was asked for, and not sent yet.
    fn unsent(&self, sent: &BTreeMap<String, Option<u64>>) -> Vec<(String, Saying)> {
        let kinds = self.kinds();
        let latest = |kind: &String| kinds.get(kind).cloned().unwrap_or_default();
        let all = sent.iter().map(|(kind, turn)| (kind.clone(), *turn, latest(kind)));
        all.filter(|(_, turn, saying)| *turn != Some(saying.turn)).map(|(kind, _, it)| (kind, it)).collect()
    }

    fn answered(&self, request: &wire::DeltaDiscoveryRequest) {
        let Ok(turn) = request.response_nonce.parse::<u64>() else { return };
        let reason = request.error_detail.as_ref().map(|detail| detail.message.clone());
        self.answers.send_modify(|answers| {
            answers.insert(request.type_url.clone(), (turn, reason));
        });
    }
}

async fn global_to_zone(State(said): State<Arc<Said>>, request: Request) -> Response<Body> {
    let (responses, body) = Sender::stream();
    let mut requests = Incoming::of(request.into_body());
    tokio::spawn(async move {
        let mut turns = said.turn.subscribe();
        let mut sent: BTreeMap<String, Option<u64>> = BTreeMap::new();
        loop {
            tokio::select! {
                request = requests.next::<wire::DeltaDiscoveryRequest>() => {
                    let Ok(Some(request)) = request else { return };
                    said.answered(&request);
                    sent.entry(request.type_url).or_default();
                }
                turn = turns.changed() => if turn.is_err() { return },
            }
            for (kind, saying) in said.unsent(&sent) {
                let message = response(&kind, saying.turn, &saying.resources, &[]);
                sent.insert(kind, Some(saying.turn));
                if responses.send(&message).await.is_err() {
                    return;
                }
            }
        }
    });
    answer(body)
}

async fn health_check() -> Response<Body> {
    let interval = Some(prost_types::Duration { seconds: INTERVAL, nanos: 0 });
    let message = super::framed(&wire::ZoneHealthCheckResponse { interval }, false);
    answer(message.map(Body::from).unwrap_or_default())
}

/// Takes a stream and asks nothing on it.
async fn silence(request: Request) -> Response<Body> {
    let (sender, body) = Sender::stream();
    let mut incoming = Incoming::of(request.into_body());
    tokio::spawn(async move {
        while let Ok(Some(())) = incoming.next::<()>().await {}
        drop(sender);
    });
    answer(body)
}

fn answer(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
