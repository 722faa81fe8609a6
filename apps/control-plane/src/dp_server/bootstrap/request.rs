//! What an agent tells about itself when it asks for a bootstrap.

use std::{collections::BTreeMap, net::IpAddr};

use resources::format::universal;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The body of the request. It holds a token, so it cannot be printed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    #[serde(deserialize_with = "or_default")]
    pub mesh: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub proxy_type: String,
    #[serde(deserialize_with = "or_default")]
    pub dataplane_token: String,
    #[serde(deserialize_with = "or_default")]
    pub dataplane_token_path: String,
    #[serde(deserialize_with = "or_default")]
    pub dataplane_resource: String,
    #[serde(deserialize_with = "or_default")]
    pub version: Version,
    #[serde(deserialize_with = "or_default")]
    pub ca_cert: String,
    #[serde(deserialize_with = "or_default")]
    pub dynamic_metadata: BTreeMap<String, String>,
    pub otel_env: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub dns_port: u16,
    /// 0: the agent does not report readiness. Absent: it does so at the port of this control plane's settings.
    pub readiness_port: Option<u16>,
    /// Where it does so, if not beside the admin interface.
    pub readiness_address: Option<IpAddr>,
    /// The opposite of its name, as Kuma's agents send it.
    #[serde(deserialize_with = "or_default")]
    pub app_probe_proxy_disabled: bool,
    #[serde(deserialize_with = "or_default")]
    pub operating_system: String,
    #[serde(deserialize_with = "or_default")]
    pub features: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub resources: Limits,
    #[serde(deserialize_with = "or_default")]
    pub workdir: String,
    #[serde(deserialize_with = "or_default")]
    pub metrics_resources: MetricsFiles,
    #[serde(deserialize_with = "or_default")]
    pub system_ca_path: String,
    /// How traffic is redirected to the proxy.
    pub dataplane_config: Option<Value>,
    pub ipv6_enabled: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub spire_resources: SpireFiles,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            mesh: universal::DEFAULT_MESH.to_owned(),
            name: String::new(),
            proxy_type: String::new(),
            dataplane_token: String::new(),
            dataplane_token_path: String::new(),
            dataplane_resource: String::new(),
            version: Version::default(),
            ca_cert: String::new(),
            dynamic_metadata: BTreeMap::new(),
            otel_env: None,
            dns_port: 0,
            readiness_port: None,
            readiness_address: None,
            app_probe_proxy_disabled: false,
            operating_system: String::new(),
            features: Vec::new(),
            resources: Limits::default(),
            workdir: String::new(),
            metrics_resources: MetricsFiles::default(),
            system_ca_path: String::new(),
            dataplane_config: None,
            ipv6_enabled: None,
            spire_resources: SpireFiles::default(),
        }
    }
}

/// What the agent may use.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    pub max_heap_size_bytes: u64,
}

/// The certificate the agent serves metrics with.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsFiles {
    pub cert_path: String,
    pub key_path: String,
}

/// Where a SPIRE agent listens.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireFiles {
    pub socket_path: String,
}

/// Which programs run on the other side; empty fields are left out of the answer, as protobuf does.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    #[serde(skip_serializing_if = "Option::is_none")]
    kuma_dp: Option<AgentVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy: Option<EnvoyVersion>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    dependencies: BTreeMap<String, String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentVersion {
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    git_tag: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    git_commit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    build_date: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvoyVersion {
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    build: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kuma_dp_compatible: bool,
}

/// Agents written in Go send `null` for what is empty.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}
