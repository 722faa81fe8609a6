//! Messages between agents and control planes, at the port of the control plane's server for proxies.
//!
//! Those that hold a token cannot be printed.

use std::{collections::BTreeMap, net::IpAddr};

use resources::format::universal;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::signals::TrafficReport;

/// `POST /bootstrap`: a proxy, its machine and its programs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BootstrapRequest {
    #[serde(deserialize_with = "or_default")]
    pub mesh: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub proxy_type: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub dataplane_token: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub dataplane_token_path: String,
    /// The resource that describes the proxy, as YAML or JSON.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub dataplane_resource: String,
    #[serde(deserialize_with = "or_default")]
    pub version: ProgramVersions,
    #[serde(deserialize_with = "or_default")]
    pub ca_cert: String,
    #[serde(deserialize_with = "or_default")]
    pub dynamic_metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otel_env: Option<Value>,
    /// The port at which the agent answers names of the mesh; 0 where it does not.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_zero")]
    pub dns_port: u16,
    /// 0: the agent does not report readiness. Absent: it does so at the port of the control plane's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_port: Option<u16>,
    /// The address at which it does so, if not beside the admin interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_address: Option<IpAddr>,
    /// The opposite of its name, as Kuma's agents send it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "std::ops::Not::not")]
    pub app_probe_proxy_disabled: bool,
    #[serde(deserialize_with = "or_default")]
    pub operating_system: String,
    #[serde(deserialize_with = "or_default")]
    pub features: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub resources: ProxyLimits,
    #[serde(deserialize_with = "or_default")]
    pub workdir: String,
    #[serde(deserialize_with = "or_default")]
    pub metrics_resources: MetricsFiles,
    #[serde(deserialize_with = "or_default")]
    pub system_ca_path: String,
    /// Redirection of traffic to the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_enabled: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "SpireFiles::is_empty")]
    pub spire_resources: SpireFiles,
    /// Time for which Envoy keeps the connections of a listener that was replaced. Not in Kuma.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_time_seconds: Option<u32>,
}

impl Default for BootstrapRequest {
    fn default() -> Self {
        BootstrapRequest {
            mesh: universal::DEFAULT_MESH.to_owned(),
            name: String::new(),
            proxy_type: String::new(),
            dataplane_token: String::new(),
            dataplane_token_path: String::new(),
            dataplane_resource: String::new(),
            version: ProgramVersions::default(),
            ca_cert: String::new(),
            dynamic_metadata: BTreeMap::new(),
            otel_env: None,
            dns_port: 0,
            readiness_port: None,
            readiness_address: None,
            app_probe_proxy_disabled: false,
            operating_system: String::new(),
            features: Vec::new(),
            resources: ProxyLimits::default(),
            workdir: String::new(),
            metrics_resources: MetricsFiles::default(),
            system_ca_path: String::new(),
            dataplane_config: None,
            ipv6_enabled: None,
            spire_resources: SpireFiles::default(),
            drain_time_seconds: None,
        }
    }
}

/// Limits of a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyLimits {
    /// 0 for no limit.
    pub max_heap_size_bytes: u64,
}

/// The certificate that the agent serves metrics with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsFiles {
    pub cert_path: String,
    pub key_path: String,
}

/// The socket of a SPIRE agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireFiles {
    pub socket_path: String,
}

impl SpireFiles {
    fn is_empty(&self) -> bool {
        self.socket_path.is_empty()
    }
}

/// The programs beside a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProgramVersions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kuma_dp: Option<AgentVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envoy: Option<EnvoyVersion>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub dependencies: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentVersion {
    pub version: String,
    pub git_tag: String,
    pub git_commit: String,
    pub build_date: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyVersion {
    pub version: String,
    pub build: String,
    pub kuma_dp_compatible: bool,
}

/// The answer to a request for a bootstrap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapAnswer {
    /// Envoy's bootstrap configuration: YAML in base64.
    pub bootstrap: String,
    #[serde(default, deserialize_with = "or_default")]
    pub kuma_sidecar_configuration: SidecarConfiguration,
}

/// Configuration of the agent itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarConfiguration {
    #[serde(deserialize_with = "or_default")]
    pub networking: SidecarNetworking,
    #[serde(deserialize_with = "or_default")]
    pub metrics: SidecarMetrics,
}

/// Addresses and names of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarNetworking {
    /// In base64, for agents that run CoreDNS.
    pub corefile_template: Option<String>,
    /// The proxy's address.
    #[serde(deserialize_with = "or_default")]
    pub address: String,
}

/// Applications whose metrics the agent adds to those of the proxy, and labels of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarMetrics {
    #[serde(deserialize_with = "or_default")]
    pub aggregate: Vec<Value>,
    /// Labels that say whose metrics they are. Kuma has none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// `POST /drain`: a proxy is about to stop.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainRequest {
    /// Empty for zone proxies.
    pub mesh: String,
    pub name: String,
    #[serde(default)]
    pub dataplane_token: String,
}

/// `POST /observed`: calls of a proxy since its last report.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedReport {
    /// Empty for zone proxies.
    pub mesh: String,
    pub name: String,
    #[serde(default)]
    pub dataplane_token: String,
    /// Requests, or connections of TCP, by the name of the cluster in statistics.
    #[serde(default)]
    pub clusters: BTreeMap<String, u64>,
    /// Connections without TLS of the mesh, by the name of the inbound's listener in statistics.
    #[serde(default)]
    pub inbounds: BTreeMap<String, u64>,
    /// Traffic of all clusters; older agents send none.
    #[serde(default)]
    pub traffic: TrafficReport,
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// Agents written in Go send `null` for what is empty.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_in_go_may_send_null_and_fields_of_its_own() {
        let document = json!({
            "mesh": "default", "name": "web", "features": null, "version": null, "resources": null,
            "dynamicMetadata": null, "dataplaneToken": null, "ipv6Enabled": null, "isGateway": false,
        });
        let request: BootstrapRequest = serde_json::from_value(document).unwrap();
        assert_eq!((request.mesh.as_str(), request.name.as_str()), ("default", "web"));
        assert_eq!((request.features.len(), request.ipv6_enabled), (0, None));
    }

    #[test]
    fn what_an_agent_writes_is_what_a_control_plane_reads() {
        let request = BootstrapRequest {
            name: "web".to_owned(),
            readiness_port: Some(0),
            readiness_address: Some("10.0.0.1".parse().unwrap()),
            app_probe_proxy_disabled: true,
            version: ProgramVersions { envoy: Some(EnvoyVersion::default()), ..ProgramVersions::default() },
            ..BootstrapRequest::default()
        };
        let written = serde_json::to_value(&request).unwrap();
        for absent in
            ["dataplaneToken", "dataplaneTokenPath", "dataplaneResource", "dnsPort", "dataplaneConfig"]
        {
            assert!(written.get(absent).is_none(), "{absent}: {written}");
        }
        assert_eq!(written["version"]["envoy"]["kumaDpCompatible"], false);
        let read: BootstrapRequest = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), written);
    }
}
