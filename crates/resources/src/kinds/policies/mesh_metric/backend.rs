//! Backend of metrics: a scraper of the proxy, or a collector that receives them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PATH, checks, open_enum};
use crate::{
    Path, Violations,
    duration::GoDuration,
    kinds::{host_port::HostPort, mesh_open_telemetry_backend::BackendRef},
};

const PORT: u32 = 5670;

pub(super) const ENDPOINT_DEPRECATED: &str = "openTelemetry.endpoint is deprecated, use openTelemetry.backendRef \
     with a MeshOpenTelemetryBackend resource instead";

/// One way out of the proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Backend {
    /// Type of the receiver; the field of this name has the settings.
    #[serde(rename = "type")]
    pub kind: BackendType,
    /// Settings of type `Prometheus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// Settings of type `OpenTelemetry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetry>,
}

open_enum! {
    /// Type of a receiver: `Prometheus` fetches metrics, `OpenTelemetry` is sent them.
    BackendType { Prometheus = "Prometheus", OpenTelemetry = "OpenTelemetry" }
}

/// A page of metrics at the proxy's address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Prometheus {
    /// Tells several pages apart, and who scrapes which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The port of the page; 5670 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// The path of the page; `/metrics` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// TLS of the page; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// TLS of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// Source of the page's certificate; `Disabled` by default.
    #[serde(skip_serializing_if = "TlsMode::is_absent")]
    pub mode: TlsMode,
}

open_enum! {
    /// Source of the page's certificate.
    TlsMode {
        Disabled = "Disabled",
        /// That of the files which the agent was started with.
        ProvidedTls = "ProvidedTLS",
        /// That of the mesh.
        ActiveMtlsBackend = "ActiveMTLSBackend",
    }
}

/// A collector that metrics are sent to; exactly one of `endpoint` and `backendRef` says which.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetry {
    /// The collector's address as `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The MeshOpenTelemetryBackend that describes the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendRef>,
    /// The time between two transmissions; 1m by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_interval: Option<GoDuration>,
}

impl Backend {
    pub(super) fn apply_defaults(&mut self) {
        let Some(prometheus) = &mut self.prometheus else { return };
        prometheus.port.get_or_insert(PORT);
        prometheus.path.get_or_insert_with(|| PATH.to_owned());
        if let Some(tls) = &mut prometheus.tls
            && tls.mode.is_absent()
        {
            tls.mode = TlsMode::Disabled;
        }
    }

    pub(super) fn has_endpoint(&self) -> bool {
        self.open_telemetry.as_ref().is_some_and(|collector| collector.endpoint.is_some())
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        match &self.kind {
            BackendType::Prometheus => match &self.prometheus {
                Some(prometheus) => checks::port(prometheus.port(), &path.field("port"), found),
                None => found.add(path.field("prometheus"), checks::MUST_BE_DEFINED),
            },
            BackendType::OpenTelemetry => match &self.open_telemetry {
                Some(collector) => collector.validate(&path.field("openTelemetry"), found),
                None => found.add(path.field("openTelemetry"), checks::MUST_BE_DEFINED),
            },
            BackendType::Other(_) => found.add(path, "unrecognized type"),
        }
    }
}

impl Prometheus {
    pub fn port(&self) -> u32 {
        self.port.unwrap_or(PORT)
    }

    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(PATH)
    }
}

impl OpenTelemetry {
    fn validate(&self, path: &Path, found: &mut Violations) {
        match (&self.endpoint, &self.backend_ref) {
            (Some(endpoint), None) => {
                if let Some(message) = complaint_about_endpoint(endpoint) {
                    found.add(path.field("endpoint"), message);
                }
            }
            (None, Some(reference)) => {
                let path = path.field("backendRef");
                checks::known(&reference.kind, &path, "kind", found);
                let named = !reference.labels.is_empty();
                found.require(named, path, "backendRef must have exactly one defined: labels");
            }
            (Some(_), Some(_)) => {
                found.add(path, "openTelemetry must have only one type defined: endpoint, backendRef");
            }
            (None, None) => {
                found.add(path, "openTelemetry must have exactly one defined: endpoint, backendRef");
            }
        }
        checks::positive_duration(self.refresh_interval, &path.field("refreshInterval"), found);
    }
}

fn complaint_about_endpoint(endpoint: &str) -> Option<&'static str> {
    if endpoint.contains("://") {
        return Some("must be in host:port format, not a URL");
    }
    HostPort::with_port(endpoint).is_none().then_some("must be in host:port format")
}
