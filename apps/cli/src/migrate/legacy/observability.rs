//! TrafficLog and TrafficTrace, and their backends in a Mesh.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Partly;

/// `conf` of either policy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObservedBy {
    pub backend: String,
}

/// The parts of a Mesh that hold backends.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MeshBackends {
    pub logging: BackendSection,
    pub tracing: BackendSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendSection {
    pub default_backend: String,
    pub backends: Vec<Partly<LegacyBackend>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LegacyBackend {
    pub name: Value,
    pub r#type: Value,
    pub format: String,
    pub sampling: Option<Value>,
    /// Its fields depend on the type.
    pub conf: Value,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct FileBackend {
    pub path: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TcpBackend {
    pub address: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZipkinBackend {
    pub url: Option<Value>,
    #[serde(rename = "traceId128bit")]
    pub trace_id_128bit: Option<Value>,
    pub api_version: Option<Value>,
    pub shared_span_context: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatadogBackend {
    pub split_service: Option<Value>,
    #[serde(skip_serializing)]
    pub address: String,
    #[serde(skip_serializing)]
    pub port: Value,
}
