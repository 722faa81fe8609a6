//! Collectors of logs and traces, and the identity of their senders.

use std::sync::Arc;

use resources::{
    Kind, Labels, Resource,
    kinds::{
        dataplane::Dataplane,
        host_port::{HostPort, Url},
        mesh_access_log::{self, MeshAccessLog, format},
        mesh_open_telemetry_backend::{BackendRef, DEFAULT_PORT, MeshOpenTelemetryBackend},
        mesh_trace::MeshTrace,
    },
    labels,
    naming::{Kri, KriFields, ShortName, socket},
};
use topology::MeshSnapshot;

use crate::{Applying, Code, ExternalAuthorities, ExternalTls, ProxyTraits, San};

/// The name in logs of a client or service that is not known.
pub(crate) const UNKNOWN: &str = "unknown";
/// The machine of the proxy, for collectors without an address.
const THIS_MACHINE: &str = "127.0.0.1";
const HTTPS: u16 = 443;

/// Identity of a proxy in logs and traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reporter {
    pub zone: String,
    /// The service of its application.
    pub service: String,
    /// The KRI of its workload; empty where no label names one.
    pub workload: String,
    pub address: String,
    /// Pipe for records to log servers; empty if the agent did not send its work directory.
    pub pipe: String,
}

/// Fields of a [`Reporter`] that policies use.
#[derive(Debug, Default)]
struct Uses {
    service: bool,
    workload: bool,
    address: bool,
    pipe: bool,
}

impl Reporter {
    pub(crate) fn of(traits: &ProxyTraits, dataplane: &Resource) -> Reporter {
        let label = |name: &str| dataplane.label(name).unwrap_or_default();
        let spec = dataplane.spec.get::<Dataplane>();
        let inbounds = spec.into_iter().flat_map(Dataplane::inbounds).map(|inbound| &inbound.tags);
        let gateway = spec.and_then(Dataplane::gateway).map(|gateway| &gateway.tags);
        let service = inbounds.chain(gateway).find_map(|tags| tags.get(labels::SERVICE)).map(String::as_str);
        let workload = label(labels::WORKLOAD);
        let named = service.or_else(|| Some(workload).filter(|workload| !workload.is_empty()));
        let networking = spec.and_then(|spec| spec.networking.as_ref());
        let pipe = || socket::access_log(&traits.work_dir, &traits.name, &traits.mesh);
        Reporter {
            zone: label(labels::ZONE).to_owned(),
            service: named.unwrap_or(UNKNOWN).to_owned(),
            workload: workload_kri(dataplane, workload).unwrap_or_default(),
            address: networking.map(|networking| networking.address.clone()).unwrap_or_default(),
            pipe: if traits.work_dir.is_empty() { String::new() } else { pipe() },
        }
    }

    /// As far as policies about calls speak of the proxy; `None` where none does, so that as many proxies as
    /// possible share a class.
    pub(crate) fn in_calls(
        traits: &ProxyTraits,
        dataplane: &Resource,
        applying: &Applying,
    ) -> Option<Arc<Reporter>> {
        let uses = Uses::of(applying)?;
        let mut reporter = Reporter::of(traits, dataplane);
        for (used, field) in [
            (uses.service, &mut reporter.service),
            (uses.workload, &mut reporter.workload),
            (uses.address, &mut reporter.address),
            (uses.pipe, &mut reporter.pipe),
        ] {
            if !used {
                field.clear();
            }
        }
        Some(Arc::new(reporter))
    }
}

fn workload_kri(dataplane: &Resource, workload: &str) -> Option<String> {
    let label = |name: &str| dataplane.label(name).unwrap_or_default().to_owned();
    let short: ShortName = Some("wl").filter(|_| !workload.is_empty())?.parse().ok()?;
    let kri = Kri::from(KriFields {
        short,
        mesh: dataplane.mesh().to_owned(),
        zone: label(labels::ZONE),
        namespace: label(labels::K8S_NAMESPACE),
        name: workload.to_owned(),
        section: String::new(),
    });
    Some(kri.to_string())
}

impl Uses {
    /// `None` where no policy is about logs or traces of calls.
    fn of(applying: &Applying) -> Option<Uses> {
        let logs = applying.of_kind(Kind::MeshAccessLog);
        let traces = applying.of_kind(Kind::MeshTrace);
        if logs.is_empty() && traces.is_empty() {
            return None;
        }
        let mut uses = Uses::default();
        let entries = logs.iter().filter_map(|policy| policy.resource.spec.get::<MeshAccessLog>());
        for entry in entries.flat_map(|policy| &policy.to) {
            entry.default.backends.iter().flatten().for_each(|backend| uses.add(backend));
        }
        let traced = traces.iter().filter_map(|policy| policy.resource.spec.get::<MeshTrace>());
        for backend in traced.flat_map(|policy| policy.default.backends.iter().flatten()) {
            uses.workload = true;
            // Envoy tells Zipkin the service that its bootstrap names.
            uses.service |= backend.zipkin.is_none();
        }
        Some(uses)
    }

    fn add(&mut self, backend: &mesh_access_log::Backend) {
        self.pipe |= backend.tcp.is_some();
        self.workload |= backend.open_telemetry.is_some();
        let texts = backend.texts();
        // The usual format names service and address.
        self.service |= texts.is_none();
        self.address |= texts.is_none();
        for name in texts.iter().flatten().flat_map(|text| format::placeholders(text)) {
            match name {
                "KUMA_SOURCE_SERVICE" => self.service = true,
                "KUMA_SOURCE_ADDRESS" | "KUMA_SOURCE_ADDRESS_WITHOUT_PORT" => self.address = true,
                "KUMA_WORKLOAD" => self.workload = true,
                _ => {}
            }
        }
    }
}

