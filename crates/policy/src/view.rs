//! A policy of any kind, reduced to what the resolver needs: what it selects, how it ranks, and its
//! entries as JSON confs with their origins.

use std::sync::Arc;

use resources::{
    Kind, Labels, PolicyTraits, Resource,
    kinds::target_ref::{Match, TargetRef, TargetRefKind},
    labels,
    naming::Kri,
    policy::{ConfAt, Entries},
};
use serde_json::{Map, Value};

use crate::{conf::Conf, order::Precedence};

/// A policy with its view. Making the view turns the whole policy into JSON, so it is made once per
/// version of the policy and shared by all proxies.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub resource: Arc<Resource>,
    pub view: PolicyView,
}

impl Policy {
    /// `None` for kinds that aren't targetRef policies.
    pub fn of(resource: Arc<Resource>) -> Option<Policy> {
        let view = PolicyView::of(&resource)?;
        Some(Policy { resource, view })
    }
}

/// A policy of any kind, ready to be ordered and merged.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyView {
    /// The policy itself, without a section.
    pub kri: Kri,
    pub precedence: Precedence,
    pub traits: PolicyTraits,
    pub top: TargetRef,
    pub to: Vec<PolicyEntry>,
    pub from: Vec<PolicyEntry>,
    pub rules: Vec<RuleEntry>,
    /// The conf of policies that configure the whole proxy.
    pub default: Option<Arc<Conf>>,
    /// The labels of each MeshOpenTelemetryBackend that it refers to, as often as it does.
    pub telemetry: Vec<Labels>,
}

/// An entry of `to` or `from`.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyEntry {
    pub target: TargetRef,
    pub conf: Arc<Conf>,
}

/// An entry of `rules`.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleEntry {
    pub matches: Vec<Match>,
    pub conf: Arc<Conf>,
}

impl PolicyView {
    /// `None` for kinds that aren't targetRef policies.
    pub fn of(policy: &Resource) -> Option<PolicyView> {
        policy.spec.target_ref()?;
        let traits = policy.kind().descriptor().policy?;
        let spec = policy.spec.to_json();
        let kri = policy.kri("")?;
        Some(PolicyView::read(kri, traits, policy.name(), &policy.labels, &spec))
    }

    /// Reads a policy's spec as JSON. `name` is the name in the store, which settles ties.
    pub fn read(kri: Kri, traits: PolicyTraits, name: &str, labels: &Labels, spec: &Value) -> PolicyView {
        let top = spec.get("targetRef").map_or_else(TargetRef::mesh, reference);
        let entries = |field: &str, shape: Option<Entries>| match shape {
            Some(Entries { conf, .. }) => list(spec, field)
                .enumerate()
                .map(|(i, entry)| PolicyEntry::read(&origin(&kri, i), entry, conf))
                .collect(),
            None => Vec::new(),
        };
        let rules = list(spec, "rules").filter(|_| traits.rules.is_some()).enumerate();
        let default = spec.get("default").filter(|_| traits.default);
        PolicyView {
            precedence: Precedence::of(&top, labels, &kri.name, name),
            traits,
            top,
            to: entries("to", traits.to),
            from: entries("from", traits.from),
            rules: rules.map(|(i, rule)| RuleEntry::read(origin(&kri, i), rule)).collect(),
            default: default.map(|conf| Conf::new(kri.clone(), conf.clone())),
            telemetry: telemetry(spec),
            kri,
        }
    }

    /// True if the policy configures MeshHTTPRoutes, or selects the proxies that one selects.
    pub fn refers_to_routes(&self) -> bool {
        let is_route = |reference: &TargetRef| reference.kind == TargetRefKind::MeshHttpRoute;
        is_route(&self.top) || self.to.iter().any(|entry| is_route(&entry.target))
    }
}

impl PolicyEntry {
    fn read(origin: &Kri, entry: &Value, at: ConfAt) -> PolicyEntry {
        let target = entry.get("targetRef").map_or_else(TargetRef::mesh, reference);
        let conf = match at {
            ConfAt::Default => default_of(entry),
            ConfAt::Beside => {
                let fields = entry.as_object().into_iter().flatten().filter(|(name, _)| *name != "targetRef");
                Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
        };
        PolicyEntry { target, conf: Conf::new(origin.clone(), conf) }
    }
}

impl RuleEntry {
    fn read(origin: Kri, rule: &Value) -> RuleEntry {
        let matches = list(rule, "matches").filter_map(|m| serde_json::from_value(m.clone()).ok()).collect();
        RuleEntry { matches, conf: Conf::new(origin, default_of(rule)) }
    }
}

/// The conf of an entry that has one in `default`; one that says nothing changes nothing.
fn default_of(entry: &Value) -> Value {
    entry.get("default").cloned().unwrap_or_else(|| Value::Object(Map::new()))
}

fn reference(value: &Value) -> TargetRef {
    // Specs were typed before they became JSON, so a reference always reads back; one that does not has
    // no kind and selects nothing.
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The labels of each MeshOpenTelemetryBackend that a policy refers to, as often as it does.
pub fn telemetry_references(policy: &Resource) -> Vec<Labels> {
    telemetry(&policy.spec.to_json())
}

/// The labels of all references to MeshOpenTelemetryBackends, wherever they stand.
fn telemetry(spec: &Value) -> Vec<Labels> {
    let mut found = Vec::new();
    let mut look_at = vec![spec];
    while let Some(value) = look_at.pop() {
        match value {
            Value::Object(fields) => {
                let reference = fields.get("backendRef").filter(|reference| {
                    reference["kind"].as_str() == Some(Kind::MeshOpenTelemetryBackend.name())
                });
                let labels = reference.and_then(|reference| reference.get("labels"));
                found.extend(labels.and_then(|labels| serde_json::from_value(labels.clone()).ok()));
                look_at.extend(fields.values());
            }
            Value::Array(items) => look_at.extend(items),
            _ => {}
        }
    }
    found
}

/// The identifier of a policy's entry: entries of `to`, `from` and `rules` are all named `rule_<index>`.
pub fn origin(policy: &Kri, index: usize) -> Kri {
    policy.with_section(&format!("rule_{index}"))
}

/// The role of the author of a policy on Kubernetes; the order is that of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    System,
    Producer,
    Consumer,
    WorkloadOwner,
}

impl Role {
    /// A policy without the label comes from the system.
    pub fn of(labels: &Labels) -> Role {
        match labels.get(labels::POLICY_ROLE).map(String::as_str) {
            Some("producer") => Role::Producer,
            Some("consumer") => Role::Consumer,
            Some("workload-owner") => Role::WorkloadOwner,
            _ => Role::System,
        }
    }
}
