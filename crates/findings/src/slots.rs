//! Which policies say something about the same thing, and which of them override what another one says.
//!
//! A slot is one thing that policies of a kind can speak of: the same proxies, and there the same destination,
//! the same clients, or the proxy as a whole. Only policies that share a slot can override or contradict each
//! other here. What they say is kept by slot, so that an entry is compared with those about the same thing and
//! with no others, and an entry that changes is compared again without the other entries of its policy.
//! Policies that select the same proxies in other words are not compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use policy::{Conf, Policy, Precedence, conf, view::Role};
use resources::{
    Key, Kind,
    kinds::target_ref::TargetRef,
    labels,
    naming::Kri,
    policy::{PolicyPresentation, Shape},
};
use serde_json::{Value, json};

/// One thing that policies of a kind can speak of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    kind: Kind,
    /// What of the proxies; for permissions, which clients.
    pub(crate) about: String,
    /// Which proxies, as the policy says it.
    reach: Arc<str>,
}

/// What one policy says about one slot.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) policy: Arc<Policy>,
    /// In the order in which the policy says it.
    confs: Vec<Arc<Conf>>,
    /// Of permissions, in place of confs.
    pub(crate) decisions: Vec<ClientDecision>,
    /// Whether policies of higher precedence override all of it; `None` until that is asked for.
    overridden: Option<bool>,
}

/// What an entry of a permission says about its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientDecision {
    pub(crate) allowed: bool,
    /// Whether it is an entry of `from`, of which the order decides.
    pub(crate) in_from: bool,
}

impl Statement {
    fn none_of(policy: &Arc<Policy>) -> Statement {
        Statement { policy: policy.clone(), confs: Vec::new(), decisions: Vec::new(), overridden: None }
    }

    fn precedence(&self) -> &Precedence {
        &self.policy.view.precedence
    }

    /// Whether others are compared with both in the same way.
    fn is_like(&self, other: &Statement) -> bool {
        self.policy.view.kri == other.policy.view.kri
            && self.precedence() == other.precedence()
            && self.confs == other.confs
            && self.decisions == other.decisions
    }
}

/// What policies say about one slot, by precedence: no two policies of a kind have the same.
type Statements = BTreeMap<Precedence, Statement>;

/// What policies say, by slot. Policies that only pretend to be there, or have no effect, are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    by_slot: BTreeMap<Arc<Slot>, Statements>,
    /// The slots of each policy, and its precedence in them.
    by_policy: BTreeMap<Key, (Precedence, Vec<Arc<Slot>>)>,
    compared: u64,
}

impl Slots {
    /// Takes in a policy that was not there, before anything is asked.
    pub(crate) fn add(&mut self, policy: &Arc<Policy>) {
        self.insert(policy, statements(policy));
    }

    /// Takes in another version of a policy, or that it is gone. Gives the policies of which it may be different now
    /// whether they are overridden or contradicted.
    pub(crate) fn replace(&mut self, key: &Key, new: Option<&Arc<Policy>>) -> BTreeSet<Key> {
        let old = self.remove(key);
        let mut said = new.map(statements).unwrap_or_default();
        let mut concerned = BTreeSet::new();
        let slots: BTreeSet<Arc<Slot>> = old.keys().chain(said.keys()).cloned().collect();
        for slot in slots {
            match (old.get(&slot), said.get_mut(&slot)) {
                (Some(old), Some(new)) if old.is_like(new) => new.overridden = old.overridden,
                (old, new) => {
                    let versions = [old, new.as_deref()];
                    let highest = versions.into_iter().flatten().map(Statement::precedence).max();
                    concerned.extend(self.compare_again(&slot, highest));
                }
            }
        }
        if let Some(policy) = new {
            self.insert(policy, said);
        }
        concerned
    }

