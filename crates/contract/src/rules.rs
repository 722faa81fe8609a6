//! Every rule that is in effect for a proxy, by kind of policy.

use std::borrow::Cow;

use resources::{Labels, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The rules of one proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyRules {
    /// Matches of routes, by the name that routes without policies of their own have in Envoy.
    pub http_matches: Vec<HttpMatch>,
    pub resource: ResourceMeta,
    /// In the order in which kinds of policies take effect.
    pub rules: Vec<RulesOfKind>,
}

/// Metadata of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ResourceMeta {
    pub labels: Labels,
    pub mesh: String,
    pub name: String,
    pub r#type: Cow<'static, str>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct HttpMatch {
    pub hash: String,
    pub r#match: Value,
}

/// The rules of one kind of policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RulesOfKind {
    pub from_rules: Vec<FromRules>,
    pub inbound_rules: Vec<InboundRules>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_rule: Option<RuleOfProxy>,
    pub to_resource_rules: Vec<RuleOfResource>,
    pub to_rules: Vec<ClientRule>,
    pub r#type: Cow<'static, str>,
    pub warnings: Vec<String>,
}

/// An inbound, as rules refer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct RuleInbound {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub port: u32,
    pub tags: Labels,
}

/// The rules about clients of an inbound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct FromRules {
    pub inbound: RuleInbound,
    /// In the order of evaluation: the first that matches decides.
    pub rules: Vec<ClientRule>,
}

/// A conf for clients or destinations with some tags.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ClientRule {
    pub conf: Value,
    pub matchers: Vec<TagMatcher>,
    pub origin: Vec<ResourceMeta>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct TagMatcher {
    pub key: String,
    pub not: bool,
    pub value: String,
}

/// The rules of an inbound, kept apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct InboundRules {
    pub inbound: RuleInbound,
    pub rules: Vec<RuleOfInbound>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct RuleOfInbound {
    pub conf: Vec<Value>,
    /// Match of clients; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#match: Option<Value>,
    pub origin: Vec<RuleOrigin>,
}

/// An entry of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RuleOrigin {
    pub resource_meta: ResourceMeta,
    pub rule_index: usize,
}

/// The conf of one destination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct RuleOfResource {
    pub conf: Vec<Value>,
    pub origin: Vec<RuleOrigin>,
    pub resource_meta: ResourceMeta,
    /// The port; empty for the whole resource.
    pub resource_section_name: String,
}

/// The conf of the proxy as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct RuleOfProxy {
    pub conf: Value,
    pub origin: Vec<ResourceMeta>,
}

impl ResourceMeta {
    pub fn of(resource: &Resource) -> ResourceMeta {
        ResourceMeta {
            labels: resource.labels.clone(),
            mesh: resource.mesh().to_owned(),
            name: resource.name().to_owned(),
            r#type: resource.kind().name().into(),
        }
    }
}
