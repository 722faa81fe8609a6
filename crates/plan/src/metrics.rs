//! MeshMetric in a plan: pages of metrics at the proxy's address, routes to collectors, and the configuration
//! of the agent that gathers the metrics.

mod agent;
mod counting;
mod labels;
mod scraping;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use policy::MergedPolicy;
use resources::{
    Kind, Resource,
    kinds::{
        host_port::HostPort,
        mesh_metric::{self, BackendType, Conf, TlsMode},
        mesh_open_telemetry_backend::{BackendRef, MeshOpenTelemetryBackend},
    },
    naming::{socket, system},
};
use topology::MeshSnapshot;

use crate::{
    AgentPart, Applying, Code, Effective, Finding, Inbound, OwnContext, SystemNames, ip_of, port_of,
};

pub use counting::Counting;
pub use labels::{ScrapeLabels, sanitized};
pub use scraping::{ScrapePage, scrape_clients, scrape_pages};

/// For collectors without an address.
const THIS_MACHINE: &str = "127.0.0.1";
/// The default of `refreshInterval`.
const INTERVAL: &str = "1m0s";

/// Everything that metrics of a proxy need.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyMetrics {
    pub pages: Vec<MetricsPage>,
    pub collectors: Vec<MetricsCollector>,
    /// Document about them that the agent reads from its proxy.
    pub document: AgentPart,
}

/// Offer a page of metrics, which the agent writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetricsPage {
    pub names: SystemNames,
    pub address: IpAddr,
    pub port: u16,
    pub path: String,
    /// Socket where the agent answers.
    pub socket: String,
    /// The certificate and the key of the page; without them it is offered in plain text.
    pub tls: Option<CertificateFiles>,
    pub reuse_port: bool,
    pub ipv6: bool,
}

/// Files on the proxy's machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    pub certificate: String,
    pub key: String,
}

/// Take metrics from the agent and send them to a collector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetricsCollector {
    pub names: SystemNames,
    /// Its name in the agent's configuration.
    pub backend: String,
    /// Socket that the agent sends to.
    pub socket: String,
    pub host: String,
    pub port: u16,
    /// Interval between exports, in Go's spelling.
    pub interval: String,
    pub ipv6: bool,
}

/// The conf of the MeshMetrics that select a Dataplane, which need not be stored.
pub fn conf(snapshot: &MeshSnapshot, dataplane: &Resource) -> Option<Arc<Conf>> {
    let applying = Applying::of_one_kind(Kind::MeshMetric, snapshot, dataplane);
    Effective::for_proxy(snapshot, dataplane, applying).proxy(Kind::MeshMetric)?.typed().ok()
}

/// The path of a page, with a slash in front.
fn path_of(page: &mesh_metric::Prometheus) -> String {
    format!("/{}", page.path().trim_start_matches('/'))
}

/// `inbounds` are those of the same proxy, whose ports are taken.
pub(crate) fn plan(
    context: &OwnContext<'_>,
    inbounds: &[Inbound],
    findings: &mut Vec<Finding>,
) -> Option<ProxyMetrics> {
    let merged: Arc<MergedPolicy> = context.effective.proxy(Kind::MeshMetric)?;
    let conf: Arc<Conf> = match merged.typed() {
        Ok(conf) => conf,
        Err(error) => {
            findings.push(Finding::new(Code::UnreadablePolicy, format!("MeshMetric: {error}")));
            return None;
        }
    };
    if conf.backends().is_empty() {
        return None;
    }
    let work_dir = context.traits.work_dir.as_str();
    let finding = |code, text: String| match merged.origins.last() {
        Some(policy) => Finding::about(code, policy.clone(), text),
        None => Finding::new(code, text),
    };
    if work_dir.is_empty() {
        let text = "MeshMetric: the proxy does not say where its agent's work directory is, so its agent \
        cannot serve metrics";
        findings.push(finding(Code::NoWorkDirectory, text.to_owned()));
        return None;
    }
    if let Some(missing) = Counting::missing(&conf, context.traits.counted.as_deref()) {
        let started = context.traits.counted.as_deref().unwrap_or_default();
        let text = format!(
            "MeshMetric: this proxy was started for the metrics {started:?} and keeps no others; missing are {missing}"
        );
        findings.push(finding(Code::StatisticsNotKept, text));
    }
    let mut making = Making {
        context,
        work_dir,
        finding: &finding,
        taken: taken(context, inbounds),
        names: BTreeSet::new(),
    };
    let mut pages = Vec::new();
    let mut collectors = Vec::new();
    for backend in conf.backends() {
        match (&backend.kind, &backend.prometheus, &backend.open_telemetry) {
            (BackendType::Prometheus, Some(page), _) => pages.extend(making.page(page, findings)),
            (BackendType::OpenTelemetry, _, Some(to)) => collectors.extend(making.collector(to, findings)),
            // Validation does not let them in.
            _ => {}
        }
    }
    let document = agent::document(context, &conf, !pages.is_empty(), &collectors);
    Some(ProxyMetrics { pages, collectors, document })
}

/// The addresses at which the proxy listens already.
fn taken(context: &OwnContext<'_>, inbounds: &[Inbound]) -> BTreeSet<(IpAddr, u16)> {
    let admin = context.networking.address.parse().ok().map(|ip| (ip, context.traits.admin_port));
    inbounds.iter().map(|inbound| (inbound.address, inbound.port)).chain(admin).collect()
}