    fn insert(&mut self, policy: &Arc<Policy>, said: BTreeMap<Arc<Slot>, Statement>) {
        if said.is_empty() {
            return;
        }
        let precedence = &policy.view.precedence;
        let slots = said.keys().cloned().collect();
        self.by_policy.insert(policy.resource.key.clone(), (precedence.clone(), slots));
        for (slot, statement) in said {
            self.by_slot.entry(slot).or_default().insert(precedence.clone(), statement);
        }
    }

    fn remove(&mut self, key: &Key) -> BTreeMap<Arc<Slot>, Statement> {
        let mut removed = BTreeMap::new();
        let Some((precedence, slots)) = self.by_policy.remove(key) else { return removed };
        for slot in slots {
            let Some(statements) = self.by_slot.get_mut(&slot) else { continue };
            let statement = statements.remove(&precedence);
            if statements.is_empty() {
                self.by_slot.remove(&slot);
            }
            removed.extend(statement.map(|statement| (slot, statement)));
        }
        removed
    }

    /// The policies that are compared with one of this precedence: all of a permission's slot, and of others those that
    /// it may override.
    fn compare_again(&mut self, slot: &Slot, precedence: Option<&Precedence>) -> Vec<Key> {
        let (Some(statements), Some(precedence)) = (self.by_slot.get_mut(slot), precedence) else {
            return Vec::new();
        };
        let is_concerned =
            |statement: &&mut Statement| statement.confs.is_empty() || statement.precedence() < precedence;
        let concerned = statements.values_mut().filter(is_concerned).map(|statement| {
            statement.overridden = None;
            statement.policy.resource.key.clone()
        });
        concerned.collect()
    }

    /// The policies that override all that a policy says; `None` where something of it is left.
    pub(crate) fn overriding(&mut self, policy: &Policy) -> Option<BTreeSet<&Kri>> {
        let Slots { by_slot, by_policy, compared } = self;
        let (precedence, slots) = by_policy.get(&policy.resource.key)?;
        // Before anything is merged: most policies are the only one somewhere.
        for slot in slots {
            *compared += 1;
            above(by_slot.get(slot)?, precedence).next()?;
        }
        for slot in slots {
            let statements = by_slot.get_mut(slot)?;
            if !is_overridden(statements, precedence, policy.view.traits.merge, compared)? {
                return None;
            }
        }
        let statements = slots.iter().filter_map(|slot| by_slot.get(slot));
        let by = statements.flat_map(|statements| above(statements, precedence));
        Some(by.map(|statement| &statement.policy.view.kri).collect())
    }

    /// What a policy says, slot by slot, each with what others say about it.
    pub(crate) fn beside(&mut self, policy: &Policy) -> Vec<(&Slot, &Statement, Vec<&Statement>)> {
        let Slots { by_slot, by_policy, compared } = self;
        let Some((precedence, slots)) = by_policy.get(&policy.resource.key) else { return Vec::new() };
        let mut all = Vec::new();
        for slot in slots {
            let Some(statements) = by_slot.get(slot) else { continue };
            let Some(own) = statements.get(precedence) else { continue };
            let others = statements.iter().filter(|(other, _)| *other != precedence);
            let others: Vec<&Statement> = others.map(|(_, statement)| statement).collect();
            *compared += 1 + others.len() as u64;
            all.push((&**slot, own, others));
        }
        all
    }

    /// How many entries were looked at so far.
    pub(crate) fn compared(&self) -> u64 {
        self.compared
    }
}

/// What policies of higher precedence say, the lowest first.
fn above<'a>(statements: &'a Statements, precedence: &Precedence) -> impl Iterator<Item = &'a Statement> {
    let higher = statements.range((Bound::Excluded(precedence.clone()), Bound::Unbounded));
    higher.map(|(_, statement)| statement)
}

