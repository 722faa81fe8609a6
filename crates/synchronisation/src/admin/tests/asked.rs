//! Names in the answers of a zone, to a global control plane of Kuma and to one of kuma-rs, over sockets.

use std::net::SocketAddr;

use admission::{ControlPlaneRole, Registrar, RuleSettings};
use axum::{Router, body::Body, extract::State, http::Request, response::IntoResponse as _};
use jiff::Timestamp;
use kds::wire::service;
use prost::Message;
use reconcile::Runner;
use resources::duration::GoDuration;
use runtime::{Shutdown, metrics::Metrics};
use tokio::{net::TcpListener, sync::Barrier};

use super::*;
use crate::{
    client::{GlobalAddress, GlobalClient},
    config::ZoneKds,
    metrics::SyncMetrics,
    node,
    receiving::DeletionGuard,
    zones::{ZoneRegistry, ZoneSettings},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A global control plane that introduces itself as this node once it has asked on all three streams.
#[derive(Clone)]
struct Global {
    node: wire::Node,
    asked: Arc<Barrier>,
    answers: mpsc::Sender<Bytes>,
}

impl Global {
    async fn serve(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = Router::new().fallback(called).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        addr
    }

    /// Asks one question, and passes the answer on.
    async fn ask(self, question: impl Message, mut answers: Messages, asked: Outgoing) {
        asked.send(&question).await.unwrap();
        self.asked.wait().await;
        let answer = answers.next::<wire::XdsConfigResponse>().await.unwrap().unwrap();
        let Some(XdsConfigResult::Config(body)) = answer.result else { panic!("{answer:?}") };
        self.answers.send(body).await.unwrap();
        while let Ok(Some(_)) = answers.next::<wire::XdsConfigResponse>().await {}
    }

    async fn subscribe(self, mut responses: Messages, requests: Outgoing) {
        self.asked.wait().await;
        let node = Some(self.node);
        let request =
            wire::DeltaDiscoveryRequest { node, type_url: "Dataplane".into(), ..Default::default() };
        requests.send(&request).await.unwrap();
        while let Ok(Some(_)) = responses.next::<wire::DeltaDiscoveryResponse>().await {}
    }
}

async fn called(State(global): State<Global>, request: Request<Body>) -> axum::response::Response {
    let path = request.uri().path().to_owned();
    let mut messages = Messages::of(request.into_body(), LIMIT);
    let (outgoing, frames) = Outgoing::of_answer(false, PATIENCE);
    let kind = || "Dataplane".to_owned();
    let name = || "unified".to_owned();
    let mesh = || "default".to_owned();
    tokio::spawn(async move {
        match path.as_str() {
            service::STREAM_XDS_CONFIGS => {
                let question = wire::XdsConfigRequest {
                    resource_type: kind(),
                    resource_name: name(),
                    resource_mesh: mesh(),
                    ..wire::XdsConfigRequest::default()
                };
                global.ask(question, messages, outgoing).await;
            }
            service::STREAM_STATS => {
                let question = wire::StatsRequest {
                    resource_type: kind(),
                    resource_name: name(),
                    resource_mesh: mesh(),
                    ..wire::StatsRequest::default()
                };
                global.ask(question, messages, outgoing).await;
            }
            service::STREAM_CLUSTERS => {
                let question = wire::ClustersRequest {
                    resource_type: kind(),
                    resource_name: name(),
                    resource_mesh: mesh(),
                    ..wire::ClustersRequest::default()
                };
                global.ask(question, messages, outgoing).await;
            }
            service::ZONE_TO_GLOBAL_SYNC => global.subscribe(messages, outgoing).await,
            service::HEALTH_CHECK => {
                outgoing.send(&wire::ZoneHealthCheckResponse { interval: None }).await.unwrap();
            }
            _ => while let Ok(Some(_)) = messages.next::<wire::DeltaDiscoveryRequest>().await {},
        }
    });
    ([("content-type", "application/grpc")], Body::new(frames)).into_response()
}

fn zone(address: SocketAddr, store: Arc<dyn Store>, shutdown: &Shutdown) -> GlobalClient {
    let setup = RuleSettings {
        mode: ControlPlaneRole::Zone { name: "east".to_owned(), federated: true },
        disable_origin_label_validation: false,
        unsafe_delete: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        companions: Box::new(|_, _| Vec::new()),
        check: |_, _, _| {},
        now: Timestamp::now,
    };
    let settings = ZoneSettings {
        instance_id: String::new(),
        address: String::new(),
        most: usize::MAX,
        most_of_kind: None,
        flush: Duration::from_secs(1),
        withdraw_after: Duration::ZERO,
        threshold: kds::guard::Threshold::default(),
        alone: true,
    };
    let registrar = Arc::new(Registrar::new(store.clone(), setup));
    let runner = Runner::new(store.clone(), reconcile::Metrics::register(&Metrics::default()), shutdown);
    GlobalClient {
        zone: "east".into(),
        own: ZoneRegistry::start(registrar, settings, events::Events::default(), &runner).unwrap(),
        meter: SyncMetrics::register(&Metrics::default()),
        address: GlobalAddress { host: address.ip().to_string(), port: address.port(), tls: None },
        store,
        inspect: Arc::new(Echo),
        held: Arc::new(DeletionGuard::default()),
        unreceived: Arc::default(),
        node: node::ours("east", "east-1", "2.14.3", "{}".to_owned()),
        version: "2.14.3".to_owned(),
        settings: ZoneKds {
            max_msg_size: 1 << 20,
            msg_send_timeout: GoDuration::from_secs(60),
            ..ZoneKds::default()
        },
        pauses: (Duration::from_millis(20), Duration::from_millis(100)),
    }
}

/// Answers of a zone to a global control plane with this node, which asks before it introduces itself.
async fn told(node: wire::Node) -> Vec<Bytes> {
    let (answers, mut told) = mpsc::channel(3);
    let global = Global { node, asked: Arc::new(Barrier::new(4)), answers };
    let shutdown = Shutdown::default();
    zone(global.serve().await, with_proxies().await, &shutdown).start(&shutdown);
    let mut all = Vec::new();
    while all.len() < 3 {
        all.push(timeout(PATIENCE, told.recv()).await.unwrap().unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_of_kuma_is_told_kumas_names_and_ours_those_of_envoy() {
    let ours = node::ours("global", "global-1", "2.14.3", String::new());
    assert_eq!(told(ours).await, [STATISTICS; 3]);
    // Nothing but the features tells one from the other.
    let mut kumas = node::ours("global", "global-1", "2.14.3", String::new());
    kumas.metadata.as_mut().unwrap().fields.remove("features");
    let spelled = STATISTICS.replace("self_http", "self_inbound_dp_http");
    assert_eq!(told(kumas).await, [spelled.as_str(); 3]);
}
