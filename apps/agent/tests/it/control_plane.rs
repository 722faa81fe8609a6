//! A control plane as far as an agent sees one: `/bootstrap` over TLS, and a discovery service that
//! refuses every client.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
    tls::{MinVersion, ServerTls},
};
use serde_json::{Value, json};

use crate::agent::free_port;

/// A self-signed certificate for localhost.
pub struct Certificate {
    pub pem: String,
    key: String,
}

impl Certificate {
    pub fn new() -> Certificate {
        Certificate::of(&["localhost", "127.0.0.1"], rcgen::IsCa::NoCa)
    }

    pub fn of_another_host() -> Certificate {
        Certificate::of(&["control-plane.example"], rcgen::IsCa::NoCa)
    }

    /// As Kuma's control plane makes its own: a CA that only vouches for itself.
    pub fn calling_itself_a_ca() -> Certificate {
        Certificate::of(&["localhost"], rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained))
    }

    fn of(names: &[&str], is_ca: rcgen::IsCa) -> Certificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.is_ca = is_ca;
        let key = rcgen::KeyPair::generate().unwrap();
        Certificate { pem: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }
}

#[derive(Default)]
struct State {
    requests: Vec<Value>,
    /// Given once each, before the bootstrap is.
    refusals: VecDeque<(u16, &'static str)>,
}

/// Serves until dropped.
pub struct SimulatedControlPlane {
    pub certificate: Certificate,
    /// Port at which Envoy serves.
    pub traffic_port: u16,
    port: u16,
    /// Lets Envoy ask for configuration, and be refused.
    discovery: bool,
    /// Gives Envoy inbounds and an outbound as a proxy with unified names has them.
    unified: bool,
    /// Lets Envoy make the labels of Kuma then.
    labels: bool,
    /// Path of Envoy's admin interface, if not in the work directory.
    admin_socket: Option<String>,
    /// Port where Envoy answers Prometheus, and the port of the application whose metrics are read.
    metrics: Option<(u16, u16)>,
    state: Arc<Mutex<State>>,
    runtime: Option<(tokio::runtime::Runtime, Shutdown)>,
}

impl SimulatedControlPlane {
    /// One that does not serve yet.
    pub fn away() -> SimulatedControlPlane {
        SimulatedControlPlane {
            certificate: Certificate::new(),
            traffic_port: free_port(),
            port: free_port(),
            discovery: false,
            unified: false,
            labels: true,
            admin_socket: None,
            metrics: None,
            state: Arc::default(),
            runtime: None,
        }
    }

    pub fn start() -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.serve();
        control_plane
    }

    pub fn with_certificate(certificate: Certificate) -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.certificate = certificate;
        control_plane.serve();
        control_plane
    }

    /// One whose discovery service knows no valid token.
    pub fn refusing_tokens() -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.discovery = true;
        control_plane.serve();
        control_plane
    }

    /// One that tells Envoy of the inbound `self_backend-kumahq.com`, some more and an outbound, and has Envoy
    /// make the labels of Kuma, as Kuma's does.
    pub fn with_unified_names() -> SimulatedControlPlane {
        SimulatedControlPlane::with_labels(true)
    }

    /// The same, and the agent is left to make the labels of Kuma.
    pub fn with_labels_by_the_agent() -> SimulatedControlPlane {
        SimulatedControlPlane::with_labels(false)
    }

    fn with_labels(in_envoy: bool) -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.unified = true;
        control_plane.labels = in_envoy;
        control_plane.serve();
        control_plane
    }

    /// One that wants Envoy to listen at a path of its choice.
    pub fn with_admin_socket(path: &str) -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.admin_socket = Some(path.to_owned());
        control_plane.serve();
        control_plane
    }

    /// One that lets Envoy answer Prometheus at a port, as Kuma's does.
    pub fn with_metrics(port: u16, application: u16) -> SimulatedControlPlane {
        let mut control_plane = SimulatedControlPlane::away();
        control_plane.metrics = Some((port, application));
        control_plane.serve();
        control_plane
    }

    pub fn refuse(&self, status: u16, text: &'static str) {
        self.state.lock().unwrap().refusals.push_back((status, text));
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    pub fn requests(&self) -> Vec<Value> {
        self.state.lock().unwrap().requests.clone()
    }

    pub fn serve(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let tls = ServerTls {
            certificate_pem: self.certificate.pem.clone(),
            key_pem: self.certificate.key.clone(),
            min_version: MinVersion::Tls12,
            client_certificates: Vec::new(),
        };
        let state = self.state.clone();
        let shape = Shape {
            traffic: self.traffic_port,
            unified: self.unified,
            labels: self.labels,
            admin_socket: self.admin_socket.clone(),
            metrics: self.metrics,
            discovery: self.discovery.then(|| (self.port, self.certificate.pem.clone())),
        };
        let router = Router::new()
            .route("/bootstrap", post(move |Json(request)| async move { answer(&state, &shape, request) }))
            .fallback(async || {
                // A whole gRPC answer: unauthenticated.
                [
                    ("content-type", "application/grpc"),
                    ("grpc-status", "16"),
                    ("grpc-message", "token expired"),
                ]
            });
        let shutdown = Shutdown::default();
        runtime.block_on(async {
            let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], self.port))).await.unwrap();
            listener.serve(router, Some(tls.to_config().unwrap()), Limits::default(), &shutdown);
        });
        self.runtime = Some((runtime, shutdown));
    }
}

