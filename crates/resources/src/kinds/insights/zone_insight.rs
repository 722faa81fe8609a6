//! Connections of a zone control plane to the global control plane.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::{
        dataplane_insight::ResponseCounts,
        proto::{is_default, number},
    },
};

/// The observed state of a zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneInsight {
    /// The zone's connections, the current one last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<KdsSubscription>,
    /// Global instances that hold the streams to Envoy's admin API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envoy_admin_streams: Option<EnvoyAdminStreams>,
    /// Last report of the zone that it is alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// The streams between the zone and the global control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kds_streams: Option<KdsStreams>,
    /// Set while the zone is away, and for a while after it is back. Kuma has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absence: Option<Absence>,
    /// Resources that are not synchronised, and the reasons. Kuma has no such field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SyncProblem>,
}

/// A zone that is away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Absence {
    /// Time of the loss of the connection.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Set once other zones no longer call the zone's ingresses.
    #[serde(skip_serializing_if = "is_default")]
    pub withdrawn: bool,
    /// Reason for the missing connection to the global control plane; only the zone knows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// State of a zone's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Online,
    /// The connection is lost, and others still call the zone.
    Unknown,
    Offline,
}

impl Presence {
    pub const ALL: [Presence; 3] = [Presence::Online, Presence::Unknown, Presence::Offline];

    pub const fn name(self) -> &'static str {
        match self {
            Presence::Online => "Online",
            Presence::Unknown => "Unknown",
            Presence::Offline => "Offline",
        }
    }
}

/// Resources of a kind that are not where they should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncProblem {
    /// The kind of the resources.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Receiver that lacks the resources, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// Reason that they are not synchronised.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// One connection between a zone and a global control plane instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KdsSubscription {
    /// A unique name of the connection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The global control plane instance that the zone is connected to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub global_instance_id: String,
    /// The instance of the zone's control plane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone_instance_id: String,
    /// Start of the connection.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_time: Option<Timestamp>,
    /// End of the connection; absent while it lives.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
    /// Counts of the responses exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<KdsStatus>,
    /// The versions of the zone's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<ZoneVersion>,
    /// Grows while the connection lives.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub generation: u32,
    /// The configuration of the zone's control plane, as JSON in a string.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// Set if the zone authenticated with a token.
    #[serde(skip_serializing_if = "is_default")]
    pub auth_token_provided: bool,
}

impl KdsSubscription {
    pub fn is_online(&self) -> bool {
        self.connect_time.is_some() && self.disconnect_time.is_none()
    }
}

/// Counts of responses, in total and per kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KdsStatus {
    /// Time of the last change of the counts.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    /// Responses with resources of all kinds.
    pub total: ResponseCounts,
    /// Responses, by the kind of their resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stat: BTreeMap<String, ResponseCounts>,
}

/// The programs a zone consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneVersion {
    /// The version of the zone's control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kuma_cp: Option<KumaCpVersion>,
}

/// The version of a zone's control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KumaCpVersion {
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
    /// Set if the global control plane supports this version.
    #[serde(skip_serializing_if = "is_default")]
    pub kuma_cp_global_compatible: bool,
}

/// Global instances that hold the zone's streams to Envoy's admin API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyAdminStreams {
    /// The instance that holds the stream of configuration dumps.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config_dump_global_instance_id: String,
    /// The instance that holds the stream of statistics.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stats_global_instance_id: String,
    /// The instance that holds the stream of clusters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub clusters_global_instance_id: String,
}

/// Last sign of life of the zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// The time of the last report.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

/// Every stream between a zone and the global control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KdsStreams {
    /// The stream of resources from global to the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_to_zone: Option<KdsStream>,
    /// The stream of resources from the zone to global.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_to_global: Option<KdsStream>,
    /// The stream of configuration dumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_dump: Option<KdsStream>,
    /// The stream of statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<KdsStream>,
    /// The stream of clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<KdsStream>,
}

/// The global instance that holds one stream, and since when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KdsStream {
    /// The instance that holds the stream.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub global_instance_id: String,
    /// Address at which other instances reach that one. Kuma has no such field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub global_address: String,
    /// Start of the stream.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_time: Option<Timestamp>,
}

impl ZoneInsight {
    pub fn is_online(&self) -> bool {
        self.subscriptions.iter().any(KdsSubscription::is_online)
    }

    /// Time of the zone's last sign of life.
    pub fn health(&self) -> Option<Timestamp> {
        self.health_check.as_ref().and_then(|check| check.time)
    }

