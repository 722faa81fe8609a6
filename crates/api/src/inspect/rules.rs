//! Every rule that is in effect for a proxy, by kind of policy.

use resources::{Labels, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The rules of one proxy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProxyRules")]
pub struct RuleList {
    /// What routes match, by the name that routes without policies of their own have in Envoy.
    pub http_matches: Vec<HttpMatch>,
    pub resource: Meta,
    /// In the order in which kinds of policies take effect.
    pub rules: Vec<KindRules>,
}

/// Which resource, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ResourceMeta")]
pub struct Meta {
    pub labels: Labels,
    pub mesh: String,
    pub name: String,
    pub r#type: &'static str,
}

impl Meta {
    pub fn of(resource: &Resource) -> Meta {
        Meta {
            labels: resource.labels.clone(),
            mesh: resource.mesh().to_owned(),
            name: resource.name().to_owned(),
            r#type: resource.kind().name(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HttpMatch {
    pub hash: String,
    pub r#match: Value,
}

/// The rules of one kind of policy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RulesOfKind")]
pub struct KindRules {
    pub from_rules: Vec<FromRules>,
    pub inbound_rules: Vec<InboundRules>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_rule: Option<ProxyRule>,
    pub to_resource_rules: Vec<ResourceRule>,
    pub to_rules: Vec<ClientRule>,
    pub r#type: &'static str,
    pub warnings: Vec<String>,
}

/// An inbound, as rules refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RuleInbound")]
pub struct InboundRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub port: u32,
    pub tags: Labels,
}

/// The rules about clients of an inbound.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FromRules {
    pub inbound: InboundRef,
    /// In the order of evaluation: the first that matches decides.
    pub rules: Vec<ClientRule>,
}

/// A conf for clients or destinations with some tags.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClientRule {
    pub conf: Value,
    pub matchers: Vec<TagMatcher>,
    pub origin: Vec<Meta>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TagMatcher {
    pub key: String,
    pub not: bool,
    pub value: String,
}

/// The rules of an inbound, kept apart.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InboundRules {
    pub inbound: InboundRef,
    pub rules: Vec<InboundRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RuleOfInbound")]
pub struct InboundRule {
    pub conf: Vec<Value>,
    /// Which clients are meant; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#match: Option<Value>,
    pub origin: Vec<RuleOrigin>,
}

/// An entry of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleOrigin {
    pub resource_meta: Meta,
    pub rule_index: usize,
}

/// The conf of one destination.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RuleOfResource")]
pub struct ResourceRule {
    pub conf: Vec<Value>,
    pub origin: Vec<RuleOrigin>,
    pub resource_meta: Meta,
    /// The port; empty for the whole resource.
    pub resource_section_name: String,
}

/// The conf of the proxy as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RuleOfProxy")]
pub struct ProxyRule {
    pub conf: Value,
    pub origin: Vec<Meta>,
}
