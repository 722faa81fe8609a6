//! Connections of a data plane proxy to the control plane: one subscription per connection, with counts of
//! the responses that were sent, acknowledged and rejected.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::proto::{Struct, is_default, number, uint64},
    naming::Kri,
};

/// The observed state of a data plane proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneInsight {
    /// The proxy's connections, the current one last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<DiscoverySubscription>,
    /// The certificate that the proxy has; absent without mTLS.
    #[serde(rename = "mTLS", skip_serializing_if = "Option::is_none")]
    pub mtls: Option<CertificateStatus>,
    /// The metadata of the proxy's Envoy node, without a Dataplane in it, and at most 16 KiB of it.
    #[serde(skip_serializing_if = "Struct::is_empty")]
    pub metadata: Struct,
    /// OpenTelemetry backends that the proxy exports to.
    #[serde(skip_serializing_if = "Struct::is_empty")]
    pub open_telemetry: Struct,
}

/// One connection of a proxy to a control plane instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoverySubscription {
    /// A unique name of the connection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The control plane instance that the proxy is connected to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub control_plane_instance_id: String,
    /// Its address for the other instances on the same store. Kuma has no such field, and global does not get it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub control_plane_address: String,
    /// Start of the connection.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_time: Option<Timestamp>,
    /// End of the connection; absent while it lives.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
    /// Counts of responses, and the resources that the proxy rejects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DiscoveryStatus>,
    /// The versions of the proxy's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<ProxyVersion>,
    /// Grows while the connection is open, so that subscriptions of a crashed control plane can be recognised.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub generation: u32,
}

impl DiscoverySubscription {
    pub fn is_online(&self) -> bool {
        self.connect_time.is_some() && self.disconnect_time.is_none()
    }
}

/// Counts of responses on one connection, in total and per type of resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveryStatus {
    /// Time of the last change of the counts.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    /// Responses of all types.
    pub total: ResponseCounts,
    /// Responses with clusters.
    pub cds: ResponseCounts,
    /// Responses with endpoints.
    pub eds: ResponseCounts,
    /// Responses with listeners.
    pub lds: ResponseCounts,
    /// Responses with routes.
    pub rds: ResponseCounts,
    /// Responses with secrets, which Kuma does not count.
    #[serde(skip_serializing_if = "is_default")]
    pub sds: ResponseCounts,
    /// Resources that the proxy rejects at this moment; Kuma has no such field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejections: Vec<ResourceRejection>,
}

/// A resource that the proxy was sent and did not take.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRejection {
    /// The type of the resource: `cds`, `eds`, `lds`, `rds` or `sds`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of the resource in the proxy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Resource of the mesh that the rejected resource was made from.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<Kri>,
    /// The policies in effect for that part of the proxy, or for all of it: what they say is in the resource.
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Kri>,
    /// Error message of the proxy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

/// Responses sent, acknowledged and rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResponseCounts {
    /// Responses that were sent.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "is_default", with = "uint64")]
    pub responses_sent: u64,
    /// Responses that the peer accepted (ACK).
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "is_default", with = "uint64")]
    pub responses_acknowledged: u64,
    /// Responses that the peer rejected (NACK).
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "is_default", with = "uint64")]
    pub responses_rejected: u64,
}

/// The programs a proxy consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyVersion {
    /// The version of kuma-dp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kuma_dp: Option<KumaDpVersion>,
    /// The version of Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envoy: Option<EnvoyVersion>,
    /// Versions of other programs, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, String>,
}

/// The version of kuma-dp.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KumaDpVersion {
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The tag it was built from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_tag: String,
    /// The commit it was built from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_commit: String,
    /// Build date.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub build_date: String,
    /// Set if the control plane supports this version.
    #[serde(skip_serializing_if = "is_default")]
    pub kuma_cp_compatible: bool,
}

/// The version of Envoy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyVersion {
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The full version with commit and build type.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// Set if kuma-dp supports this version.
    #[serde(skip_serializing_if = "is_default")]
    pub kuma_dp_compatible: bool,
}