    /// State of the zone's connection, and the time it began.
    pub fn presence(&self) -> (Presence, Option<Timestamp>) {
        let open = self.subscriptions.iter().filter(|subscription| subscription.is_online());
        if self.is_online() {
            return (Presence::Online, open.filter_map(|subscription| subscription.connect_time).min());
        }
        let ended = self.subscriptions.iter().filter_map(|subscription| subscription.disconnect_time).max();
        match &self.absence {
            Some(absence) if absence.withdrawn => (Presence::Offline, absence.since.or(ended)),
            Some(absence) => (Presence::Unknown, absence.since.or(ended)),
            None => (Presence::Offline, ended),
        }
    }

    /// True once other zones no longer call the zone's ingresses.
    pub fn is_withdrawn(&self) -> bool {
        self.absence.as_ref().is_some_and(|absence| absence.withdrawn)
    }
}

impl Schema for ZoneInsight {
    type Status = NoStatus;

    /// Written by the control plane only, which has nothing to tell itself.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Kind, kinds::testing::round_trips};

    #[test]
    fn a_full_insight_is_written_as_it_was_read() {
        round_trips(
            Kind::ZoneInsight,
            json!({
                "subscriptions": [{
                    "id": "1",
                    "globalInstanceId": "global-1",
                    "zoneInstanceId": "zone-1",
                    "connectTime": "2024-05-01T10:00:00Z",
                    "disconnectTime": "2024-05-01T11:00:00Z",
                    "status": {
                        "lastUpdateTime": "2024-05-01T10:30:00Z",
                        "total": { "responsesSent": "3" },
                        "stat": { "Mesh": { "responsesSent": "2", "responsesAcknowledged": "2" } }
                    },
                    "version": { "kumaCp": {
                        "version": "2.14.3", "gitTag": "v2.14.3", "gitCommit": "abc", "buildDate": "2024-04-01",
                        "kumaCpGlobalCompatible": true
                    } },
                    "generation": 3,
                    "config": "{\"mode\":\"zone\"}",
                    "authTokenProvided": true
                }],
                "envoyAdminStreams": {
                    "configDumpGlobalInstanceId": "a", "statsGlobalInstanceId": "b",
                    "clustersGlobalInstanceId": "c"
                },
                "healthCheck": { "time": "2024-05-01T10:00:00Z" },
                "kdsStreams": {
                    "globalToZone": { "globalInstanceId": "a", "connectTime": "2024-05-01T10:00:00Z" },
                    "zoneToGlobal": { "globalInstanceId": "a" },
                    "configDump": { "globalInstanceId": "a" },
                    "stats": { "globalInstanceId": "a" },
                    "clusters": { "globalInstanceId": "a" }
                },
                "absence": { "since": "2024-05-01T11:00:00Z", "withdrawn": true },
                "problems": [{ "type": "MeshTimeout", "what": "rejected by the zone", "reason": "no" }]
            }),
        );
        round_trips(Kind::ZoneInsight, json!({}));
    }

    #[test]
    fn a_zone_is_online_unknown_or_offline_since_its_connection_came_or_went() {
        let presence = |spec: serde_json::Value| {
            let insight: ZoneInsight = serde_json::from_value(spec).unwrap();
            let (presence, since) = insight.presence();
            (presence.name(), since.map(|since| since.to_string()).unwrap_or_default())
        };
        let came = "2024-05-01T10:00:00Z";
        let went = "2024-05-01T11:00:00Z";
        let lost = "2024-05-01T11:00:01Z";
        let open = json!({ "id": "1", "connectTime": came });
        let over = json!({ "id": "1", "connectTime": came, "disconnectTime": went });
        for (spec, expected) in [
            (json!({}), ("Offline", "")),
            (json!({ "subscriptions": [open] }), ("Online", came)),
            // It is back, and not called yet.
            (json!({ "subscriptions": [open], "absence": { "withdrawn": true } }), ("Online", came)),
            (json!({ "subscriptions": [over] }), ("Offline", went)),
            (json!({ "subscriptions": [over], "absence": { "since": lost } }), ("Unknown", lost)),
            (
                json!({ "subscriptions": [over], "absence": { "since": lost, "withdrawn": true } }),
                ("Offline", lost),
            ),
        ] {
            assert_eq!(presence(spec.clone()), (expected.0, expected.1.to_owned()), "{spec}");
        }
    }
}
