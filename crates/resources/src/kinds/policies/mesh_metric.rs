//! Metrics that a proxy serves: their sources and their backends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::kinds::{
    checks,
    mesh_open_telemetry_backend::Conditions,
    open_enum::open_enum,
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    Path, Schema, Subject, Violations,
    policy::{MESH_METRIC, Policy},
};

mod backend;
pub mod profile;

pub use backend::{Backend, BackendType, OpenTelemetry, Prometheus, Tls, TlsMode};
pub use profile::{ProfileName, ProfileSelector, Profiles, SelectorType};

/// The path of an application's metrics, and of a proxy's.
const PATH: &str = "/metrics";

/// Metrics of the selected proxies and of the applications beside them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshMetric {
    /// The proxies whose metrics are offered; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Metrics to offer, and their backends.
    pub default: Conf,
}

/// Metrics and their backends; without a backend nothing happens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Selection of Envoy's own metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// Applications whose metrics are offered together with Envoy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<Application>>,
    /// Receivers of the metrics; without one the policy has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<Backend>>,
}

/// Selection of Envoy's own metrics.
// The agent is sent this very object: the order of its fields is part of a checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Sidecar {
    /// Metrics to offer; those of the profile `Basic` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Profiles>,
    /// Offer metrics that Envoy has not updated yet too; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_unused: Option<bool>,
}

/// An application whose metrics are read together with Envoy's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["port"]))]
pub struct Application {
    /// A name that tells applications apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path of the application's metrics; `/metrics` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The application's address; that of the proxy by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The port of the application's metrics.
    pub port: u32,
}

impl Conf {
    pub fn backends(&self) -> &[Backend] {
        self.backends.as_deref().unwrap_or_default()
    }

    pub fn applications(&self) -> &[Application] {
        self.applications.as_deref().unwrap_or_default()
    }

    pub fn profiles(&self) -> Option<&Profiles> {
        self.sidecar.as_ref()?.profiles.as_ref()
    }
}

impl Policy for MeshMetric {
    type To = IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshMetric {
    type Status = Conditions;

    fn apply_defaults(&mut self) {
        if let Some(sidecar) = &mut self.default.sidecar {
            sidecar.include_unused.get_or_insert(false);
        }
        for application in self.default.applications.iter_mut().flatten() {
            application.path.get_or_insert_with(|| PATH.to_owned());
        }
        self.default.backends.iter_mut().flatten().for_each(Backend::apply_defaults);
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        target_ref::validate_top(self.target_ref.as_ref(), Allowed::by_role(subject, MESH_METRIC), found);
        let path = Path::new("spec").field("default");
        if let Some(profiles) = self.default.profiles() {
            profiles.validate(&path.field("sidecar").field("profiles"), found);
        }
        // The paths of Kuma's messages name the entries of both lists once more.
        let applications = path.field("applications").field("application");
        for (i, application) in self.default.applications().iter().enumerate() {
            checks::port(application.port, &applications.index(i), found);
        }
        let backends = path.field("backends").field("backend");
        for (i, backend) in self.default.backends().iter().enumerate() {
            backend.validate(&backends.index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let inline = self.default.backends().iter().any(Backend::has_endpoint);
        let deprecated = inline.then(|| backend::ENDPOINT_DEPRECATED.to_owned());
        let of_target = target_ref::top_level_warnings(self.target_ref.as_ref());
        deprecated.into_iter().chain(of_target).collect()
    }
}

#[cfg(test)]
mod tests;
