//! Which policies are in effect for a proxy, an inbound, an outbound or a route.

use resources::naming::Kri;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::rules::TagMatcher;

/// What about a proxy policies are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoliciesOf {
    /// Those that configure the proxy as a whole.
    Proxy,
    /// The section says which inbound.
    Inbound(Kri),
    Outbound(Kri),
    /// A route of an outbound.
    Route {
        outbound: Kri,
        route: Kri,
    },
}

/// The policies in effect, in the order in which they take effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct PolicyList {
    pub policies: Vec<EffectivePolicy>,
}

/// What the policies of one kind come to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EffectivePolicy {
    /// The merged conf: an object for the proxy as a whole, a list for an outbound; absent for an
    /// inbound, where rules are kept apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Value>,
    pub kind: &'static str,
    /// The policies that took part, lowest precedence first.
    pub origins: Vec<PolicyOrigin>,
    /// For an inbound: every rule with the policy it is from, then entries of `from` in the order in which
    /// they are evaluated: the first that matches a client decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<EffectiveRule>>,
}

/// A policy that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyOrigin {
    #[schemars(with = "String")]
    pub kri: Kri,
}

/// A rule of an inbound.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EffectiveRule {
    pub conf: Value,
    #[schemars(with = "String")]
    pub kri: Kri,
    /// The clients that an entry of `from` is about; absent where all are meant, and for `rules`, which
    /// tell it in their conf. Not in Kuma, which leaves such entries out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matchers: Vec<TagMatcher>,
}

/// The routes of an outbound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct RouteList {
    pub routes: Vec<EffectiveRoutes>,
}

/// The routes of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EffectiveRoutes {
    pub kind: &'static str,
    pub origins: Vec<PolicyOrigin>,
    pub rules: Vec<RouteRule>,
}

/// One rule of a route.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RouteRule {
    pub conf: Value,
    /// The policy the rule is from; empty for MeshTCPRoute, whose confs are merged.
    pub kri: String,
    /// `null` for MeshTCPRoute, which matches everything.
    pub matches: Option<Vec<Value>>,
}