/// The certificate a proxy currently has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateStatus {
    /// End of the certificate's validity.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expiration_time: Option<Timestamp>,
    /// Time of the last issue of a certificate.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_certificate_regeneration: Option<Timestamp>,
    /// Number of certificates issued to the proxy.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub certificate_regenerations: u32,
    /// The authority that signed the certificate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issued_backend: String,
    /// The authorities that the proxy trusts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_backends: Vec<String>,
}

impl DataplaneInsight {
    /// By the last connection: one before it may be open on record only because a control plane was killed.
    pub fn is_online(&self) -> bool {
        self.subscriptions.last().is_some_and(DiscoverySubscription::is_online)
    }
}

impl Schema for DataplaneInsight {
    type Status = NoStatus;

    /// Written by the control plane only, which has nothing to tell itself.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::DataplaneInsight;
    use crate::{Kind, Spec, kinds::testing::round_trips};

    /// A subscription with every field, shared by the insights of the three kinds of proxy.
    pub(crate) fn subscription() -> Value {
        json!({
            "id": "1",
            "controlPlaneInstanceId": "cp-1",
            "connectTime": "2024-05-01T10:00:00Z",
            "disconnectTime": "2024-05-01T11:00:00.123456789Z",
            "status": {
                "lastUpdateTime": "2024-05-01T10:30:00Z",
                "total": { "responsesSent": "10", "responsesAcknowledged": "8", "responsesRejected": "2" },
                "cds": { "responsesSent": "18446744073709551615" },
                "eds": {},
                "lds": {},
                "rds": {},
                "sds": { "responsesSent": "1" },
                "rejections": [{
                    "type": "cds", "name": "default_backend__east_msvc_80",
                    "kri": "kri_msvc_default_east__backend_http", "message": "no such thing",
                    "time": "2024-05-01T10:20:00Z"
                }]
            },
            "version": {
                "kumaDp": {
                    "version": "2.14.3", "gitTag": "v2.14.3", "gitCommit": "abc", "buildDate": "2024-04-01",
                    "kumaCpCompatible": true
                },
                "envoy": { "version": "1.30.1", "build": "hash/1.30.1/RELEASE", "kumaDpCompatible": true },
                "dependencies": { "coredns": "1.11.1" }
            },
            "generation": 3
        })
    }

    #[test]
    fn a_full_insight_is_written_as_it_was_read() {
        round_trips(
            Kind::DataplaneInsight,
            json!({
                "subscriptions": [subscription()],
                "mTLS": {
                    "certificateExpirationTime": "2024-05-02T10:00:00Z",
                    "lastCertificateRegeneration": "2024-05-01T10:00:00Z",
                    "certificateRegenerations": 3,
                    "issuedBackend": "ca-1",
                    "supportedBackends": ["ca-1", "ca-2"]
                },
                "metadata": { "dataplane.proxyType": "dataplane", "features": ["feature-delta-grpc"] },
                "openTelemetry": { "backends": [{ "name": "otel", "traces": { "enabled": true } }] }
            }),
        );
        round_trips(Kind::DataplaneInsight, json!({}));
    }

    #[test]
    fn a_proxy_is_online_while_its_last_subscription_is_open() {
        for (subscriptions, expect) in [
            (json!([]), false),
            (json!([{ "connectTime": "2024-05-01T10:00:00Z" }]), true),
            (json!([subscription()]), false),
            (json!([subscription(), { "connectTime": "2024-05-01T12:00:00Z" }]), true),
            (json!([{ "connectTime": "2024-05-01T08:00:00Z" }, subscription()]), false),
        ] {
            let spec = json!({ "subscriptions": subscriptions });
            let spec = Spec::from_json(Kind::DataplaneInsight, spec, &mut Vec::new()).unwrap();
            assert_eq!(spec.get::<DataplaneInsight>().unwrap().is_online(), expect);
        }
    }
}
