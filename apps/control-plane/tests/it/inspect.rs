//! Looking into proxies: over mutual TLS with what listens there, and from what is stored.

mod access;
mod elsewhere;
mod faults;
pub mod hostnames;
mod kinds;
pub mod layout;
mod logging;
mod near_misses;
mod policies;
mod reachability;
mod rest;
mod shadow;
mod suggestions;
mod summary;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use api::{AdminFormat, AdminView, Inspect, InspectError};
use axum::{Extension, Router, extract::OriginalUri};
use http::{Method, StatusCode, Uri};
use identity::admin::AdminAuthority;
use inspection::StoredProxies;
use jiff::Timestamp;
use plan::{AdminTarget, AdminTls, ProxyTraits};
use resources::{Key, Kind};
use runtime::{
    listen::{Limits, Listener, Peer},
    tls::{MinVersion, ServerTls, certificates},
};
use serde_json::{Value, json};
use serving::push::Connected;

use crate::world::{World, mesh, registrar, resource, traits};

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJOYW1lIjoid2ViIn0.c2lnbmF0dXJl";

/// A world with an authority for admin interfaces, and what looks into its proxies.
struct Inspected {
    world: World,
    proxies: StoredProxies,
}

impl Inspected {
    async fn new() -> Inspected {
        let world = World::new();
        serving::admin::ensure_authority(&registrar(world.store.clone()), Timestamp::now()).await.unwrap();
        let proxies = StoredProxies::new(world.store.clone(), world.push.clone(), 9901);
        world.put([mesh("default", "")]).await;
        Inspected { world, proxies }
    }

    /// A Dataplane whose admin interface is at `admin`.
    async fn dataplane(&self, name: &str, admin: SocketAddr) -> Key {
        let key = Key::new(Kind::Dataplane, "default", name);
        let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } });
        let networking = json!({
            "address": admin.ip().to_string(), "admin": { "port": admin.port() }, "inbound": [inbound],
        });
        self.world.put([resource(key.clone(), &[], json!({ "networking": networking }))]).await;
        key
    }

    fn admin_tls(&self, proxy: &Key, address: &str) -> AdminTls {
        let snapshot = self.world.store.snapshot().unwrap();
        let authority = AdminAuthority::load(&snapshot, Timestamp::now()).unwrap();
        serving::admin::admin_tls(&authority, proxy, address).unwrap()
    }

    fn connect(&self, name: &str, admin: SocketAddr) -> Connected {
        let traits = traits("default", name);
        self.world.push.connect(ProxyTraits { admin_port: admin.port(), ..traits })
    }

    fn connect_with_own_interface(&self, name: &str, admin: SocketAddr) -> Connected {
        let traits = traits("default", name);
        let admin_target = AdminTarget::Port(admin.ip(), admin.port());
        self.world.push.connect(ProxyTraits { admin_port: admin.port(), admin_target, ..traits })
    }

    /// Something like an Envoy, which answers the control plane only.
    async fn envoy(&self, ip: &str, tls: impl FnOnce(SocketAddr) -> Option<AdminTls>) -> SocketAddr {
        let listener = Listener::bind(SocketAddr::new(ip.parse().unwrap(), 0)).await.unwrap();
        let addr = listener.addr();
        let tls = tls(addr).map(|tls| ServerTls {
            certificate_pem: tls.certificate,
            key_pem: tls.key,
            min_version: MinVersion::Tls12,
            client_certificates: certificates(&tls.authority).unwrap(),
        });
        let config = tls.map(|tls| tls.to_config().unwrap());
        listener.serve(Router::new().fallback(answer), config, Limits::default(), &self.world.shutdown);
        addr
    }
}

async fn answer(
    method: Method,
    OriginalUri(uri): OriginalUri,
    Extension(peer): Extension<Peer>,
) -> (StatusCode, String) {
    if peer.tls && peer.client_certificate.is_none() {
        return (StatusCode::FORBIDDEN, "who are you?".to_owned());
    }
    match uri.path() {
        "/config_dump" => (StatusCode::OK, dump(&uri)),
        "/logging" if method != Method::POST => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        "/logging" if uri.query() == Some("none=info") => (StatusCode::BAD_REQUEST, String::new()),
        "/logging" => (StatusCode::OK, logging::said(&uri)),
        "/clusters" => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        "/stats" if uri.query().is_none() => (StatusCode::OK, STATISTICS.to_owned()),
        _ => (StatusCode::OK, uri.to_string()),
    }
}

