//! Which policies say something about the same thing.
//!
//! A slot is one thing that policies of a kind can speak of: the same proxies, and there the same destination,
//! the same clients, or the proxy as a whole. Only policies that share a slot can override or contradict each
//! other here, so a changed policy is compared with those of its slots and with no others. Policies that select
//! the same proxies in other words are not compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use policy::{Conf, Policy, view::Role};
use resources::{Key, Kind, kinds::target_ref::TargetRef, labels, policy::PolicyPresentation};
use serde_json::{Value, json};

/// One thing that policies of a kind can speak of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    kind: Kind,
    /// Which proxies, as the policy says it.
    reach: String,
    /// What of them.
    about: String,
}

/// Policies by slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots(BTreeMap<Slot, BTreeSet<Key>>);

impl Slots {
    pub(crate) fn add(&mut self, policy: &Policy) {
        for slot in slots(policy) {
            self.0.entry(slot).or_default().insert(policy.resource.key.clone());
        }
    }

    pub(crate) fn remove(&mut self, policy: &Policy) {
        for slot in slots(policy) {
            let Some(keys) = self.0.get_mut(&slot) else { continue };
            keys.remove(&policy.resource.key);
            if keys.is_empty() {
                self.0.remove(&slot);
            }
        }
    }

    pub(crate) fn policies(&self, slot: &Slot) -> impl Iterator<Item = &Key> {
        self.0.get(slot).into_iter().flatten()
    }

    /// The policies that share a slot with this one, itself among them.
    pub(crate) fn neighbours(&self, policy: &Policy) -> BTreeSet<Key> {
        slots(policy).iter().flat_map(|slot| self.policies(slot)).cloned().collect()
    }
}

/// What a policy speaks of: a permission of clients, others of what their entries are about.
fn slots(policy: &Policy) -> BTreeSet<Slot> {
    match policy.view.traits.effect.map(|effect| effect.shown) {
        Some(PolicyPresentation::Clients) => {
            decisions(policy).into_iter().map(|decision| decision.slot).collect()
        }
        _ => entries(policy).into_iter().map(|(slot, _)| slot).collect(),
    }
}

/// What a permission says about some clients.
#[derive(Debug, Clone)]
pub(crate) struct ClientDecision {
    pub(crate) slot: Slot,
    pub(crate) clients: String,
    pub(crate) allowed: bool,
    /// Whether it is an entry of `from`, of which the order decides.
    pub(crate) in_from: bool,
}

/// What a permission says, client by client.
pub(crate) fn decisions(policy: &Policy) -> Vec<ClientDecision> {
    let (kind, reach) = (policy.resource.kind(), reach(policy));
    let decision = |clients: String, allowed, in_from| ClientDecision {
        slot: Slot { kind, reach: reach.clone(), about: format!("clients {clients}") },
        clients,
        allowed,
        in_from,
    };
    let mut all = Vec::new();
    for entry in &policy.view.from {
        match entry.conf.value.get("action").and_then(Value::as_str) {
            Some("Allow" | "AllowWithShadowDeny") => {
                all.push(decision(json!(entry.target).to_string(), true, true));
            }
            Some("Deny") => all.push(decision(json!(entry.target).to_string(), false, true)),
            _ => {}
        }
    }
    for rule in &policy.view.rules {
        for (list, allowed) in [("allow", true), ("allowWithShadowDeny", true), ("deny", false)] {
            let clients = rule.conf.value.get(list).and_then(Value::as_array).into_iter().flatten();
            all.extend(clients.map(|client| decision(client.to_string(), allowed, false)));
        }
    }
    all
}

/// What a policy says, slot by slot, in the order in which it says it.
pub(crate) fn entries(policy: &Policy) -> Vec<(Slot, Arc<Conf>)> {
    let view = &policy.view;
    let kind = policy.resource.kind();
    let reach = reach(policy);
    let slot = |about: String| Slot { kind, reach: reach.clone(), about };
    let target = |direction: &str, target: &TargetRef| slot(format!("{direction} {}", json!(target)));
    let mut all: Vec<(Slot, Arc<Conf>)> = Vec::new();
    all.extend(view.to.iter().map(|entry| (target("to", &entry.target), entry.conf.clone())));
    all.extend(view.from.iter().map(|entry| (target("from", &entry.target), entry.conf.clone())));
    for rule in &view.rules {
        all.push((slot(format!("rules {}", json!(rule.matches))), rule.conf.clone()));
    }
    all.extend(view.default.iter().map(|conf| (slot("proxy".to_owned()), conf.clone())));
    all
}

/// Everything that decides which proxies a policy selects.
fn reach(policy: &Policy) -> String {
    let resource = &policy.resource;
    let role = Role::of(&resource.labels);
    let namespace = match role {
        Role::System | Role::Producer => None,
        Role::Consumer | Role::WorkloadOwner => resource.label(labels::K8S_NAMESPACE),
    };
    let zone = resource.label(labels::ZONE).filter(|_| role != Role::Producer);
    json!([policy.view.top, namespace, zone, resource.label(labels::ORIGIN)]).to_string()
}
