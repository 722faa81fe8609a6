//! Views of proxies and policies that `kumactl` of Kuma still asks for by default.

use std::{borrow::Cow, collections::BTreeMap};

use resources::Labels;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The policies that select a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DataplaneInspectEntries {
    /// `SidecarDataplane`.
    pub kind: Cow<'static, str>,
    pub total: usize,
    pub items: Vec<DataplaneInspectEntry>,
}

/// Policies that select a part of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DataplaneInspectEntry {
    /// `dataplane`: the proxy as a whole.
    pub r#type: Cow<'static, str>,
    /// By kind; each policy without its spec.
    pub matched_policies: BTreeMap<Cow<'static, str>, Vec<Value>>,
}

/// A proxy that a policy selects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PolicyInspectEntry {
    /// `SidecarDataplane`.
    pub kind: Cow<'static, str>,
    pub dataplane: ResourceName,
    pub attachments: Vec<PolicyAttachment>,
}

/// Part of a proxy that a policy is attached to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PolicyAttachment {
    /// `dataplane`: the proxy as a whole.
    pub r#type: Cow<'static, str>,
}

/// A resource of a kind that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceName {
    pub mesh: String,
    pub name: String,
}

/// A rule in effect for a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RuleInspectEntry {
    /// `SingleItem` for the proxy as a whole, `ClientSubset` for an inbound, `DestinationSubset` for destinations.
    pub r#type: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
    pub policy_type: Cow<'static, str>,
    /// Tags of the clients or destinations that the rule is for; those that must be absent have a `!` before the value.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub subset: Labels,
    pub conf: Value,
    pub origins: Vec<ResourceName>,
}