fn dump(uri: &Uri) -> String {
    let metadata = json!([{ "key": "authorization", "value": TOKEN }]);
    json!({ "query": uri.query(), "configs": [{ "initial_metadata": metadata }] }).to_string()
}

/// Statistics of an inbound under the names of either scheme.
const STATISTICS: &str = "\
cluster.self_backend-kumahq.com.upstream_cx_total: 7
http.self_backend-kumahq.com.downstream_rq_2xx: 3
cluster.localhost_8080.upstream_cx_total: 7
http.localhost_8080.downstream_rq_2xx: 3
";

const STATS: AdminView = AdminView::Stats { format: AdminFormat::Text, used_only: true };

#[tokio::test]
async fn a_proxy_answers_over_mutual_tls_and_its_dump_has_no_secrets() {
    let world = Inspected::new().await;
    let key = Key::new(Kind::Dataplane, "default", "web");
    let addr = world.envoy("127.0.0.2", |_| Some(world.admin_tls(&key, "127.0.0.2"))).await;
    world.dataplane("web", addr).await;
    let _connected = world.connect("web", addr);

    let stats = world.proxies.admin(&key, STATS).await.unwrap();
    assert_eq!((stats.content_type, &*stats.body), ("text/plain", &b"/stats?usedonly"[..]));
    let view = AdminView::Stats { format: AdminFormat::Json, used_only: false };
    let stats = world.proxies.admin(&key, view).await.unwrap();
    assert_eq!((stats.content_type, &*stats.body), ("application/json", &b"/stats?format=json"[..]));

    let dump = world.proxies.admin(&key, AdminView::ConfigDump { include_eds: true }).await.unwrap();
    assert_eq!(dump.content_type, "application/json");
    let expect = json!({ "query": "include_eds", "configs": [
        { "initial_metadata": [{ "key": "authorization", "value": "[redacted]" }] },
    ] });
    assert_eq!(serde_json::from_slice::<Value>(&dump.body).unwrap(), expect);
}

#[tokio::test]
async fn envoys_own_interface_on_this_machine_is_asked_without_tls() {
    let world = Inspected::new().await;
    let addr = world.envoy("127.0.0.1", |_| None).await;
    let key = world.dataplane("web", addr).await;
    let _connected = world.connect_with_own_interface("web", addr);
    assert_eq!(world.proxies.admin(&key, STATS).await.unwrap().body, "/stats?usedonly");
}

