//! Names of proxy objects from before KRIs and `self_…`, still given to proxies that did not ask for
//! the new ones and still found in patches and dashboards.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use super::{Direction, IpVersion, Kri, KriFields, ShortName, is_hash, self_name::PASSTHROUGHS, system};
use crate::labels;

/// Old fixed names and the `system_…` names that replace them.
pub const RENAMED: &[(&str, &str)] = &[
    ("ads_cluster", system::ADS),
    ("access_log_sink", system::ACCESS_LOG_SINK),
    ("kuma:envoy:admin", system::ENVOY_ADMIN),
    ("kuma:readiness", system::READINESS),
    ("kuma:dns", system::DNS),
    ("_kuma:dynamicconfig", system::DYNAMIC_CONFIG),
    ("plugins:bootstrap:k8s:hooks:apiServerBypass", system::KUBE_API_SERVER_BYPASS),
    ("mesh_ca:secret:all", system::CA_OF_ALL_MESHES),
    (TRIMMED, system::TRIMMED),
];

const ACCESS_LOG: &str = "meshaccesslog:opentelemetry:";
const TRACINGS: [system::Tracing; 3] =
    [system::Tracing::Zipkin, system::Tracing::Datadog, system::Tracing::OpenTelemetry];

/// The cluster of the agent's metrics, which all pages of a MeshMetric share.
pub const METRICS: &str = "_kuma:metrics:hijacker";

/// Makes the `system_…` name of what follows an old beginning.
type Renaming = fn(&str) -> String;

/// Old beginnings of names that policies make, and what makes the `system_…` name of the rest.
const OF_POLICIES: &[(&str, Renaming)] = &[
    ("_kuma:dynamicconfig:/", system::dynamic_config),
    ("_kuma:metrics:prometheus:", system::prometheus),
    ("_kuma:metrics:opentelemetry:", system::metrics_to_opentelemetry),
];

/// Object that an old name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LegacyName {
    /// `inbound:<ip>:<port>`: listener of an inbound.
    Inbound { address: String, port: u16 },
    /// `outbound:<vip>:<port>`: listener of an outbound.
    Outbound { address: String, port: u16 },
    /// `localhost:<port>`: cluster of the workload behind an inbound.
    Workload { port: u16 },
    /// `<direction>:passthrough:<ip version>`: listener and cluster.
    Passthrough(IpVersion, Direction),
    /// `<mesh>_<name>_<namespace>_<zone>_<short>_<port>`: a port of a destination, as section of its KRI.
    Destination(Kri),
    /// `<service>-<hash>`: the part of a service that some tags select.
    Subset { service: String },
    /// A fixed name, with the one that replaces it.
    Renamed(&'static str),
    /// A name that begins like others of its policy, with the one that replaces it.
    OfPolicy(String),
    /// `mesh_ca:secret:<mesh>` and `identity_cert:secret:<mesh>`: what mTLS in a mesh needs.
    Secret { mesh: String },
    /// `meshaccesslog:opentelemetry:<index>`: cluster of a collector of logs.
    AccessLog { index: u16 },
    /// `meshtrace:<system>`: cluster of a collector of spans.
    Tracing(system::Tracing),
    /// `<ip>_<port>`: how statistics call a listener that has no name of its own there.
    Listening { address: String, port: u16 },
}

