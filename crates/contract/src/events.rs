//! Events: what happened, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sort of an event.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A proxy opened its stream.
    ProxyConnected,
    /// The stream of a proxy ended, and it had not said that it would.
    ProxyLost,
    /// A proxy said that it would stop, and its stream ended.
    ProxyLeft,
    /// A proxy brought a Dataplane along that was not stored.
    ProxyRegistered,
    /// A proxy got a new certificate in place of another one.
    CertificateRenewed,
    /// A proxy has all of its configuration: for the first time on a stream, or again after a rejection.
    ConfigurationAccepted,
    /// A proxy refused a part of its configuration.
    ConfigurationRejected,
    /// A zone and the global control plane are connected.
    ZoneJoined,
    /// A zone and the global control plane are not connected any more.
    ZoneLeft,
    /// Something may be wrong, as a finding says.
    FindingOpened,
    /// What a finding said is over.
    FindingClosed,
    /// A user wrote or deleted a resource.
    Written,
    /// An event of a kind that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl EventKind {
    /// Every kind that is recorded.
    pub const ALL: [EventKind; 12] = [
        EventKind::ProxyConnected,
        EventKind::ProxyLost,
        EventKind::ProxyLeft,
        EventKind::ProxyRegistered,
        EventKind::CertificateRenewed,
        EventKind::ConfigurationAccepted,
        EventKind::ConfigurationRejected,
        EventKind::ZoneJoined,
        EventKind::ZoneLeft,
        EventKind::FindingOpened,
        EventKind::FindingClosed,
        EventKind::Written,
    ];

    pub fn name(self) -> &'static str {
        match self {
            EventKind::ProxyConnected => "proxy-connected",
            EventKind::ProxyLost => "proxy-lost",
            EventKind::ProxyLeft => "proxy-left",
            EventKind::ProxyRegistered => "proxy-registered",
            EventKind::CertificateRenewed => "certificate-renewed",
            EventKind::ConfigurationAccepted => "configuration-accepted",
            EventKind::ConfigurationRejected => "configuration-rejected",
            EventKind::ZoneJoined => "zone-joined",
            EventKind::ZoneLeft => "zone-left",
            EventKind::FindingOpened => "finding-opened",
            EventKind::FindingClosed => "finding-closed",
            EventKind::Written => "written",
            EventKind::Unknown => "unknown",
        }
    }

    pub fn by_name(name: &str) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Something that happened to a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Event {
    /// Place in the order of events of one process of a control plane; a stream resumes after it.
    pub id: String,
    /// RFC 3339.
    pub time: String,
    pub kind: EventKind,
    /// Absent for what is in no mesh. A Mesh counts as its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mesh: String,
    /// Kind of the resource, `Dataplane` for example.
    pub r#type: String,
    /// Name of the resource.
    pub name: String,
    /// Identifier of the resource, where a finding is about a part of it or about another zone's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kri: String,
    /// The particulars, in a sentence.
    pub message: String,
    /// Write: `create`, `update` or `delete`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// User and groups behind a write. Only callers with the right to administer see it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Code of a finding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Time when a finding that is closed was opened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
}

/// Message `changed` of a stream: resources of a kind changed, so that lists of them may be outdated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ChangeNotice {
    /// Absent when resources of any kind may have changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// Absent for kinds that are in no mesh, and when resources of any kind may have changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mesh: String,
}

/// Message `gap` of a stream, in place of events that are not kept any more; and message `cut`, the last one of a
/// stream that the control plane ends because it is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct StreamNotice {
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_names_as_json_and_unknown_ones_are_read() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(EventKind::by_name(kind.name()), Some(kind));
        }
        let read: EventKind = serde_json::from_str("\"of-a-later-version\"").unwrap();
        assert_eq!((read, EventKind::by_name("unknown")), (EventKind::Unknown, None));
    }
}
