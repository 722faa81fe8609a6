//! A policy of any kind, reduced to what the resolver needs: whom it selects, how it ranks, and its
//! entries as JSON confs with their origins.

use std::sync::Arc;

use resources::{
    Kind, Labels, Resource, Spec,
    kinds::target_ref::{Match, TargetRef, TargetRefKind},
    labels,
    naming::Kri,
};
use serde_json::{Map, Value};

use crate::order::Precedence;

/// A policy with its view. Making the view turns the whole policy into JSON, so it is made once per
/// version of the policy and shared by all proxies.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub resource: Arc<Resource>,
    pub view: PolicyView,
}

impl Policy {
    /// `None` for kinds that are no policies with a `targetRef`.
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
    pub top: TargetRef,
    pub to: Vec<Entry>,
    pub from: Vec<Entry>,
    pub rules: Vec<RuleEntry>,
    /// The conf of policies that configure the whole proxy.
    pub default: Option<Value>,
    /// Whether `from` entries count as `rules` without a match.
    pub from_as_rules: bool,
}

/// An entry of `to` or `from`.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub target: TargetRef,
    pub conf: Arc<Value>,
}

/// An entry of `rules`.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleEntry {
    pub matches: Vec<Match>,
    pub conf: Value,
}

impl PolicyView {
    /// `None` for kinds that are no policies with a `targetRef`.
    pub fn of(policy: &Resource) -> Option<PolicyView> {
        target_ref(&policy.spec)?;
        let spec = policy.spec.to_json();
        let kri = policy.kri("")?;
        Some(PolicyView::read(kri, policy.name(), &policy.labels, &spec))
    }

    /// Reads a policy's spec as JSON. `name` is the name in the store, which settles ties.
    pub fn read(kri: Kri, name: &str, labels: &Labels, spec: &Value) -> PolicyView {
        let top = spec.get("targetRef").map_or_else(TargetRef::mesh, reference);
        let from_as_rules = kri
            .kind()
            .and_then(|kind: Kind| kind.descriptor().policy)
            .is_some_and(|selects| selects.from_as_rules);
        PolicyView {
            precedence: Precedence::of(&top, labels, &kri.name, name),
            top,
            to: list(spec, "to").iter().map(Entry::read).collect(),
            from: list(spec, "from").iter().map(Entry::read).collect(),
            rules: list(spec, "rules").iter().map(RuleEntry::read).collect(),
            default: spec.get("default").cloned(),
            from_as_rules,
            kri,
        }
    }

    /// Whether the policy says something about MeshHTTPRoutes, or selects the proxies that one selects.
    pub fn refers_to_routes(&self) -> bool {
        let is_route = |reference: &TargetRef| reference.kind == TargetRefKind::MeshHttpRoute;
        is_route(&self.top) || self.to.iter().any(|entry| is_route(&entry.target))
    }

    /// The identifier of the policy's entry with this index.
    pub fn origin(&self, index: usize) -> Kri {
        origin(&self.kri, index)
    }
}

impl Entry {
    fn read(entry: &Value) -> Entry {
        let target = entry.get("targetRef").map_or_else(TargetRef::mesh, reference);
        Entry { target, conf: Arc::new(conf(entry, &["targetRef"])) }
    }
}

impl RuleEntry {
    fn read(entry: &Value) -> RuleEntry {
        let matches =
            list(entry, "matches").iter().filter_map(|m| serde_json::from_value(m.clone()).ok()).collect();
        RuleEntry { matches, conf: conf(entry, &["matches"]) }
    }
}

/// The conf of an entry: its `default`, or, for routes, everything beside what selects.
fn conf(entry: &Value, selecting: &[&str]) -> Value {
    if let Some(default) = entry.get("default") {
        return default.clone();
    }
    let fields = entry.as_object().into_iter().flatten();
    let rest: Map<String, Value> = fields
        .filter(|(name, _)| !selecting.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(rest)
}

fn reference(value: &Value) -> TargetRef {
    // Specs were typed before they became JSON, so a reference always reads back; one that does not has
    // no kind and selects nothing.
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The identifier of a policy's entry: entries of `to`, `from` and `rules` are all named `rule_<index>`.
pub fn origin(policy: &Kri, index: usize) -> Kri {
    policy.with_section(&format!("rule_{index}"))
}

/// The reference at the top of a policy, `Some(None)` where it was left out, which means the whole mesh;
/// `None` for kinds that have no such reference.
#[allow(clippy::option_option, reason = "two different absences: no policy, and a policy for the whole mesh")]
pub fn target_ref(spec: &Spec) -> Option<Option<&TargetRef>> {
    match spec {
        Spec::MeshFaultInjection(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshHTTPRoute(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshLoadBalancingStrategy(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshProxyPatch(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshTCPRoute(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshTimeout(spec) => Some(spec.target_ref.as_ref()),
        Spec::MeshTrafficPermission(spec) => Some(spec.target_ref.as_ref()),
        _ => None,
    }
}

/// Who wrote a policy for whom, on Kubernetes; the order is that of precedence.
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