struct Making<'a> {
    context: &'a OwnContext<'a>,
    work_dir: &'a str,
    /// Makes a finding of the policies.
    finding: &'a dyn Fn(Code, String) -> Finding,
    taken: BTreeSet<(IpAddr, u16)>,
    /// Of listeners that are made already.
    names: BTreeSet<String>,
}

impl Making<'_> {
    fn page(&mut self, page: &mesh_metric::Prometheus, findings: &mut Vec<Finding>) -> Option<MetricsPage> {
        let traits = self.context.traits;
        let id = page.client_id.as_deref().unwrap_or(system::DEFAULT_BACKEND);
        let whose = format!("MeshMetric: the Prometheus backend {id:?}");
        let address = ip_of(&self.context.networking.address, &whose, findings)?;
        let port = port_of(page.port(), &whose, findings)?;
        let names = self.context.names.metrics_page(id);
        self.is_new(&names, &whose, findings)?;
        if !self.taken.insert((address, port)) {
            let at = SocketAddr::new(address, port);
            findings.push((self.finding)(
                Code::PortConflict,
                format!(
                    "{whose} cannot listen at {at}: another part of this proxy does; choose another port"
                ),
            ));
            return None;
        }
        Some(MetricsPage {
            names,
            address,
            port,
            path: path_of(page),
            socket: socket::metrics(self.work_dir, &traits.name, &traits.mesh),
            tls: self.tls(page, &whose, findings),
            reuse_port: traits.reuse_port,
            ipv6: traits.ipv6,
        })
    }

    fn tls(
        &self,
        page: &mesh_metric::Prometheus,
        whose: &str,
        findings: &mut Vec<Finding>,
    ) -> Option<CertificateFiles> {
        match page.tls.as_ref()?.mode {
            TlsMode::ProvidedTls => {
                let files = self.context.traits.metrics_certificate.as_deref();
                if files.is_none() {
                    findings.push((self.finding)(Code::MetricsWithoutTls, format!(
                        "{whose} has tls.mode ProvidedTLS, but the proxy has no certificate for it, so its page is \
                         offered without TLS; start kuma-dp with --metrics-cert-path and --metrics-key-path"
                    )));
                }
                files.cloned()
            }
            TlsMode::ActiveMtlsBackend => {
                findings.push((self.finding)(Code::MetricsWithoutTls, format!(
                    "{whose} has tls.mode ActiveMTLSBackend, which has no effect: its page is offered without TLS; \
                     use ProvidedTLS"
                )));
                None
            }
            TlsMode::Disabled | TlsMode::Other(_) => None,
        }
    }

    fn collector(
        &mut self,
        to: &mesh_metric::OpenTelemetry,
        findings: &mut Vec<Finding>,
    ) -> Option<MetricsCollector> {
        let Endpoint { backend, host, port } = match (&to.endpoint, &to.backend_ref) {
            (Some(endpoint), _) => Endpoint::of_text(endpoint)?,
            (None, Some(reference)) => self.referred(reference, findings)?,
            // Validation does not let it in.
            (None, None) => return None,
        };
        let names = self.context.names.metrics_collector(&backend);
        let whose = format!("MeshMetric: the OpenTelemetry backend {backend:?}");
        self.is_new(&names, &whose, findings)?;
        Some(MetricsCollector {
            names,
            socket: socket::collector(self.work_dir, &backend),
            backend,
            host,
            port,
            interval: to.refresh_interval.map_or_else(|| INTERVAL.to_owned(), |every| every.to_string()),
            ipv6: self.context.traits.ipv6,
        })
    }

    /// Returns the endpoint of the MeshOpenTelemetryBackend that a policy refers to.
    fn referred(&self, reference: &BackendRef, findings: &mut Vec<Finding>) -> Option<Endpoint> {
        let found = self.context.snapshot.telemetry_backend(&reference.labels);
        let Some(backend) = found.and_then(|found| found.spec.get::<MeshOpenTelemetryBackend>()) else {
            let labels: Vec<String> =
                reference.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let text = format!(
                "MeshMetric: there is no MeshOpenTelemetryBackend with the labels {}; nothing is sent there",
                labels.join(", ")
            );
            findings.push((self.finding)(Code::UnknownBackend, text));
            return None;
        };
        let name = found.map(|found| found.key.name.to_string()).unwrap_or_default();
        if backend.speaks_http() {
            let text = format!(
                "MeshMetric: metrics are sent over gRPC, and MeshOpenTelemetryBackend {name:?} has the protocol http; \
                 nothing is sent there"
            );
            findings.push((self.finding)(Code::NoUsableBackend, text));
            return None;
        }
        let host = backend.address().unwrap_or(THIS_MACHINE).to_owned();
        Some(Endpoint { backend: name, host, port: backend.port() })
    }

    fn is_new(&mut self, names: &SystemNames, whose: &str, findings: &mut Vec<Finding>) -> Option<()> {
        if self.names.insert(names.listener.clone()) {
            return Some(());
        }
        findings.push((self.finding)(
            Code::NameConflict,
            format!(
                "{whose} has the name {} in Envoy, which another backend already has; the first one is used",
                names.listener
            ),
        ));
        None
    }
}

/// Address and name of a collector.
struct Endpoint {
    backend: String,
    host: String,
    port: u16,
}

impl Endpoint {
    fn of_text(endpoint: &str) -> Option<Endpoint> {
        let (host, port) = HostPort::with_port(endpoint)?;
        // The name is part of a socket's.
        let backend = endpoint.replace('/', "").replace(':', "-");
        Some(Endpoint { backend, host, port })
    }
}
