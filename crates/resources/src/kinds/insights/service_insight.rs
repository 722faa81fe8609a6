//! State of every legacy service (`kuma.io/service`) of a mesh. One resource holds all of them; the REST API
//! shows each as a resource of its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::{
        mesh_insight::DataplaneStat,
        proto::{is_default, proto_enum},
    },
};

/// The name of the one ServiceInsight of a mesh.
pub fn resource_name(mesh: &str) -> String {
    format!("all-services-{mesh}")
}

/// The observed state of every service of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceInsight {
    /// The services, by the value of `kuma.io/service`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, Service>,
}

/// One service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Availability of the service, from its healthy endpoints.
    #[serde(skip_serializing_if = "is_default")]
    pub status: ServiceStatus,
    /// The proxies of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<DataplaneStat>,
    /// Proxies, by the authority that signed their certificate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub issued_backends: BTreeMap<String, u32>,
    /// Sort of endpoints behind the service.
    #[serde(skip_serializing_if = "is_default")]
    pub service_type: ServiceType,
    /// The hostname and port at which applications call the service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address_port: String,
    /// The zones in which the service runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
}

proto_enum! {
    /// Availability of a service.
    pub enum ServiceStatus {
        NotAvailable = "not_available",
        Offline = "offline",
        PartiallyDegraded = "partially_degraded",
        Online = "online",
    }
}

proto_enum! {
    /// Sort of endpoints behind a service.
    pub enum ServiceType {
        Internal = "internal",
        External = "external",
        GatewayDelegated = "gateway_delegated",
        GatewayBuiltin = "gateway_builtin",
    }
}

impl Schema for ServiceInsight {
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
        round_trips(
            Kind::ServiceInsight,
            json!({ "services": {
                "backend": {
                    "status": "partially_degraded",
                    "dataplanes": { "total": 100, "online": 70, "offline": 30 },
                    "issuedBackends": { "ca-1": 70 },
                    "addressPort": "backend.mesh:80",
                    "zones": ["east", "west"]
                },
                "edge": { "status": "online", "serviceType": "gateway_builtin" },
                "github": { "serviceType": "external" }
            } }),
        );
        round_trips(Kind::ServiceInsight, json!({}));
    }
}
