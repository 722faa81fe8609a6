//! The agent's own endpoints: `/ready` for load balancers and kubelet, `/metrics` for Prometheus.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use nix::errno::Errno;
use prometheus_client::metrics::counter::Counter;
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
    logs,
    metrics::Metrics,
};

use crate::{
    envoy::admin::Admin,
    failure::{Failure, Result},
    metrics::{self, Families, Sources, View},
    settings::Settings,
};

/// Load balancers and readers of metrics have a few connections each.
const CONNECTIONS: usize = 64;

fn limits() -> Limits {
    Limits { connections: CONNECTIONS, per_peer: CONNECTIONS, ..Limits::default() }
}

/// Health of the proxy, shared by the tasks that learn it and those that answer questions.
#[derive(Debug, Clone)]
pub struct ProxyHealth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    admin: OnceLock<Admin>,
    /// Labels of the page, once the control plane has said which.
    labels: OnceLock<Vec<(String, String)>>,
    terminating: AtomicBool,
    metrics: Metrics,
    restarts: Counter,
    sources: Sources,
}

impl ProxyHealth {
    pub fn new(sources: Sources) -> ProxyHealth {
        let metrics = Metrics::default();
        logs::register(&metrics, "kuma_dp_log_lines_lost");
        let restarts = metrics.register(
            "kuma_dp_envoy_restarts",
            "Restarts of Envoy after an unexpected exit",
            Counter::default(),
        );
        metrics.register(
            "kuma_dp_metrics_source_failures",
            "Sources of metrics left out of a page, because they did not answer in time, or not with metrics",
            sources.failures().clone(),
        );
        ProxyHealth(Arc::new(Inner {
            admin: OnceLock::new(),
            labels: OnceLock::new(),
            terminating: AtomicBool::new(false),
            metrics,
            restarts,
            sources,
        }))
    }

    /// From now on Envoy can be asked.
    pub fn ask_envoy_at(&self, admin: Admin) {
        let _ = self.0.admin.set(admin);
    }

    /// From now on the page says whose it is.
    pub fn label_page(&self, labels: &[(String, String)]) {
        let _ = self.0.labels.set(labels.to_vec());
    }

    pub fn terminate(&self) {
        self.0.terminating.store(true, Ordering::Relaxed);
    }

    /// Counts a restart and says how many there were.
    pub fn restarted(&self) -> u64 {
        self.0.restarts.inc() + 1
    }

    /// Everything that is measured now, as far as a reader wants it.
    pub async fn gather(&self, view: &View) -> Families {
        self.0.sources.gather(view, self.0.admin.get(), self.0.metrics.encode()).await
    }

    /// One page of metrics.
    pub async fn page(&self, view: &View) -> String {
        view.written(self.gather(view).await)
    }

    /// The agent's own metrics, where other parts of it register theirs.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Listens unless the port is 0, and gives the address at which Envoy can ask.
    pub async fn serve(&self, settings: &Settings, shutdown: &Shutdown) -> Result<Option<IpAddr>> {
        let address = settings.proxy.readiness_address;
        let port = settings.proxy.readiness_port;
        if port == 0 {
            return Ok(None);
        }
        let bound = match address {
            Some(address) => Listener::bind((address, port).into()).await,
            None => bind_loopback(port, settings.features.ipv6_enabled).await,
        };
        let listener = bound.map_err(|error| {
            Failure::failed(format!(
                "{error}; every proxy of a machine needs its own KUMA_READINESS_PORT, and \
                 KUMA_READINESS_ADDRESS must be an address of this machine"
            ))
        })?;
        tracing::info!(address = %listener.addr(), "serving readiness at /ready");
        let router = Router::new()
            .route("/ready", get(ready))
            .route("/metrics", get(measured))
            .with_state(self.clone());
        let asked = match listener.addr().ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        listener.serve(router, None, limits(), shutdown);
        Ok(Some(asked))
    }

    /// Answers `/metrics` at an address that others can reach.
    pub async fn serve_metrics(&self, address: SocketAddr, shutdown: &Shutdown) -> Result<()> {
        let listener = Listener::bind(address).await.map_err(|error| {
            Failure::failed(format!(
                "{error}; --metrics-address must be an address of this machine, and free"
            ))
        })?;
        tracing::info!(address = %listener.addr(), "serving metrics at /metrics");
        let router = Router::new().route("/metrics", get(measured)).with_state(self.clone());
        listener.serve(router, None, limits(), shutdown);
        Ok(())
    }
}

/// 127.0.0.1, which control planes expect; a machine with IPv6 only has ::1 instead.
async fn bind_loopback(port: u16, ipv6: bool) -> std::result::Result<Listener, runtime::Error> {
    match Listener::bind((Ipv4Addr::LOCALHOST, port).into()).await {
        Err(runtime::Error::Bind { cause, .. }) if ipv6 && is_absent(&cause) => {
            Listener::bind((Ipv6Addr::LOCALHOST, port).into()).await
        }
        bound => bound,
    }
}

/// True if the machine has no such address, as opposed to one that is in use.
pub fn is_absent(error: &io::Error) -> bool {
    let missing = [Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|code| missing.contains(&Errno::from_raw(code)))
}

async fn ready(State(ProxyHealth(health)): State<ProxyHealth>) -> (StatusCode, String) {
    if health.terminating.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "TERMINATING\n".to_owned());
    }
    match reason_not_to_be_ready(health.admin.get()).await {
        None => (StatusCode::OK, "READY\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("NOT READY: {reason}\n")),
    }
}

async fn reason_not_to_be_ready(admin: Option<&Admin>) -> Option<String> {
    let Some(admin) = admin else { return Some("Envoy has no configuration yet".to_owned()) };
    if !admin.is_ready().await {
        return Some("Envoy does not serve its configuration yet".to_owned());
    }
    match admin.closed_inbounds().await {
        Ok(closed) if closed.is_empty() => None,
        Ok(closed) => Some(format!("Envoy has rejected the listener of {}", closed.join(", "))),
        Err(error) => Some(format!("cannot read the listeners from Envoy: {error:#}")),
    }
}

async fn measured(
    State(health): State<ProxyHealth>,
    headers: HeaderMap,
) -> ([(axum::http::HeaderName, &'static str); 1], String) {
    let labels = health.0.labels.get().cloned().unwrap_or_default();
    let page = health.page(&View { labels, ..View::default() }.for_reader(&headers)).await;
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page)
}