impl LegacyName {
    pub fn parse(name: &str) -> Option<LegacyName> {
        if let Some((_, unified)) = RENAMED.iter().find(|(old, _)| *old == name) {
            return Some(LegacyName::Renamed(unified));
        }
        if let Some(unified) = of_policy(name, str::to_owned) {
            return Some(LegacyName::OfPolicy(unified));
        }
        let pass = |&(ip, direction): &(IpVersion, Direction)| passthrough(ip, direction) == name;
        if let Some((ip, direction)) = PASSTHROUGHS.into_iter().find(pass) {
            return Some(LegacyName::Passthrough(ip, direction));
        }
        if let Some(index) = name.strip_prefix(ACCESS_LOG) {
            return Some(LegacyName::AccessLog { index: index.parse().ok()? });
        }
        if let Some(system) = TRACINGS.into_iter().find(|system| tracing(*system) == name) {
            return Some(LegacyName::Tracing(system));
        }
        let secret = ["mesh_ca:secret:", "identity_cert:secret:"];
        if let Some(mesh) = secret.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            return Some(LegacyName::Secret { mesh: mesh.to_owned() });
        }
        if let Some(rest) = name.strip_prefix("inbound:") {
            let (address, port) = split_address(rest)?;
            return Some(LegacyName::Inbound { address, port });
        }
        if let Some(rest) = name.strip_prefix("outbound:") {
            let (address, port) = split_address(rest)?;
            return Some(LegacyName::Outbound { address, port });
        }
        if let Some(port) = name.strip_prefix("localhost:") {
            return Some(LegacyName::Workload { port: parse_port(port)? });
        }
        if let Some(kri) = parse_destination(name) {
            return Some(LegacyName::Destination(kri));
        }
        let service = service_of_cluster(name);
        (service != name).then(|| LegacyName::Subset { service: service.to_owned() })
    }

    /// Reads an old name as statistics spell it, where [`sanitize_stat`] has been at most of them.
    pub fn parse_stat(name: &str) -> Option<LegacyName> {
        if let Some(parsed) = LegacyName::parse(name) {
            return Some(parsed);
        }
        if let Some((_, unified)) = RENAMED.iter().find(|(old, _)| sanitize_stat(old) == name) {
            return Some(LegacyName::Renamed(unified));
        }
        if let Some(unified) = of_policy(name, sanitize_stat) {
            return Some(LegacyName::OfPolicy(unified));
        }
        let pass =
            |&(ip, direction): &(IpVersion, Direction)| sanitize_stat(&passthrough(ip, direction)) == name;
        if let Some((ip, direction)) = PASSTHROUGHS.into_iter().find(pass) {
            return Some(LegacyName::Passthrough(ip, direction));
        }
        if let Some(index) = name.strip_prefix(&sanitize_stat(ACCESS_LOG)) {
            return Some(LegacyName::AccessLog { index: index.parse().ok()? });
        }
        if let Some(system) = TRACINGS.into_iter().find(|system| sanitize_stat(&tracing(*system)) == name) {
            return Some(LegacyName::Tracing(system));
        }
        if let Some(port) = name.strip_prefix("localhost_") {
            return Some(LegacyName::Workload { port: parse_port(port)? });
        }
        if let Some(rest) = name.strip_prefix("inbound_") {
            let (address, port) = split_sanitized_address(rest)?;
            return Some(LegacyName::Inbound { address, port });
        }
        let (address, port) = name.rsplit_once('_')?;
        let (address, port) = split_address(&format!("{}:{port}", address.replace('_', ":")))?;
        Some(LegacyName::Listening { address, port })
    }
}

pub fn inbound_listener(address: &str, port: u32) -> String {
    format!("inbound:{}:{port}", bracketed(address))
}

pub fn outbound_listener(vip: &str, port: u32) -> String {
    format!("outbound:{}:{port}", bracketed(vip))
}

/// The cluster of the workload behind an inbound.
pub fn inbound_cluster(service_port: u32) -> String {
    format!("localhost:{service_port}")
}

/// The listener that answers calls to destinations that permissions trimmed from the proxy.
pub const TRIMMED: &str = "outbound:trimmed";

pub fn passthrough(ip: IpVersion, direction: Direction) -> String {
    format!("{}:passthrough:{}", direction.as_str(), ip.as_str())
}

/// The cluster of a collector of logs, by its place among those of the proxy.
pub fn access_log(index: usize) -> String {
    format!("{ACCESS_LOG}{index}")
}

/// The cluster of the collector of spans.
pub fn tracing(system: system::Tracing) -> String {
    let system = match system {
        system::Tracing::Zipkin => "zipkin",
        system::Tracing::Datadog => "datadog",
        system::Tracing::OpenTelemetry => "opentelemetry",
    };
    format!("meshtrace:{system}")
}

/// Names what MeshPassthrough lets through: a filter chain and a cluster. Both schemes use this name. Hosts
/// that requests ask for share the filter chain of their port, which has no value.
pub fn passthrough_match(protocol: &str, value: Option<&str>, port: Option<u16>) -> String {
    let port = port.map_or("*".to_owned(), |port| port.to_string());
    match value {
        Some(value) => format!("meshpassthrough_{protocol}_{value}_{port}"),
        None => format!("meshpassthrough_{protocol}_{port}"),
    }
}