impl Drop for SimulatedControlPlane {
    fn drop(&mut self) {
        if let Some((runtime, shutdown)) = self.runtime.take() {
            shutdown.begin();
            runtime.shutdown_background();
        }
    }
}

/// Variable parts of a bootstrap.
#[derive(Clone)]
struct Shape {
    traffic: u16,
    unified: bool,
    labels: bool,
    admin_socket: Option<String>,
    metrics: Option<(u16, u16)>,
    discovery: Option<(u16, String)>,
}

impl Shape {
    fn aggregate(&self) -> Value {
        let application =
            self.metrics.map(|(_, port)| json!({"name": "old", "port": port, "path": "/stats/metrics"}));
        application.into_iter().collect()
    }
}

fn answer(state: &Mutex<State>, shape: &Shape, request: Value) -> axum::response::Response {
    let mut state = state.lock().unwrap();
    let bootstrap = bootstrap(shape, request["workdir"].as_str().unwrap());
    state.requests.push(request);
    if let Some((status, text)) = state.refusals.pop_front() {
        return (StatusCode::from_u16(status).unwrap(), text).into_response();
    }
    let encoded = BASE64_STANDARD.encode(bootstrap.to_string());
    let sidecar = json!({"networking": {"corefileTemplate": null, "address": "127.0.0.1"}, "metrics": {"aggregate": shape.aggregate()}});
    Json(json!({"bootstrap": encoded, "kumaSidecarConfiguration": sidecar})).into_response()
}

fn bootstrap(shape: &Shape, work_dir: &str) -> Value {
    let admin = shape.admin_socket.clone().unwrap_or(format!("{work_dir}/kuma-envoy-admin.sock"));
    let mut bootstrap = json!({
        "node": {"id": "default.web-1", "cluster": "web"},
        "admin": {"address": {"pipe": {"path": admin, "mode": 0o600}}},
        "static_resources": {"listeners": [hello(shape.traffic)]},
    });
    if let Some((port, ca)) = &shape.discovery {
        let ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
        bootstrap["dynamic_resources"] = json!({
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "ads_cluster"}}],
            },
            "cds_config": ads,
            "lds_config": ads,
        });
        bootstrap["static_resources"]["clusters"] = json!([discovery_cluster(*port, ca)]);
    }
    if shape.unified {
        if shape.labels {
            bootstrap["stats_config"] = json!({"stats_tags": [
                {"tag_name": "worker", "regex": "(worker_([0-9]+)\\.)"},
                {"tag_name": "listener", "regex": "((.+?)\\.)rbac\\."},
            ]});
        }
        bootstrap["static_resources"] = unified(shape.traffic);
    }
    if let Some((port, application)) = shape.metrics {
        add_metrics(&mut bootstrap["static_resources"], work_dir, port, application);
    }
    bootstrap
}

