//! Counts over everything in a mesh.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::proto::{is_default, number},
};

/// The observed state of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshInsight {
    /// All proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<DataplaneStat>,
    /// Policies, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, Total>,
    /// Proxies, by the versions of their programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_versions: Option<DpVersions>,
    /// Proxies, by certificate authority.
    #[serde(rename = "mTLS", skip_serializing_if = "Option::is_none")]
    pub mtls: Option<BackendStats>,
    /// Services, by where they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceStat>,
    /// Proxies, by what they are for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes_by_type: Option<DataplanesByType>,
    /// Resources, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Total>,
}

/// Number of proxies, in total and by health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneStat {
    /// All of them.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
    /// Connected, and all inbounds are ready.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub online: u32,
    /// Not connected, or no inbound is ready.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub offline: u32,
    /// Connected, and some inbounds are not ready.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub partially_degraded: u32,
}

/// Number of resources of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Total {
    /// The number of resources.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
}

/// Proxies by the versions of their programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DpVersions {
    /// Proxies, by the version of kuma-dp.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kuma_dp: BTreeMap<String, DataplaneStat>,
    /// Proxies, by the version of Envoy.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub envoy: BTreeMap<String, DataplaneStat>,
}

/// Proxies by the certificate authorities they use and trust.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendStats {
    /// Proxies, by the authority that signed their certificate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub issued_backends: BTreeMap<String, DataplaneStat>,
    /// Proxies, by the authorities that they trust.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub supported_backends: BTreeMap<String, DataplaneStat>,
}

/// Services by where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStat {
    /// All services.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
    /// Services of proxies of the mesh.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub internal: u32,
    /// Services outside the mesh.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub external: u32,
}

/// Proxies by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplanesByType {
    /// Sidecars of applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<DataplaneStat>,
    /// Gateways of both types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<DataplaneStat>,
    /// Gateways of type `BUILTIN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_builtin: Option<DataplaneStat>,
    /// Gateways of type `DELEGATED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_delegated: Option<DataplaneStat>,
}

impl Schema for MeshInsight {
    type Status = NoStatus;

    /// Written by the control plane only, which has nothing to tell itself.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Kind, kinds::testing::round_trips};

    #[test]
    fn a_full_insight_is_written_as_it_was_read() {
        let stat = json!({ "total": 4, "online": 1, "offline": 2, "partiallyDegraded": 1 });
        round_trips(
            Kind::MeshInsight,
            json!({
                "dataplanes": stat,
                "policies": { "MeshTimeout": { "total": 2 } },
                "dpVersions": { "kumaDp": { "2.14.3": stat }, "envoy": { "1.30.1": stat } },
                "mTLS": { "issuedBackends": { "ca-1": stat }, "supportedBackends": { "ca-1": stat } },
                "services": { "total": 3, "internal": 2, "external": 1 },
                "dataplanesByType": {
                    "standard": stat, "gateway": {}, "gatewayBuiltin": {}, "gatewayDelegated": {}
                },
                "resources": { "MeshService": { "total": 1 } }
            }),
        );
        round_trips(Kind::MeshInsight, json!({}));
    }
}