/// Whether nothing of what the policy of this precedence says is left when those above it are merged over it. Found out
/// once, until one of those changes.
fn is_overridden(
    statements: &mut Statements,
    precedence: &Precedence,
    shape: Shape,
    compared: &mut u64,
) -> Option<bool> {
    let own = statements.get(precedence)?;
    if own.overridden.is_some() {
        return own.overridden;
    }
    let without: Vec<Arc<Conf>> = above(statements, precedence).flat_map(|it| &it.confs).cloned().collect();
    *compared += without.len() as u64;
    let result = |confs: &[Arc<Conf>]| -> Vec<Value> {
        conf::merged_once(confs, shape).into_iter().map(|merged| merged.conf).collect()
    };
    let kept = result(&without);
    let overridden = own.confs.iter().all(|own| {
        let with: Vec<Arc<Conf>> = std::iter::once(own).chain(&without).cloned().collect();
        result(&with) == kept
    });
    statements.get_mut(precedence)?.overridden = Some(overridden);
    Some(overridden)
}

/// What a policy says, slot by slot: a permission about clients, others about what their entries are about.
fn statements(policy: &Arc<Policy>) -> BTreeMap<Arc<Slot>, Statement> {
    let mut said: BTreeMap<Arc<Slot>, Statement> = BTreeMap::new();
    let pretends = policy.resource.label(labels::EFFECT) == Some("shadow");
    let Some(effect) = policy.view.traits.effect.filter(|_| !pretends) else { return said };
    let (kind, reach) = (policy.resource.kind(), reach(policy));
    let slot = |about: String| Arc::new(Slot { kind, about, reach: reach.clone() });
    match effect.shown {
        PolicyPresentation::Clients => {
            for (clients, decision) in decisions(policy) {
                let statement = said.entry(slot(clients));
                statement.or_insert_with(|| Statement::none_of(policy)).decisions.push(decision);
            }
        }
        PolicyPresentation::Confs | PolicyPresentation::Routes { .. } => {
            for (about, conf) in entries(policy) {
                let statement = said.entry(slot(about));
                statement.or_insert_with(|| Statement::none_of(policy)).confs.push(conf);
            }
        }
    }
    said
}

/// What a permission says, with the clients it is about.
fn decisions(policy: &Policy) -> Vec<(String, ClientDecision)> {
    let mut all = Vec::new();
    for entry in &policy.view.from {
        let allowed = match entry.conf.value.get("action").and_then(Value::as_str) {
            Some("Allow" | "AllowWithShadowDeny") => true,
            Some("Deny") => false,
            _ => continue,
        };
        all.push((json!(entry.target).to_string(), ClientDecision { allowed, in_from: true }));
    }
    for rule in &policy.view.rules {
        for (list, allowed) in [("allow", true), ("allowWithShadowDeny", true), ("deny", false)] {
            let clients = rule.conf.value.get(list).and_then(Value::as_array).into_iter().flatten();
            let decision = ClientDecision { allowed, in_from: false };
            all.extend(clients.map(|client| (client.to_string(), decision)));
        }
    }
    all
}

/// What a policy says, in the order in which it says it.
fn entries(policy: &Policy) -> Vec<(String, Arc<Conf>)> {
    let view = &policy.view;
    let target = |direction: &str, target: &TargetRef| format!("{direction} {}", json!(target));
    let mut all: Vec<(String, Arc<Conf>)> = Vec::new();
    all.extend(view.to.iter().map(|entry| (target("to", &entry.target), entry.conf.clone())));
    all.extend(view.from.iter().map(|entry| (target("from", &entry.target), entry.conf.clone())));
    all.extend(view.rules.iter().map(|rule| (format!("rules {}", json!(rule.matches)), rule.conf.clone())));
    all.extend(view.default.iter().map(|conf| ("proxy".to_owned(), conf.clone())));
    all
}

/// Everything that decides which proxies a policy selects.
fn reach(policy: &Policy) -> Arc<str> {
    let resource = &policy.resource;
    let role = Role::of(&resource.labels);
    let namespace = match role {
        Role::System | Role::Producer => None,
        Role::Consumer | Role::WorkloadOwner => resource.label(labels::K8S_NAMESPACE),
    };
    let zone = resource.label(labels::ZONE).filter(|_| role != Role::Producer);
    json!([policy.view.top, namespace, zone, resource.label(labels::ORIGIN)]).to_string().into()
}
