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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<DataplaneStat>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, Total>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_versions: Option<DpVersions>,
    #[serde(rename = "mTLS", skip_serializing_if = "Option::is_none")]
    pub mtls: Option<BackendStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceStat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes_by_type: Option<DataplanesByType>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Total>,
}

/// How many proxies there are and how many of them work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneStat {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub online: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub offline: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub partially_degraded: u32,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Total {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
}

/// Proxies by the versions of their programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DpVersions {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kuma_dp: BTreeMap<String, DataplaneStat>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub envoy: BTreeMap<String, DataplaneStat>,
}

/// Proxies by the certificate authorities they use and trust.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendStats {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub issued_backends: BTreeMap<String, DataplaneStat>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub supported_backends: BTreeMap<String, DataplaneStat>,
}

/// Services by where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStat {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub total: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub internal: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub external: u32,
}

/// Proxies by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplanesByType {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<DataplaneStat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<DataplaneStat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_builtin: Option<DataplaneStat>,
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
