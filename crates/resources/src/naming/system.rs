//! `system_…`: names of objects a proxy needs for itself and no user asked for.
//!
//! One filter on the prefix hides all of them from dashboards.

use std::{fmt, str::FromStr};

use super::{Error, Kri, legacy};

pub const ADS: &str = "system_ads";
pub const ACCESS_LOG_SINK: &str = "system_access_log_sink";
pub const ENVOY_ADMIN: &str = "system_envoy_admin";
pub const READINESS: &str = "system_probe_readiness";
pub const DNS: &str = "system_dns";
pub const DYNAMIC_CONFIG: &str = "system_dynamicconfig";
pub const KUBE_API_SERVER_BYPASS: &str = "system_kube_api_server_bypass";
/// The listener that answers calls to destinations that permissions trimmed from the proxy.
pub const TRIMMED: &str = "system_trimmed_outbound";
pub const TRUST_BUNDLE: &str = "system_trust_bundle";
/// The beginning of what connections are counted under by server name.
pub const SNI: &str = "system_sni_";
pub const CA_OF_ALL_MESHES: &str = "system_mtls_ca_all_meshes";

/// The name of a page of metrics that was given none.
pub const DEFAULT_BACKEND: &str = "default-backend";

/// Tracing system that a MeshTrace sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    Zipkin,
    Datadog,
    OpenTelemetry,
}

pub fn ca(mesh: &str) -> String {
    format!("system_mtls_ca_{mesh}")
}

pub fn identity(mesh: &str) -> String {
    format!("system_mtls_identity_{mesh}")
}

/// The authorities that proxies of a mesh trust, for a proxy that acts in several.
pub fn trust_bundle(mesh: &str) -> String {
    format!("{TRUST_BUNDLE}_{mesh}")
}

/// Statistics prefix of connections that ask for a server name. No two server names share it: they are host
/// names, which have no `_`.
pub fn sni(server_name: &str) -> String {
    format!("{SNI}{}", legacy::sanitize_stat(&server_name.to_ascii_lowercase()))
}

/// The route that serves one part of the proxy's dynamic configuration, such as `dns`.
pub fn dynamic_config(part: &str) -> String {
    format!("{DYNAMIC_CONFIG}_{part}")
}

/// The route that answers when the asker's copy of that part is current.
pub fn dynamic_config_not_modified(part: &str) -> String {
    format!("{DYNAMIC_CONFIG}_{part}_not_modified")
}

pub fn prometheus(client: &str) -> String {
    format!("system_meshmetric_prometheus_{}", clean(client))
}

pub fn metrics_to_opentelemetry(backend: &str) -> String {
    format!("system_meshmetric_otel_{}", clean(backend))
}

/// `target` is the URL, the endpoint or the name of the backend.
pub fn tracing(system: Tracing, target: &str) -> String {
    let system = match system {
        Tracing::Zipkin => "zipkin",
        Tracing::Datadog => "datadog",
        Tracing::OpenTelemetry => "otel",
    };
    format!("system_meshtrace_{system}_{}", clean(target))
}

pub fn access_log(address: &str, port: u32) -> String {
    format!("system_meshaccesslog_{}-{port}", clean(address))
}

pub fn access_log_to_opentelemetry(backend: &str) -> String {
    format!("system_meshaccesslog_otel_{}", clean(backend))
}

/// Makes any text fit into a system name: every other character becomes `-`.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-')
}

/// A name with the prefix `system_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SystemName {
    /// The object exists because of one resource.
    Of(Kri),
    /// The part after the prefix.
    Plain(String),
}

impl fmt::Display for SystemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SystemName::Of(kri) => write!(f, "system_{kri}"),
            SystemName::Plain(rest) => write!(f, "system_{rest}"),
        }
    }
}

impl FromStr for SystemName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let rest = name.strip_prefix("system_").ok_or_else(|| Error::SystemName(name.to_owned()))?;
        if let Ok(kri) = rest.parse() {
            return Ok(SystemName::Of(kri));
        }
        // A dot is not among the characters of the rule, but meshes may have one in their name and
        // stand at the end of `system_mtls_ca_<mesh>`.
        if rest.chars().any(|c| !is_plain(c) && c != '.') || rest.is_empty() {
            return Err(Error::SystemName(name.to_owned()));
        }
        Ok(SystemName::Plain(rest.to_owned()))
    }
}