/// A server that takes logs or spans: a cluster of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collector {
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub host: String,
    pub port: u16,
    /// It speaks HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    pub tls: Option<ExternalTls>,
    pub ipv6: bool,
}

/// Reason why telemetry cannot be sent.
pub(crate) type Unavailable = (Code, String);

/// A collector as a policy means it, the same for all proxies of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectorAddress {
    /// Name of the collector: the URL, the endpoint, or the name of the MeshOpenTelemetryBackend.
    pub name: String,
    /// `None` for one on the machine of each proxy.
    pub host: Option<String>,
    pub port: u16,
    pub http2: bool,
    pub tls: Option<ExternalTls>,
    /// URL for records of OpenTelemetry that are not sent over gRPC.
    pub url: Option<String>,
}

impl CollectorAddress {
    /// The collector of OpenTelemetry that a backend of a policy names, for a signal such as `v1/logs`.
    pub(crate) fn of_opentelemetry(
        snapshot: &MeshSnapshot,
        (endpoint, reference): (Option<&str>, Option<&BackendRef>),
        signal: &str,
        system_ca_path: Option<&str>,
    ) -> Result<CollectorAddress, Unavailable> {
        match (endpoint, reference) {
            (_, Some(reference)) => {
                CollectorAddress::referred(snapshot, &reference.labels, signal, system_ca_path)
            }
            (Some(endpoint), None) => CollectorAddress::inline(endpoint, signal, system_ca_path),
            (None, None) => {
                Err((Code::UnknownCollector, "it has neither an endpoint nor a backendRef".to_owned()))
            }
        }
    }

    /// A collector that is named by a URL.
    pub(crate) fn of_url(
        text: &str,
        url: &Url,
        system_ca_path: Option<&str>,
    ) -> Result<CollectorAddress, Unavailable> {
        let host = url.at.host.clone();
        let tls = url.secure.then(|| originate(&host, system_ca_path)).transpose()?;
        let name = text.to_owned();
        let port = url.port();
        Ok(CollectorAddress { name, host: Some(host), port, http2: false, tls, url: None })
    }

    fn inline(
        endpoint: &str,
        signal: &str,
        system_ca_path: Option<&str>,
    ) -> Result<CollectorAddress, Unavailable> {
        if let Some(url) = Url::parse(endpoint) {
            let path = match url.path.as_str() {
                "" | "/" => format!("/{signal}"),
                path => path.to_owned(),
            };
            let sent_to = http_url(url.secure, &url.at.host, url.port(), &path);
            return Ok(CollectorAddress {
                url: Some(sent_to),
                ..CollectorAddress::of_url(endpoint, &url, system_ca_path)?
            });
        }
        let Some(HostPort { host, port }) = HostPort::parse(endpoint) else {
            let text = format!("its endpoint {endpoint:?} is neither host:port nor a URL");
            return Err((Code::UnusableCollector, text));
        };
        let name = endpoint.to_owned();
        let port = port.unwrap_or(DEFAULT_PORT);
        Ok(CollectorAddress { name, host: Some(host), port, http2: true, tls: None, url: None })
    }

    fn referred(
        snapshot: &MeshSnapshot,
        labels: &Labels,
        signal: &str,
        system_ca_path: Option<&str>,
    ) -> Result<CollectorAddress, Unavailable> {
        let found = snapshot.telemetry_backend(labels);
        let spec = found.and_then(|found| Some((found, found.spec.get::<MeshOpenTelemetryBackend>()?)));
        let Some((found, spec)) = spec else {
            let text = format!("there is no MeshOpenTelemetryBackend with the labels {labels:?} in the mesh");
            return Err((Code::UnknownCollector, text));
        };
        let host = spec.address();
        let port = spec.port();
        let http = spec.speaks_http();
        let secure = http && port == HTTPS;
        // The proxy's own machine is called the same by all proxies.
        let called = host.unwrap_or(THIS_MACHINE);
        Ok(CollectorAddress {
            name: found.display_name().to_owned(),
            host: host.map(str::to_owned),
            port,
            http2: !http,
            tls: secure.then(|| originate(called, system_ca_path)).transpose()?,
            url: http.then(|| http_url(secure, called, port, &spec.path(signal))),
        })
    }

    /// The cluster that leads there.
    pub(crate) fn collector(self, cluster: (String, Option<String>), traits: &ProxyTraits) -> Collector {
        let own = || traits.host_ip.map_or_else(|| THIS_MACHINE.to_owned(), |ip| ip.to_string());
        let (cluster, cluster_stats) = cluster;
        Collector {
            cluster,
            cluster_stats,
            host: self.host.unwrap_or_else(own),
            port: self.port,
            http2: self.http2,
            tls: self.tls,
            ipv6: traits.ipv6,
        }
    }
}

fn http_url(secure: bool, host: &str, port: u16, path: &str) -> String {
    let scheme = if secure { "https" } else { "http" };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{scheme}://{host}:{port}{path}")
}

/// TLS with a collector, whose certificate is verified by the authorities of the proxy's machine.
fn originate(host: &str, system_ca_path: Option<&str>) -> Result<ExternalTls, Unavailable> {
    let Some(authorities) = system_ca_path else {
        let text = "its certificate cannot be verified: the proxy found no authorities on its machine";
        return Err((Code::UnusableCollector, text.to_owned()));
    };
    let is_ip = host.parse::<std::net::IpAddr>().is_ok();
    Ok(ExternalTls {
        server_name: (!is_ip).then(|| host.to_owned()),
        names: vec![if is_ip { San::Ip(host.to_owned()) } else { San::Dns(host.to_owned()) }],
        authorities: ExternalAuthorities::File(authorities.to_owned()),
        client: None,
        min: None,
        max: None,
        allow_renegotiation: true,
    })
}
