//! Permissions for the calls that were seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// MeshTrafficPermissions that observed calls need, and what is known about them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Suggestions {
    pub window: SuggestionsWindow,
    /// True if clients of other zones may call what is asked about: only the control planes of their zones know their
    /// calls.
    pub other_zones: bool,
    /// Gaps in the suggestions.
    pub warnings: Vec<String>,
    /// To be written.
    pub permissions: Vec<SuggestedPermission>,
    /// Observed calls that a policy refuses; no suggestion allows them.
    pub denied: Vec<DeniedCall>,
    /// Destinations that no one was seen to call and that no permission is about, by identifier or tags: no client could
    /// call them.
    pub unseen: Vec<String>,
    /// Number of observed edges that need nothing.
    pub already_allowed: usize,
    /// Permissions that allow everyone everywhere. Suggestions are made as if they were gone.
    pub allow_all: Vec<AllowAll>,
    /// Policies that will let in clients which no rule names, when these suggestions are followed to their end.
    pub open: Vec<Open>,
    /// MeshTrafficPermissions that show that everything else is refused, to be written last; none where they are there.
    #[schemars(with = "Vec<std::collections::BTreeMap<String, Value>>")]
    pub closing: Vec<Value>,
}

/// For how long calls to all that is asked about were observed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct SuggestionsWindow {
    /// `null` while no proxy has reported.
    pub since: Option<String>,
    /// The destination that joined last, where that was after the first report of the mesh: it begins the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// The last report.
    pub until: String,
    pub seconds: u64,
}

/// A permission, and the calls that it is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct SuggestedPermission {
    /// The MeshTrafficPermission. Where one of its name exists, it has everything that is in that one.
    #[schemars(with = "std::collections::BTreeMap<String, Value>")]
    pub resource: Value,
    pub evidence: Vec<SeenCall>,
    /// Further calls that the permission would allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A client and what it called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SeenCall {
    /// The first identity in the certificate of the client.
    pub caller: String,
    /// The identifier of a port of a service, or the tags of what is called by them.
    pub destination: String,
    pub first_seen: String,
    pub last_seen: String,
    /// Requests, or connections of TCP.
    pub count: u64,
    /// True if it is refused now, for want of a rule.
    pub refused: bool,
}

/// An observed call that stays refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DeniedCall {
    pub caller: String,
    pub destination: String,
    pub first_seen: String,
    pub last_seen: String,
    pub count: u64,
    /// The entry of the policy that refuses.
    pub policy: String,
    /// True if some of these calls get through now, to some servers or thanks to a permission for everyone.
    pub gets_through: bool,
}

/// A permission that allows everyone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct AllowAll {
    pub name: String,
    pub kri: String,
    /// Replacement, where it says more: the same without what allows everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, Value>>")]
    pub rest: Option<Value>,
}

/// A policy that lets in clients which no rule names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct Open {
    /// The entry of the policy.
    pub policy: String,
    /// Destinations of these clients, by identifier or tags.
    pub destinations: Vec<String>,
}