/// A listener that lets the agent answer, and one with what the agent is to know.
fn add_metrics(resources: &mut Value, work_dir: &str, port: u16, application: u16) {
    let pipe = |name: &str| json!({"pipe": {"path": format!("{work_dir}/{name}.sock")}});
    let routes = |listener: &mut Value, routes: Value| {
        let filter = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
        filter["route_config"]["virtual_hosts"][0]["routes"] = routes;
    };
    let hijacker = "_kuma:metrics:hijacker";
    let route = |prefix: &str, path: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": hijacker, "prefix_rewrite": path}});
    let mut metrics = hello(port);
    metrics["name"] = "_kuma:metrics:prometheus:default".into();
    routes(&mut metrics, json!([route("/metrics", "/meshmetric"), route("/old", "/")]));
    let told = json!({"observability": {"metrics": {
        "applications": [{"name": "shop", "path": "/stats/metrics", "port": application, "address": "127.0.0.1"}],
        "extraLabels": {"mesh": "default", "kuma.proxy_role": "sidecar"},
    }}});
    let mut configuration = hello(0);
    configuration["name"] = "_kuma:dynamicconfig".into();
    configuration["address"] = pipe("kuma-mesh-metric-config");
    let body = json!({"status": 200, "body": {"inline_string": told.to_string()}});
    routes(&mut configuration, json!([{"match": {"path": "/meshmetric"}, "direct_response": body}]));
    let endpoint = json!({"endpoint": {"address": pipe("kuma-mh-web-1-default")}});
    let endpoints = json!({"cluster_name": hijacker, "endpoints": [{"lb_endpoints": [endpoint]}]});
    resources["listeners"].as_array_mut().unwrap().extend([metrics, configuration]);
    resources["clusters"] = json!([
        {"name": hijacker, "type": "STATIC", "connect_timeout": "1s", "load_assignment": endpoints}
    ]);
}

/// The section name is the very one that the naming decision uses as its example.
pub const DOTTED: &str = "self_backend-kumahq.com";
/// A port without a name, so that its section is its number.
pub const DESTINATION: &str = "kri_msvc_default_east__redis_6379";

fn unified(port: u16) -> Value {
    let cluster = |name: &str| json!({"name": name, "type": "STATIC", "connect_timeout": "1s"});
    let named = |mut listener: Value, name: &str| {
        listener["stat_prefix"] = name.into();
        listener
    };
    json!({
        "listeners": [
            named(inbound(DOTTED, DOTTED, port), DOTTED),
            named(inbound("self_main", "self_main", 0), "self_main"),
            // As a proxy with older names has it.
            inbound("localhost_80", "inbound_127_0_0_1_80", 0),
            named(tcp("self_wire-kumahq.com", "self_wire-kumahq.com"), "self_wire-kumahq.com"),
            named(tcp("self_line", "self_line"), "self_line"),
            tcp("localhost_81", "inbound_127_0_0_1_81"),
            named(tcp(DESTINATION, ""), DESTINATION),
        ],
        "clusters": [
            cluster(DOTTED), cluster("self_backend-kumahq"), cluster(DESTINATION), cluster("self_main"),
            cluster("self_line"), cluster("self_wire-kumahq.com"), cluster("localhost_80"), cluster("localhost_81"),
        ],
    })
}

fn any(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.filters.{name}")
}

fn anyone() -> Value {
    json!({"policies": {"all": {"permissions": [{"any": true}], "principals": [{"any": true}]}}})
}

/// A listener for HTTP with permissions.
fn inbound(name: &str, permissions: &str, port: u16) -> Value {
    let mut inbound = hello(port);
    inbound["name"] = name.into();
    let filter = &mut inbound["filter_chains"][0]["filters"][0]["typed_config"];
    filter["stat_prefix"] = name.into();
    let permissions = json!({"name": "envoy.filters.http.rbac", "typed_config": {
        "@type": any("http.rbac.v3.RBAC"), "rules_stat_prefix": format!("{permissions}."), "rules": anyone(),
    }});
    let router = filter["http_filters"][0].take();
    filter["http_filters"] = json!([permissions, router]);
    inbound
}

/// A listener for TCP, with permissions unless their name is empty.
fn tcp(name: &str, permissions: &str) -> Value {
    let mut filters = vec![json!({"name": "envoy.filters.network.tcp_proxy", "typed_config": {
        "@type": any("network.tcp_proxy.v3.TcpProxy"), "stat_prefix": name, "cluster": name,
    }})];
    if !permissions.is_empty() {
        let permissions = json!({"name": "envoy.filters.network.rbac", "typed_config": {
            "@type": any("network.rbac.v3.RBAC"), "stat_prefix": format!("{permissions}."), "rules": anyone(),
        }});
        filters.insert(0, permissions);
    }
    json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": filters}],
    })
}

/// A listener that says hello.
fn hello(port: u16) -> Value {
    let route = json!({"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}});
    json!({
        "name": "web",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": any("network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": "web",
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": any("http.router.v3.Router")},
                }],
            },
        }]}],
    })
}

fn discovery_cluster(port: u16, ca: &str) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({
        "name": "ads_cluster",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "ads_cluster",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }},
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {
                    "alpn_protocols": ["h2"],
                    "validation_context": {"trusted_ca": {"inline_string": ca}},
                },
            },
        },
    })
}
