//! A control plane's API on an empty store, and requests to it.

use std::{net::SocketAddr, sync::Arc};

use admission::{ControlPlaneRole, Registrar, RuleSettings};
use api::{ApiMetrics, Context, Gates, Settings};
use axum::{Router, body::Body};
use events::Events;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use resources::{Draft, Key, Kind, Labels, Resource, Spec, format::universal};
use runtime::{
    Shutdown,
    listen::{Owner, Peer},
};
use serde_json::{Value, json};
use store::{Memory, Store, Write};
use tower::ServiceExt;

use crate::{
    inspect::{FakeProxies, findings::FakeFindings, targets::FakeTargets},
    log,
};

pub struct World {
    pub router: Router,
    pub registrar: Arc<Registrar>,
    pub metrics: runtime::metrics::Metrics,
    pub events: Events,
    pub shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

pub fn zone() -> ControlPlaneRole {
    ControlPlaneRole::Zone { name: "east".into(), federated: false }
}

pub fn setup(mode: ControlPlaneRole) -> RuleSettings {
    RuleSettings {
        mode,
        disable_origin_label_validation: false,
        unsafe_delete: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        companions: Box::new(|_, _| Vec::new()),
        check: |_, _, _| {},
        now: Timestamp::now,
    }
}

impl World {
    /// A zone control plane with the mesh `default`.
    pub async fn new() -> World {
        World::with(zone(), Settings::default()).await
    }

    pub async fn with(mode: ControlPlaneRole, settings: Settings) -> World {
        World::on(Arc::new(Memory::default()), setup(mode), settings).await
    }

    pub async fn on(store: Arc<dyn Store>, setup: RuleSettings, settings: Settings) -> World {
        log::ask_every_log();
        let metrics = runtime::metrics::Metrics::default();
        let registrar = Arc::new(Registrar::new(store, setup));
        let events = Events::default();
        let shutdown = Shutdown::default();
        events.start(registrar.store(), &shutdown);
        let context = Context {
            registrar: registrar.clone(),
            settings,
            metrics: ApiMetrics::register(&metrics),
            inspect: Arc::new(FakeProxies),
            findings: Arc::new(FakeFindings),
            events: events.clone(),
            gates: Gates::default().finished_before(shutdown.clone()),
            targets: Arc::new(FakeTargets),
        };
        let world = World { router: api::router(context), registrar, metrics, events, shutdown };
        world.store(Kind::Mesh, "", "default", json!({})).await;
        world
    }

    /// Stores a resource past the registrar, as the control plane itself does.
    pub async fn store(&self, kind: Kind, mesh: &str, name: &str, spec: Value) {
        let spec = Spec::from_json(kind, spec, &mut Vec::new()).unwrap();
        self.store_resource(kind, mesh, name, Labels::new(), spec).await;
    }

    pub async fn store_resource(&self, kind: Kind, mesh: &str, name: &str, labels: Labels, spec: Spec) {
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        let resource = testkit::resource::bare(Key::new(kind, mesh, name), spec);
        let resource = Resource { labels, created: at, modified: at, ..resource };
        // Stores that are broken on purpose refuse; what is asked of them then does not depend on it.
        let _ = self.registrar.store().write(vec![Write::Create(resource)]).await;
    }

    pub async fn store_draft(&self, draft: Draft) {
        self.store_resource(draft.kind(), &draft.key.mesh, &draft.key.name, draft.labels, draft.spec).await;
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, Body::empty())).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(request(Method::PUT, path, Body::from(body.to_string()))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(request(Method::POST, path, Body::from(body.to_string()))).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(request(Method::DELETE, path, Body::empty())).await
    }
}

/// A request of an administrator on the same machine.
pub fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    let mut request =
        Request::builder().method(method).uri(path).header("host", "localhost:5681").body(body).unwrap();
    request.extensions_mut().insert(peer("127.0.0.1:40000"));
    request
}

/// A request of somebody on another machine.
pub fn remote(method: Method, path: &str, body: Body) -> Request<Body> {
    let mut request = request(method, path, body);
    request.extensions_mut().insert(peer("192.0.2.7:40000"));
    request
}

pub fn peer(addr: &str) -> Peer {
    let addr = addr.parse::<SocketAddr>().unwrap();
    // As on a connection of root, wherever it says to come from.
    Peer { addr, tls: false, client_certificate: None, owner: Some(Owner::known(0)) }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self
    }

    /// An error document with this title and detail, complete and consistent in itself.
    #[track_caller]
    pub fn expect_problem(self, status: u16, title: &str, detail: &str) -> Value {
        let problem = self.expect_problem_titled(status, title);
        assert_eq!(problem["detail"], detail);
        problem
    }

    #[track_caller]
    pub fn expect_problem_titled(self, status: u16, title: &str) -> Value {
        let answer = self.expect(status);
        assert_eq!(answer.header("content-type"), "application/json");
        let problem = answer.json();
        assert_eq!(problem["type"], "/std-errors");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["title"], title, "{problem}");
        assert_eq!(problem["details"], problem["detail"]);
        problem
    }

    /// The fields an error document finds fault with.
    #[track_caller]
    pub fn expect_fields(self, title: &str, fields: &[(&str, &str)]) {
        let problem = self.expect_problem_titled(400, title);
        let found: Vec<(&str, &str)> = problem["invalid_parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|found| (found["field"].as_str().unwrap(), found["reason"].as_str().unwrap()))
            .collect();
        assert_eq!(found, fields);
        let causes: Vec<(&str, &str)> = problem["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| (cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
            .collect();
        assert_eq!(causes, fields);
    }
}

/// A resource as a user writes it.
pub fn resource(kind: Kind, mesh: &str, name: &str, spec: Value) -> Value {
    let spec = Spec::from_json(kind, spec, &mut Vec::new()).unwrap();
    universal::render_draft(&Draft::new(Key::new(kind, mesh, name), spec))
}
