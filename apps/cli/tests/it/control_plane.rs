//! The REST API of a zone's control plane on a store in memory: policies, findings, inspection and what-if are those of
//! `kuma-cp`. What is left out: what a control plane writes itself (default policies, MeshServices, insights), which
//! tests store as they need it; and Envoy, whose admin interface a test answers for.

mod connection;
mod fixtures;
mod observed;

use std::{
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex},
    time::Duration,
};

use admission::{ControlPlaneRole, Registrar, RuleSettings};
use api::{ApiMetrics, Authn, Context, Gates, Settings};
use axum::{body::Body, extract::Request as Incoming, http::HeaderMap, middleware};
use events::Events;
use identity::ca::Files;
use inspection::{StoredProxies, findings::Findings};
use jiff::Timestamp;
use monitoring::Targets;
use reconcile::Runner;
use resources::{Key, Kind, Resource, format};
use runtime::{
    listen::{Limits, Listener},
    shutdown::Shutdown,
};
use serde_json::{Value, json};
use serving::{observed::Observations, push::Push};
use store::{Memory, Write};

use crate::server::Request;

pub use connection::ConnectedProxy;
pub use fixtures::UNIFIED;

/// Serves until dropped.
pub struct ZoneControlPlane {
    pub url: String,
    /// For what a test lets happen.
    pub events: Events,
    registrar: Arc<Registrar>,
    push: Arc<Push>,
    observations: Arc<Observations>,
    requests: Arc<Mutex<Vec<Request>>>,
    shutdown: Shutdown,
    runtime: tokio::runtime::Runtime,
}

impl ZoneControlPlane {
    /// With the mesh `default`. The user who runs the test is its administrator.
    pub fn start() -> ZoneControlPlane {
        ZoneControlPlane::with(Settings::default())
    }

    /// The same with other settings.
    pub fn with(settings: Settings) -> ZoneControlPlane {
        let mode = ControlPlaneRole::Zone { name: "east".into(), federated: false };
        ZoneControlPlane::of(mode, Settings { config: json!({ "mode": "zone" }), ..settings })
    }

    /// One that zones connect to.
    pub fn global() -> ZoneControlPlane {
        ZoneControlPlane::of(
            ControlPlaneRole::Global,
            Settings { config: json!({ "mode": "global" }), ..Settings::default() },
        )
    }

    fn of(mode: ControlPlaneRole, mut settings: Settings) -> ZoneControlPlane {
        if settings.version.is_empty() {
            settings.version = "2.14.3".to_owned();
        }
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        settings.authn = Authn { local_administrators: vec![own], ..settings.authn };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let registrar = Arc::new(Registrar::new(Arc::new(Memory::default()), setup(mode)));
        let shutdown = Shutdown::default();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let inside = runtime.enter();
        let (push, observations, context) = assemble(&registrar, settings, &shutdown);
        let events = context.events.clone();
        drop(inside);
        let seen = requests.clone();
        let router = api::router(context).layer(middleware::map_request(move |request| {
            let seen = seen.clone();
            async move { record(&seen, request).await }
        }));
        let url = runtime.block_on(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let url = format!("http://{}", listener.addr());
            listener.serve(router, None, Limits::default(), &shutdown);
            url
        });
        let control_plane =
            ZoneControlPlane { url, events, registrar, push, observations, requests, shutdown, runtime };
        control_plane.store(json!({ "type": "Mesh", "name": "default" }));
        control_plane
    }

    /// Stores a resource as the control plane itself does, past the rules for users.
    pub fn store(&self, resource: Value) {
        self.write(vec![self.stored(resource)]);
    }

    fn stored(&self, resource: Value) -> Write {
        let status = resource.get("status").cloned();
        let draft = format::parse(resource).unwrap().draft;
        let stored = self.registrar.store().snapshot().unwrap().get(&draft.key).cloned();
        let mut labels = draft.labels;
        labels.entry("kuma.io/display-name".to_owned()).or_insert_with(|| draft.key.name.to_string());
        // In the future, so that nothing grows older while a test runs.
        let now: Timestamp = "2999-01-01T00:00:00Z".parse().unwrap();
        let resource = Resource {
            labels,
            created: stored.as_ref().map_or(now, |stored| stored.created),
            modified: now,
            version: 0,
            owner: None,
            status: status.map(|status| resources::Status::from_json(draft.key.kind, status).unwrap()),
            spec: draft.spec,
            key: draft.key,
        };
        put(resource, stored.as_ref())
    }

    pub fn delete(&self, kind: Kind, mesh: &str, name: &str) {
        self.write(vec![Write::Delete { key: Key::new(kind, mesh, name), expected: None }]);
    }

    fn write(&self, writes: Vec<Write>) {
        let store = self.registrar.store().clone();
        let outcomes = self.runtime.block_on(async move { store.write(writes).await }).unwrap();
        drop(outcomes);
    }

    /// The spec that is stored.
    pub fn spec(&self, kind: Kind, mesh: &str, name: &str) -> Value {
        let snapshot = self.registrar.store().snapshot().unwrap();
        snapshot.get(&Key::new(kind, mesh, name)).unwrap().spec.to_json()
    }

    /// Requests, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// `GET /meshes/a`, in the order they came.
    pub fn lines(&self) -> Vec<String> {
        self.requests().iter().map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    /// Writes, in the order they came.
    pub fn puts(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.method == "PUT").collect()
    }

    /// Connects the proxy of a Dataplane of the mesh `default` that has an address on this machine. What it says of
    /// itself is in its insight, too.
    pub fn connect(&self, name: &str, features: &[&str]) -> ConnectedProxy {
        let said = json!({ "features": features });
        self.runtime.block_on(ConnectedProxy::open(&self.push, "default", name, said, &self.shutdown))
    }

    /// Turns mTLS on in the mesh `default`, and gives the mesh labels.
    pub fn secure(&self, labels: Value) {
        let backend = json!({ "name": "ca-1", "type": "builtin", "mode": "STRICT" });
        self.store(json!({ "type": "Mesh", "name": "default", "labels": labels,
            "meshServices": { "mode": "Exclusive" }, "mtls": { "enabledBackend": "ca-1", "backends": [backend] } }));
    }

    /// Stores what an overview of a proxy joins: the resource, and its insight if it has one.
    pub fn overview(&self, overview: &Value) {
        let kind = overview["type"].as_str().and_then(|kind| kind.strip_suffix("Overview")).unwrap();
        let insight = format!("{kind}Insight");
        for kind in [kind, &insight] {
            let field = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
            if let Some(spec) = overview.get(&field).and_then(Value::as_object) {
                let mut resource = json!({ "type": kind, "name": overview["name"] });
                let fields = resource.as_object_mut().unwrap();
                fields.extend(overview.get("mesh").map(|mesh| ("mesh".to_owned(), mesh.clone())));
                fields.extend(spec.clone());
                self.store(resource);
            }
        }
    }

    /// Answer of the REST API.
    pub fn get(&self, path: &str) -> Value {
        let answer = ureq::get(format!("{}{path}", self.url)).call().unwrap();
        serde_json::from_str(&answer.into_body().read_to_string().unwrap()).unwrap()
    }

    /// A Dataplane and what is known of its connection, if it ever was connected.
    pub fn dataplane(&self, name: &str, labels: Value, insight: Value) {
        let service = labels["app"].as_str().unwrap_or(name).to_owned();
        let inbound =
            json!({ "port": 80, "tags": { "kuma.io/service": service, "kuma.io/protocol": "http" } });
        let networking = json!({ "address": "127.0.0.1", "inbound": [inbound] });
        self.store(json!({
            "type": "Dataplane", "mesh": "default", "name": name, "labels": labels, "networking": networking,
        }));
        let mut of = json!({ "type": "DataplaneInsight", "mesh": "default", "name": name });
        if let (Some(fields), Value::Object(insight)) = (of.as_object_mut(), insight) {
            fields.extend(insight);
            self.store(of);
        }
    }
}

