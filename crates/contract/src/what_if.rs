//! The effect of changes that are not made: the question and the answer.

use std::{borrow::Cow, collections::BTreeMap};

use resources::Key;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{access::AccessVerdict, problem::Problem};

/// Consequences of changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WhatIfConsequences {
    pub proxies: WhatIfProxies,
    /// New requests of proxies that could not be met.
    pub problems: Vec<WhatIfProblem>,
    pub edges: WhatIfEdges,
    /// Policies that would select no proxy, or would have no effect beside others, and do not do so now.
    pub policies: Vec<WhatIfPolicy>,
    /// Gaps in the answer, because the work for one question is bounded: a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<String>,
}

/// The proxies that would get another configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WhatIfProxies {
    /// Number of proxies connected to this control plane. Others are not looked at.
    pub connected: usize,
    /// Number of them that would look again, because they read something that would change.
    pub affected: usize,
    /// Number of those that were compared. The work for one answer is limited.
    pub compared: usize,
    /// Number of those that would get another configuration.
    pub changed: usize,
    /// Those, by what would change.
    pub classes: Vec<WhatIfClass>,
    /// Differences asked for with `diff`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diffs: Vec<WhatIfDiff>,
}

/// Proxies of which the same would change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WhatIfClass {
    pub mesh: String,
    /// Some of them, by name.
    pub proxies: Vec<String>,
    pub count: usize,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    /// Size of these resources in a response to one proxy.
    pub bytes_before: usize,
    pub bytes_after: usize,
    /// As they are in the first of the proxies.
    pub resources: Vec<WhatIfResource>,
    /// True if there are more resources than are listed.
    pub truncated: bool,
}

/// One of Envoy's resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WhatIfResource {
    /// `cluster`, `endpoint`, `listener` or `route`.
    pub r#type: Cow<'static, str>,
    pub name: String,
    pub action: WhatIfResourceAction,
    /// Sizes in bytes; 0 where there is none.
    pub before: usize,
    pub after: usize,
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WhatIfResourceAction {
    Added,
    #[default]
    Changed,
    Removed,
}

/// Difference in the configuration of one proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfDiff {
    pub mesh: String,
    pub name: String,
    /// A JSON patch (RFC 6902) of what `_config` shows: every value that goes is named by a `test` before it.
    pub patch: Vec<Value>,
}

/// Something that would be wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfProblem {
    pub code: Cow<'static, str>,
    /// The resource it is about; `null` for the Dataplane of the proxy.
    pub about: Option<String>,
    pub text: String,
    pub mesh: String,
    /// One of the proxies that would have it, and how many would.
    pub proxy: String,
    pub count: usize,
}

/// Calls that would become possible or impossible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfEdges {
    pub opened: Vec<WhatIfEdge>,
    pub closed: Vec<WhatIfEdge>,
    /// True if there may be more than is listed.
    pub truncated: bool,
}

/// A client and what it calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfEdge {
    pub mesh: String,
    /// The `kuma.io/service` of the client, or the name of its Dataplane.
    pub from: String,
    /// The `kuma.io/service` of the server, or the name of its Dataplane.
    pub to: String,
    /// The inbound that is called, by name or port.
    pub inbound: String,
    /// `null` where one of both does not exist.
    pub before: Option<AccessVerdict>,
    pub after: Option<AccessVerdict>,
    /// The entry of a policy that decides afterwards.
    pub rule: Option<String>,
    pub reason: String,
}

/// A policy that would do nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfPolicy {
    pub r#type: Cow<'static, str>,
    pub mesh: String,
    pub name: String,
    pub kri: Option<String>,
    pub reason: WhatIfPolicyReason,
    /// In words.
    pub text: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhatIfPolicyReason {
    /// It selects no Dataplane.
    #[default]
    MatchesNothing,
    /// Without it every proxy that it selects would be the same.
    Shadowed,
}

/// Answer about changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    pub changes: Vec<WhatIfChange>,
    /// Refusals of a write. If there is any, nothing else is worked out.
    #[serde(default)]
    #[schemars(!default)]
    pub refused: Vec<WhatIfRefusal>,
    #[serde(flatten)]
    pub consequences: WhatIfConsequences,
}

/// Effect on a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfChange {
    #[serde(flatten)]
    pub of: WhatIfName,
    pub action: WhatIfAction,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhatIfAction {
    Create,
    Update,
    #[default]
    Unchanged,
    Delete,
}

/// A resource that a write would be refused for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfRefusal {
    #[serde(flatten)]
    pub of: WhatIfName,
    /// Place in the question: `resources[3]`, `delete[0]`.
    pub place: String,
    /// The document that the write would be answered with.
    pub problem: Problem,
}

/// As far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct WhatIfName {
    pub r#type: String,
    pub mesh: String,
    pub name: String,
}

/// The changes that are asked about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIfRequest {
    /// In Universal or Kubernetes form.
    #[serde(default)]
    #[schemars(with = "Vec<BTreeMap<String, Value>>")]
    pub resources: Vec<Value>,
    #[serde(default)]
    pub delete: Vec<WhatIfDeletion>,
}

/// A resource that would be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIfDeletion {
    pub r#type: String,
    pub name: String,
    /// That of the path, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

impl WhatIfName {
    pub fn of(key: &Key) -> WhatIfName {
        WhatIfName {
            r#type: key.kind.name().to_owned(),
            mesh: key.mesh.to_string(),
            name: key.name.to_string(),
        }
    }
}
