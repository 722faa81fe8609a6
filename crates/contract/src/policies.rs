//! Policies in effect for a proxy, an inbound, an outbound or a route.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{resource::Metadata, rules::TagMatcher};

/// The policies in effect, in the order in which they take effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct PolicyList {
    pub policies: Vec<EffectivePolicy>,
}

/// Result of the policies of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct EffectivePolicy {
    /// The merged conf: an object for the proxy as a whole, a list for an outbound; absent for an
    /// inbound, where rules are kept apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Value>,
    pub kind: Cow<'static, str>,
    /// The policies that took part, lowest precedence first.
    pub origins: Vec<PolicyOrigin>,
    /// For an inbound: every rule with the policy it is from, then entries of `from` in the order in which
    /// they are evaluated: the first that matches a client decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<EffectiveRule>>,
}

/// A policy that took part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct PolicyOrigin {
    pub kri: String,
}

/// A rule of an inbound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct EffectiveRule {
    pub conf: Value,
    pub kri: String,
    /// The clients that an entry of `from` is about; absent where all are meant, and for `rules`, which
    /// tell it in their conf. Not in Kuma, which leaves such entries out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matchers: Vec<TagMatcher>,
}

/// The policies that select a proxy, by what of it they are attached to: the older answer, which Kuma has too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AttachmentList {
    pub items: Vec<Attachment>,
}

/// A part of a proxy with the policies that select it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attachment {
    /// By kind.
    pub matched_policies: BTreeMap<String, Vec<Metadata>>,
}

/// The routes of an outbound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct RouteList {
    pub routes: Vec<EffectiveRoutes>,
}

/// The routes of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct EffectiveRoutes {
    pub kind: Cow<'static, str>,
    pub origins: Vec<PolicyOrigin>,
    pub rules: Vec<RouteRule>,
}

/// One rule of a route.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct RouteRule {
    pub conf: Value,
    /// The policy the rule is from; empty for MeshTCPRoute, whose confs are merged.
    pub kri: String,
    /// `null` for MeshTCPRoute, which matches everything.
    pub matches: Option<Vec<Value>>,
}