impl Drop for ZoneControlPlane {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

/// The write that leaves a resource as it is given, whatever is stored.
fn put(resource: Resource, stored: Option<&Arc<Resource>>) -> Write {
    match stored {
        None => Write::Create(resource),
        Some(stored) => Write::Update { resource, expected: stored.version },
    }
}

/// The insight of a proxy that runs what it was sent.
pub fn synced() -> Value {
    let status = |sent: u64, acknowledged: u64| json!({ "responsesSent": sent.to_string(), "responsesAcknowledged": acknowledged.to_string() });
    json!({ "subscriptions": [{
        "id": "1", "controlPlaneInstanceId": "cp", "connectTime": "2026-01-02T03:04:05Z",
        "status": { "lastUpdateTime": "2026-01-02T03:04:06Z", "total": status(2, 2), "cds": status(1, 1), "lds": status(1, 1) },
        "version": {
            "kumaDp": { "version": "0.1.0", "kumaCpCompatible": true },
            "envoy": { "version": "1.40.0", "kumaDpCompatible": true },
        },
    }] })
}

/// The insight of a proxy that left.
pub fn offline() -> Value {
    let mut insight = synced();
    insight["subscriptions"][0]["disconnectTime"] = json!("2026-01-02T04:04:05Z");
    insight
}

fn setup(mode: ControlPlaneRole) -> RuleSettings {
    RuleSettings {
        mode,
        disable_origin_label_validation: false,
        unsafe_delete: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        companions: Box::new(|_, _| Vec::new()),
        check: envoy::patch::check,
        now: Timestamp::now,
    }
}

/// The parts of `kuma-cp` that answer, started.
fn assemble(
    registrar: &Arc<Registrar>,
    settings: Settings,
    shutdown: &Shutdown,
) -> (Arc<Push>, Arc<Observations>, Context) {
    let store = registrar.store().clone();
    let metrics = runtime::metrics::Metrics::default();
    let push = Arc::new(Push::new(store.clone(), "east"));
    let problems = Findings::new(store.clone(), push.clone(), Files::default(), &metrics);
    let targets = Targets::new(store.clone(), push.clone(), Duration::ZERO);
    push.start(shutdown);
    let runner = Runner::new(store.clone(), reconcile::Metrics::register(&metrics), shutdown);
    let events = Events::default();
    events.start(&store, shutdown);
    problems.start(&runner, &events);
    let observations = Observations::started(&metrics, &runner);
    let inspect = StoredProxies::new(store, push.clone(), 9901).observing(observations.clone());
    let context = Context {
        registrar: registrar.clone(),
        settings,
        metrics: ApiMetrics::register(&metrics),
        inspect: Arc::new(inspect),
        findings: problems,
        events,
        gates: Gates::default().finished_before(shutdown.clone()),
        targets,
    };
    (push, observations, context)
}

/// Notes a request and passes it on.
async fn record(seen: &Mutex<Vec<Request>>, request: Incoming) -> Incoming {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, api::MAX_BODY).await.unwrap();
    seen.lock().unwrap().push(Request {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: texts(&head.headers),
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    Incoming::from_parts(head, Body::from(body))
}

fn texts(headers: &HeaderMap) -> std::collections::BTreeMap<String, String> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}
