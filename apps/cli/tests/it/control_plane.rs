//! The REST API of a control plane on a store in memory. Policies and findings are those of the resources in it; what
//! only a running proxy can say is taught.

mod proxies;

use std::{
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex},
};

use api::{Authn, Context, Gates, Metrics, Settings};
use axum::{extract::Request, middleware};
use jiff::Timestamp;
use resources::{Key, Kind, Resource, format};
use runtime::{
    listen::{Limits, Listener},
    shutdown::Shutdown,
};
use serde_json::{Value, json};
use store::{
    Memory, Registrar, Write,
    registrar::{Mode, Setup},
};

use proxies::Proxies;
pub use proxies::Taught;

/// Serves until dropped.
pub struct ControlPlane {
    pub url: String,
    pub taught: Arc<Mutex<Taught>>,
    registrar: Arc<Registrar>,
    requests: Arc<Mutex<Vec<String>>>,
    shutdown: Shutdown,
    runtime: tokio::runtime::Runtime,
}

impl ControlPlane {
    /// A zone's, with the mesh `default`. The user who runs the test is its administrator.
    pub fn start() -> ControlPlane {
        ControlPlane::with(Settings::default())
    }

    /// The same with other settings.
    pub fn with(mut settings: Settings) -> ControlPlane {
        if settings.version.is_empty() {
            settings.version = "2.14.3".to_owned();
        }
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        settings.authn = Authn { local_administrators: vec![own], ..settings.authn };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let registrar = Arc::new(Registrar::new(Arc::new(Memory::default()), setup()));
        let taught = Arc::new(Mutex::new(Taught::default()));
        let proxies = Arc::new(Proxies { store: registrar.store().clone(), taught: taught.clone() });
        let context = Context {
            registrar: registrar.clone(),
            settings,
            metrics: Metrics::register(&runtime::metrics::Metrics::default()),
            inspect: proxies.clone(),
            problems: proxies,
            gates: Gates::default(),
        };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let router = api::router(context).layer(middleware::map_request(move |request: Request| {
            seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            async move { request }
        }));
        let shutdown = Shutdown::default();
        let url = runtime.block_on(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let url = format!("http://{}", listener.addr());
            listener.serve(router, None, Limits::default(), &shutdown);
            url
        });
        let control_plane = ControlPlane { url, taught, registrar, requests, shutdown, runtime };
        control_plane.store(json!({ "type": "Mesh", "name": "default" }));
        control_plane
    }

    /// Stores a resource as the control plane itself does, past the rules for users.
    pub fn store(&self, resource: Value) {
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
        let write = match stored {
            None => Write::Create(resource),
            Some(stored) => Write::Update { resource, expected: stored.version },
        };
        self.write(write);
    }

    pub fn delete(&self, kind: Kind, mesh: &str, name: &str) {
        self.write(Write::Delete { key: Key::new(kind, mesh, name), expected: None });
    }

    fn write(&self, write: Write) {
        let store = self.registrar.store().clone();
        let outcomes = self.runtime.block_on(async move { store.write(vec![write]).await }).unwrap();
        drop(outcomes);
    }

    /// The spec that is stored.
    pub fn spec(&self, kind: Kind, mesh: &str, name: &str) -> Value {
        let snapshot = self.registrar.store().snapshot().unwrap();
        snapshot.get(&Key::new(kind, mesh, name)).unwrap().spec.to_json()
    }

    /// `GET /meshes/a`, in the order they came.
    pub fn lines(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
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

    /// What the REST API answers.
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

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.shutdown.begin();
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

fn setup() -> Setup {
    Setup {
        mode: Mode::Zone { name: "east".into(), federated: false },
        disable_origin_label_validation: false,
        unsafe_delete: false,
        health_discovery: true,
        companions: Box::new(|_, _| Vec::new()),
        check: |_, _, _| {},
        now: Timestamp::now,
    }
}