#[tokio::test]
async fn whoever_is_not_the_proxy_is_not_believed() {
    let world = Inspected::new().await;
    let (web, other) =
        (Key::new(Kind::Dataplane, "default", "web"), Key::new(Kind::Dataplane, "default", "other"));
    let stranger = Inspected::new().await;
    for (name, tls) in [
        ("the certificate of another address", Some(world.admin_tls(&other, "127.0.0.3"))),
        ("a certificate of another authority", Some(stranger.admin_tls(&web, "127.0.0.2"))),
        ("no certificate at all", None),
    ] {
        let addr = world.envoy("127.0.0.2", |_| tls).await;
        let proxy = format!("web-{}", addr.port());
        let key = world.dataplane(&proxy, addr).await;
        let _connected = world.connect(&proxy, addr);
        let error = world.proxies.admin(&key, STATS).await.unwrap_err();
        assert!(
            matches!(&error, InspectError::Unreachable(reason) if reason.contains("TLS")),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_asked_is_reported_with_what_to_do() {
    let world = Inspected::new().await;
    let nobody = {
        let listener = Listener::bind("127.0.0.2:0".parse().unwrap()).await.unwrap();
        listener.addr()
    };
    let key = world.dataplane("gone", nobody).await;
    let _connected = world.connect("gone", nobody);
    let InspectError::Unreachable(reason) = world.proxies.admin(&key, STATS).await.unwrap_err() else {
        panic!()
    };
    assert!(
        reason.contains(&format!("https://{nobody}")) && reason.contains("kuma-dp is running"),
        "{reason}"
    );

    let addr = world.envoy("127.0.0.1", |_| None).await;
    let key = world.dataplane("refusing", addr).await;
    let _connected = world.connect_with_own_interface("refusing", addr);
    let view = AdminView::Clusters { format: AdminFormat::Text };
    let InspectError::Unreachable(reason) = world.proxies.admin(&key, view).await.unwrap_err() else {
        panic!()
    };
    assert!(reason.contains("/clusters was answered with 503"), "{reason}");

    let missing = Key::new(Kind::Dataplane, "default", "none");
    assert_eq!(world.proxies.admin(&missing, STATS).await, Err(InspectError::Missing(missing)));
}

#[tokio::test]
async fn nothing_is_asked_of_addresses_that_no_connected_proxy_has() {
    let world = Inspected::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let open = {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.addr();
        let asked = asked.clone();
        let count = move || async move { asked.fetch_add(1, Ordering::Relaxed).to_string() };
        let router = Router::new().fallback(count);
        listener.serve(router, None, Limits::default(), &world.world.shutdown);
        addr
    };
    let closed = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().addr();
    // Anybody may write a Dataplane. It tells nothing about the port it names.
    for (name, admin) in [("open", open), ("closed", closed)] {
        let key = world.dataplane(name, admin).await;
        for view in [STATS, AdminView::ConfigDump { include_eds: false }] {
            assert_eq!(world.proxies.admin(&key, view).await, Err(InspectError::NotConnected(key.clone())));
        }
        let summary = world.proxies.stats_summary(&key, true).await;
        assert_eq!(summary, Err(InspectError::NotConnected(key)));
    }
    // Nor does it make the control plane ask somebody else once the proxy is connected.
    let own = world.envoy("127.0.0.1", |_| None).await;
    let key = world.dataplane("web", own).await;
    let _connected = world.connect_with_own_interface("web", own);
    world.dataplane("web", open).await;
    assert_eq!(world.proxies.admin(&key, STATS).await.unwrap().body, "/stats?usedonly");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_configuration_of_a_connected_proxy_is_shown_without_secrets() {
    let world = Inspected::new().await;
    let addr: SocketAddr = "127.0.0.2:9901".parse().unwrap();
    let key = world.dataplane("web", addr).await;
    let not_connected = world.proxies.config(&key, false).await;
    assert_eq!(not_connected, Err(InspectError::NotConnected(key.clone())));

    let _connected = world.connect("web", addr);
    let config = world.proxies.config(&key, false).await.unwrap().xds;
    let listeners = &config["type.googleapis.com/envoy.config.listener.v3.Listener"];
    let admin = &listeners["kuma:envoy:admin"];
    assert_eq!(admin["address"]["socketAddress"], json!({ "address": "127.0.0.2", "portValue": 9901 }));
    let text = config.to_string();
    // The beginning of a certificate, what keys are replaced by, and the beginnings of keys, in base64.
    let certificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS";
    let redacted = "W3JlZGFjdGVkXQ==";
    let keys = ["LS0tLS1CRUdJTiBQUklWQVRF", "LS0tLS1CRUdJTiBFQyBQUklWQVRF", "PRIVATE KEY"];
    assert!(text.contains("HttpConnectionManager") && text.contains(certificate), "{text}");
    assert!(text.contains(redacted) && !keys.iter().any(|key| text.contains(key)), "{text}");
    assert!(listeners["inbound:127.0.0.2:80"].is_object(), "{config:#}");
}

#[tokio::test]
async fn the_authority_is_made_once_and_certificates_stay_the_same() {
    let world = Inspected::new().await;
    let key = Key::new(Kind::Dataplane, "default", "web");
    let before = world.admin_tls(&key, "192.0.2.1");
    serving::admin::ensure_authority(&registrar(world.world.store.clone()), Timestamp::now()).await.unwrap();
    assert!(before == world.admin_tls(&key, "192.0.2.1"));
    let authority = AdminAuthority::load(&world.world.store.snapshot().unwrap(), Timestamp::now()).unwrap();
    assert_eq!(&before.authority, authority.certificate());
}
