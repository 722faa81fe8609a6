//! A global control plane of Kuma has policies that a zone does not keep, and the zone says so.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::Request,
    response::{IntoResponse, Response},
};
use kds::wire::{self, service};
use prost::Message as _;
use resources::{Key, Kind, Labels, Spec};
use serde_json::{Value, json};
use synchronisation::frame::{Messages, Outgoing};
use tempfile::tempdir;
use tokio::{
    net::TcpListener,
    sync::{Mutex, watch},
};

use super::{eventually, zone_config};
use crate::client::{get, start};

const LIMIT: usize = 10 << 20;

/// Names of a kind's resources at the global control plane, as zones of Kuma know them on the wire.
type Permissions = watch::Sender<Vec<&'static str>>;

/// A global control plane that has one mesh and these TrafficPermissions.
#[derive(Clone)]
struct Global {
    permissions: Permissions,
    /// Rejections by zones.
    rejected: Arc<Mutex<Vec<String>>>,
}

impl Global {
    async fn sync(self, mut requests: Messages, responses: Outgoing) {
        let mut permissions = self.permissions.subscribe();
        let mut asked = false;
        loop {
            tokio::select! {
                request = requests.next::<wire::DeltaDiscoveryRequest>() => {
                    let Ok(Some(request)) = request else { return };
                    if let Some(error) = request.error_detail {
                        self.rejected.lock().await.push(format!("{}: {}", request.type_url, error.message));
                    }
                    if request.response_nonce.is_empty() {
                        asked |= request.type_url == "TrafficPermission";
                        let present = self.present(&request.type_url);
                        if responses.send(&response(&request.type_url, present, &[])).await.is_err() {
                            return;
                        }
                    }
                }
                changed = permissions.changed(), if asked => {
                    // Names that are gone have a message of their own.
                    let now = permissions.borrow_and_update().clone();
                    let gone: Vec<&str> = ["allow-a.default", "allow-b.default"]
                        .into_iter()
                        .filter(|name| !now.contains(name))
                        .collect();
                    let told = responses.send(&response("TrafficPermission", Vec::new(), &gone)).await;
                    if changed.is_err() || told.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn present(&self, kind: &str) -> Vec<wire::Resource> {
        let resource = |name: &str, body: bytes::Bytes| {
            let any = wire::Any { type_url: wire::KUMA_RESOURCE.to_owned(), value: body };
            wire::Resource { name: name.to_owned(), version: "1".to_owned(), resource: Some(any) }
        };
        match kind {
            "Mesh" => {
                let spec = Spec::from_json(Kind::Mesh, json!({}), &mut Vec::new()).unwrap();
                let key = Key::global(Kind::Mesh, "default");
                let labels = Labels::from([("kuma.io/origin".to_owned(), "global".to_owned())]);
                let mesh = kds::Synced { key, labels, spec, status: None };
                vec![resource("default.", wire::encode(&mesh).unwrap())]
            }
            // The content is of no concern.
            "TrafficPermission" => self
                .permissions
                .borrow()
                .iter()
                .map(|name| resource(name, bytes::Bytes::from_static(b"\xff\xff")))
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn response(kind: &str, resources: Vec<wire::Resource>, removed: &[&str]) -> wire::DeltaDiscoveryResponse {
    wire::DeltaDiscoveryResponse {
        type_url: kind.to_owned(),
        nonce: format!("{kind}-1"),
        resources: resources.iter().map(|resource| resource.encode_to_vec().into()).collect(),
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        control_plane: Some(wire::ControlPlane { identifier: "global".to_owned() }),
        ..wire::DeltaDiscoveryResponse::default()
    }
}

async fn answer(State(global): State<Global>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let mut requests = Messages::of(request.into_body(), LIMIT);
    let (responses, frames) = Outgoing::of_answer(false, Duration::from_secs(60));
    tokio::spawn(async move {
        match path.as_str() {
            service::GLOBAL_TO_ZONE_SYNC => global.sync(requests, responses).await,
            service::HEALTH_CHECK => {
                let _ = responses.send(&wire::ZoneHealthCheckResponse { interval: None }).await;
            }
            // The zone provides, and is asked nothing.
            _ => while let Ok(Some(_)) = requests.next::<wire::DeltaDiscoveryResponse>().await {},
        }
    });
    ([("content-type", "application/grpc")], Body::new(frames)).into_response()
}

async fn serve(permissions: &[&'static str]) -> (Global, std::net::SocketAddr) {
    let global = Global { permissions: watch::Sender::new(permissions.to_vec()), rejected: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Router::new().fallback(answer).with_state(global.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (global, addr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_names_policies_of_a_kuma_global_without_effect_until_gone() {
    let directory = tempdir().unwrap();
    let (global, addr) = serve(&["allow-a.default", "allow-b.default"]).await;
    let mut config = zone_config(directory.path(), "east", addr, directory.path());
    config.synchronisation.multizone.zone.global_address = format!("grpc://{addr}");
    config.synchronisation.multizone.zone.kds.root_ca_file = String::new();
    let zone = start(config).await;

    let problem = async || -> Value {
        let overview = get(&zone, "/zones/east/_overview").await;
        let problems = overview["zoneInsight"]["problems"].as_array().cloned().unwrap_or_default();
        problems.into_iter().find(|problem| problem["type"] == "TrafficPermission").unwrap_or_default()
    };
    let finding = async || -> Value {
        let found = get(&zone, "/meshes/default/_problems").await;
        let items = found["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["code"] == "not-received").unwrap_or_default()
    };
    eventually("the zone shows what has no effect", || async { !problem().await.is_null() }).await;
    let shown = problem().await;
    assert_eq!(shown["what"], "without effect in the zone");
    let reason = shown["reason"].as_str().unwrap();
    for part in
        ["2 of kind TrafficPermission", "\"allow-a\"", "MeshTrafficPermission", "kumactl migrate policies"]
    {
        assert!(reason.contains(part), "{part:?} is not in {reason}");
    }
    eventually("the mesh shows it", || async { !finding().await.is_null() }).await;
    assert_eq!(finding().await["kri"], "kri_m____default_");
    assert_eq!(*global.rejected.lock().await, [""; 0], "nothing was rejected");

    global.permissions.send_replace(vec!["allow-b.default"]);
    eventually("one is left", || async { problem().await.to_string().contains("1 of kind") }).await;
    global.permissions.send_replace(Vec::new());
    eventually("none is left", || async { problem().await.is_null() && finding().await.is_null() }).await;
    zone.finish().await;
}