/// The name of a destination's port; the KRI's section is not looked at.
pub fn destination(kri: &Kri, port: u32) -> String {
    let KriFields { short, mesh, zone, namespace, name, .. } = &**kri;
    format!("{mesh}_{name}_{namespace}_{zone}_{short}_{port}")
}

/// The cluster of the endpoints of a service that carry all tags.
///
/// `identifying` are further tags that keep clusters apart without selecting endpoints.
pub fn subset_cluster(tags: &BTreeMap<String, String>, identifying: &BTreeMap<String, String>) -> String {
    let service = tags.get(labels::SERVICE).map_or("", String::as_str);
    let only_service = tags.keys().all(|key| key == labels::SERVICE);
    if only_service && identifying.is_empty() {
        return service.to_owned();
    }
    let mut digest = Sha256::new();
    for (key, value) in tags.iter().chain(identifying) {
        digest.update(key);
        digest.update(value);
    }
    let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{service}-{hex}")
}

/// The listener of one page of metrics.
pub fn prometheus(client: &str) -> String {
    format!("_kuma:metrics:prometheus:{client}")
}

/// Listener and cluster of what sends metrics to a collector.
pub fn metrics_to_opentelemetry(backend: &str) -> String {
    format!("_kuma:metrics:opentelemetry:{backend}")
}

/// The route that hands a part of its configuration to the agent.
pub fn dynamic_config(path: &str) -> String {
    format!("_kuma:dynamicconfig:{path}")
}

/// The service a cluster belongs to: its name without the hash of a subset.
pub fn service_of_cluster(cluster: &str) -> &str {
    match cluster.rsplit_once('-') {
        Some((service, hash)) if is_hash(hash) => service,
        _ => cluster,
    }
}

/// The name of a route, from the JSON of what it matches.
pub fn route_of_matches(matches_json: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(matches_json))
}

/// Makes a name fit into a statistic: every character outside `A-Za-z0-9_-` becomes `_`.
pub fn sanitize_stat(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// The name that replaces one which a policy makes; `spelled` is how its beginning looks.
fn of_policy(name: &str, spelled: impl Fn(&str) -> String) -> Option<String> {
    if name == spelled(METRICS) {
        return Some(system::prometheus(system::DEFAULT_BACKEND));
    }
    OF_POLICIES.iter().find_map(|(begin, unified)| Some(unified(name.strip_prefix(&spelled(begin))?)))
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

fn split_address(text: &str) -> Option<(String, u16)> {
    let (address, port) = text.rsplit_once(':')?;
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(v6) if v6.parse::<std::net::Ipv6Addr>().is_ok() => v6,
        None if address.parse::<std::net::Ipv4Addr>().is_ok() => address,
        _ => return None,
    };
    Some((address.to_owned(), parse_port(port)?))
}

/// Reads `10_0_0_1_80` and `___1__80`, which were `10.0.0.1:80` and `[::1]:80`.
fn split_sanitized_address(text: &str) -> Option<(String, u16)> {
    let (address, port) = text.rsplit_once('_')?;
    let brackets = address.strip_prefix('_').and_then(|rest| rest.strip_suffix('_'));
    match brackets {
        Some(v6) => split_address(&format!("[{}]:{port}", v6.replace('_', ":"))),
        None => split_address(&format!("{}:{port}", address.replace('_', "."))),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse::<u16>().ok().filter(|port| port.to_string() == text)
}

fn parse_destination(name: &str) -> Option<Kri> {
    let fields: Vec<&str> = name.split('_').collect();
    let &[mesh, display_name, namespace, zone, short, port] = fields.as_slice() else {
        return None;
    };
    let short: ShortName = short.parse().ok()?;
    if !super::sni::is_destination(short) || mesh.is_empty() || display_name.is_empty() {
        return None;
    }
    Some(Kri::from(KriFields {
        short,
        mesh: mesh.to_owned(),
        zone: zone.to_owned(),
        namespace: namespace.to_owned(),
        name: display_name.to_owned(),
        section: parse_port(port)?.to_string(),
    }))
}
