//! ExternalService and ProxyTemplate.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{TagValues, said};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExternalService {
    pub tags: TagValues,
    pub networking: ExternalNetworking,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExternalNetworking {
    pub address: String,
    pub tls: ExternalTls,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalTls {
    pub enabled: bool,
    pub allow_renegotiation: bool,
    pub skip_hostname_verification: bool,
    pub server_name: Option<Value>,
    #[serde(deserialize_with = "said")]
    pub ca_cert: Option<DataSource>,
    #[serde(deserialize_with = "said")]
    pub client_cert: Option<DataSource>,
    #[serde(deserialize_with = "said")]
    pub client_key: Option<DataSource>,
}

/// A secret by name, or the bytes themselves; the same in a MeshExternalService.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    pub secret: Option<Value>,
    pub inline: Option<Value>,
    pub inline_string: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateConf {
    pub resources: Option<Value>,
    /// Changes by the part of a configuration that they are about.
    pub modifications: Vec<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Modification {
    #[serde(rename = "match")]
    pub matched: Option<Value>,
    pub value: Option<Value>,
    pub operation: String,
}
