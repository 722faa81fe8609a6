//! A store, the push loop on it, and the server that a Prometheus asks.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use monitoring::{
    Targets,
    assignments::{self, Assignments},
};
use reconcile::Runner;
use resources::{Key, Kind, Resource};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::push::Push;
use store::{Memory, Store, Write};
use tower::ServiceExt;

/// Longest time for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(60);

const PATH: &str = "/v3/discovery:monitoringassignments";

pub struct World {
    pub store: Arc<dyn Store>,
    pub push: Arc<Push>,
    pub targets: Arc<Targets>,
    pub shutdown: Shutdown,
    pub router: Router,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn version(&self) -> String {
        self.json()["version_info"].as_str().unwrap().to_owned()
    }

    /// Names of the Dataplanes.
    pub fn proxies(&self) -> Vec<String> {
        let document = self.json();
        let resources = document["resources"].as_array().unwrap();
        resources.iter().map(|one| one["targets"][0]["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

impl World {
    pub fn new() -> World {
        World::on(Arc::new(Memory::default()), false)
    }

    pub fn on(store: Arc<dyn Store>, certificate_required: bool) -> World {
        let shutdown = Shutdown::default();
        let push = Arc::new(Push::new(store.clone(), "east"));
        let targets = Targets::new(store.clone(), push.clone(), Duration::ZERO);
        push.start(&shutdown);
        let metrics = reconcile::Metrics::register(&runtime::metrics::Metrics::default());
        targets.start(&Runner::new(store.clone(), metrics, &shutdown));
        let router = assignments::router(Assignments {
            targets: targets.clone(),
            default_timeout: Duration::from_secs(1),
            certificate_required,
            shutdown: shutdown.clone(),
        });
        World { store, push, targets, shutdown, router }
    }

    pub async fn put(&self, resources: impl IntoIterator<Item = Resource>) {
        for resource in resources {
            let stored = self.store.snapshot().unwrap().get(&resource.key).cloned();
            let write = match stored {
                Some(stored) => Write::Update { resource, expected: stored.version },
                None => Write::Create(resource),
            };
            self.store.write(vec![write]).await.unwrap();
        }
    }

    pub async fn delete(&self, kind: Kind, name: &str) {
        let key = Key::new(kind, "default", name);
        self.store.write(vec![Write::Delete { key, expected: None }]).await.unwrap();
    }

    /// As Prometheus asks: with the version that it has, and how long it waits.
    pub async fn poll(&self, client: &str, version: &str, wait: &str) -> Answer {
        let request = json!({
            "version_info": version, "response_nonce": version, "node": {"id": client}, "resource_names": [],
            "type_url": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment",
        });
        self.ask(&format!("{PATH}?fetch-timeout={wait}"), request.to_string()).await
    }

    /// Polls until an answer holds; the index follows a write after a moment.
    pub async fn poll_until(&self, client: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let mut version = String::new();
        let waiting = async {
            loop {
                let answer = self.poll(client, &version, "60s").await;
                if answer.status == StatusCode::OK && holds(&answer) {
                    return answer;
                }
                if answer.status == StatusCode::OK {
                    version = answer.version();
                }
            }
        };
        tokio::time::timeout(SOON, waiting).await.expect("an answer that holds")
    }

    pub async fn ask(&self, path: &str, body: impl Into<Body>) -> Answer {
        ask(&self.router, path, body).await
    }
}

pub async fn ask(router: &Router, path: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(path).body(body.into()).unwrap();
    let answered = router.clone().oneshot(request).await.unwrap();
    let status = answered.status();
    let body = answered.into_body().collect().await.unwrap().to_bytes();
    Answer { status, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// A Dataplane of a service, at an address of its own.
pub fn dataplane(name: &str, service: &str, address: &str) -> Resource {
    testkit::build::dataplane(name).address(address).inbound(8080).service(service).build()
}

pub fn mesh(name: &str) -> Resource {
    testkit::resource::mesh(name, "")
}

/// A MeshMetric for proxies with this conf.
pub fn metric(name: &str, target: Value, backends: Value) -> Resource {
    testkit::resource::policy(
        Kind::MeshMetric,
        name,
        json!({"targetRef": target, "default": {"backends": backends}}),
    )
}

pub fn everyone() -> Value {
    json!({"kind": "Mesh"})
}

pub fn page() -> Value {
    json!({"type": "Prometheus", "prometheus": {"port": 5670, "path": "/metrics"}})
}
