//! Policies about the same thing, and those that override others.
//!
//! A slot is one thing that policies of a kind can speak of: the same proxies, and there the same
//! destination, the same clients, or the proxy as a whole. Only policies that share a slot can override or
//! contradict each other here. Their statements are kept by slot, so that an entry is compared with those
//! about the same thing and with no others, and an entry that changes is compared again without the other
//! entries of its policy. Policies that select the same proxies in other words are not compared.

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
    /// Part of the proxies; for permissions, the clients.
    pub(crate) about: String,
    /// Proxies that the policy is for, in its own words.
    reach: Arc<str>,
}

/// Statement of one policy about one slot.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) policy: Arc<Policy>,
    /// In the order in which the policy says it.
    confs: Vec<Arc<Conf>>,
    /// Of permissions, in place of confs.
    decisions: Vec<ClientDecision>,
    /// Policies of higher precedence override all of it; `None` until that is asked for.
    overridden: Option<bool>,
}

/// Decision of a permission's entry about its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientDecision {
    pub(crate) allowed: bool,
    /// The entry is one of `from`, whose order decides.
    pub(crate) in_from: bool,
}

/// Statement of a policy about a slot, and statements of others against it.
pub(crate) struct ContestedStatement<'a> {
    pub(crate) about: &'a str,
    pub(crate) own: &'a Statement,
    /// Decision of the policy, whatever its other entries say.
    pub(crate) decision: ClientDecision,
    /// Number of policies that decide the opposite.
    pub(crate) opponents: usize,
    /// Some of these, those of the highest precedence first.
    pub(crate) examples: Vec<&'a Statement>,
}

impl Statement {
    fn key(&self) -> Key {
        self.policy.resource.key.clone()
    }

    fn none_of(policy: &Arc<Policy>) -> Statement {
        Statement { policy: policy.clone(), confs: Vec::new(), decisions: Vec::new(), overridden: None }
    }

    pub(crate) fn precedence(&self) -> &Precedence {
        &self.policy.view.precedence
    }

    /// Combines the entries of a permission: in `from` the last one decides, in `rules` a deny.
    fn decision(&self) -> Option<ClientDecision> {
        let last = *self.decisions.last()?;
        let allowed = last.allowed && (last.in_from || self.decisions.iter().all(|said| said.allowed));
        Some(ClientDecision { allowed, ..last })
    }

    pub(crate) fn contradicts_itself(&self) -> bool {
        self.decisions.windows(2).any(|pair| pair[0].allowed != pair[1].allowed)
    }

    /// Comparing others with either gives the same result.
    fn is_like(&self, other: &Statement) -> bool {
        self.policy.view.kri == other.policy.view.kri
            && self.precedence() == other.precedence()
            && self.confs == other.confs
            && self.decisions == other.decisions
    }
}

/// Statements of policies about one slot, by precedence: no two policies of a kind have the same.
type Statements = BTreeMap<Arc<Precedence>, Statement>;

/// All statements about one slot. Denials stand apart, so that the policies that decide the opposite of one
/// are counted, not looked through.
#[derive(Debug, Clone, Default)]
struct SlotStatements {
    denials: Statements,
    others: Statements,
}

impl SlotStatements {
    /// The statements that one with this decision is among.
    fn with(&mut self, decision: Option<ClientDecision>) -> &mut Statements {
        if decision.is_some_and(|decision| !decision.allowed) { &mut self.denials } else { &mut self.others }
    }

    /// The permissions that decide the opposite.
    fn against(&self, decision: ClientDecision) -> &Statements {
        if decision.allowed { &self.denials } else { &self.others }
    }

    fn of(&self, precedence: &Precedence) -> Option<&Statement> {
        self.others.get(precedence).or_else(|| self.denials.get(precedence))
    }

    fn insert(&mut self, precedence: Arc<Precedence>, statement: Statement) {
        self.with(statement.decision()).insert(precedence, statement);
    }

    fn remove(&mut self, precedence: &Precedence) -> Option<Statement> {
        self.others.remove(precedence).or_else(|| self.denials.remove(precedence))
    }

    fn is_empty(&self) -> bool {
        self.denials.is_empty() && self.others.is_empty()
    }
}

/// The slots of a policy, and its precedence in them.
#[derive(Debug, Clone)]
struct PolicySlots {
    precedence: Arc<Precedence>,
    slots: Vec<Arc<Slot>>,
}

/// Statements of policies, by slot. Policies that only pretend to be there, or have no effect, are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    by_slot: BTreeMap<Arc<Slot>, SlotStatements>,
    by_policy: BTreeMap<Key, PolicySlots>,
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
                    for version in [old, new.as_deref()].into_iter().flatten() {
                        concerned.extend(self.compare_again(&slot, version));
                    }
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
        let precedence = Arc::new(policy.view.precedence.clone());
        let mut slots = Vec::with_capacity(said.len());
        for (slot, statement) in said {
            // One copy of what a slot is, however many policies speak of it.
            let slot = self.by_slot.get_key_value(&slot).map_or(slot, |(known, _)| known.clone());
            slots.push(slot.clone());
            self.by_slot.entry(slot).or_default().insert(precedence.clone(), statement);
        }
        self.by_policy.insert(policy.resource.key.clone(), PolicySlots { precedence, slots });
    }

    fn remove(&mut self, key: &Key) -> BTreeMap<Arc<Slot>, Statement> {
        let mut removed = BTreeMap::new();
        let Some(PolicySlots { precedence, slots }) = self.by_policy.remove(key) else { return removed };
        for slot in slots {
            let Some(said) = self.by_slot.get_mut(&slot) else { continue };
            let statement = said.remove(&precedence);
            if said.is_empty() {
                self.by_slot.remove(&slot);
            }
            removed.extend(statement.map(|statement| (slot, statement)));
        }
        removed
    }

    /// The policies that are compared with a statement that came or went: of a permission those that decide the
    /// opposite, and of others those that it may override.
    fn compare_again(&mut self, slot: &Slot, changed: &Statement) -> Vec<Key> {
        let Some(said) = self.by_slot.get_mut(slot) else { return Vec::new() };
        if let Some(decision) = changed.decision() {
            return said.against(decision).values().map(Statement::key).collect();
        }
        let below = (Bound::Unbounded, Bound::Excluded(changed.precedence()));
        let concerned = said.others.range_mut::<Precedence, _>(below).map(|(_, statement)| {
            statement.overridden = None;
            statement.key()
        });
        concerned.collect()
    }

    /// The policies that override all that a policy says; `None` where something of it is left.
    pub(crate) fn overriding(&mut self, policy: &Policy) -> Option<BTreeSet<&Kri>> {
        let Slots { by_slot, by_policy, compared } = self;
        let PolicySlots { precedence, slots } = by_policy.get(&policy.resource.key)?;
        // Before anything is merged: most policies are the only one somewhere.
        for slot in slots {
            *compared += 1;
            above(&by_slot.get(slot)?.others, precedence).next()?;
        }
        for slot in slots {
            let statements = &mut by_slot.get_mut(slot)?.others;
            if !is_overridden(statements, precedence, policy.view.traits.merge, compared)? {
                return None;
            }
        }
        let said = slots.iter().filter_map(|slot| by_slot.get(slot));
        let by = said.flat_map(|said| above(&said.others, precedence));
        Some(by.map(|statement| &statement.policy.view.kri).collect())
    }

    /// Returns the statements of a permission, slot by slot, each with at most so many of those that decide
    /// the opposite.
    pub(crate) fn contested(&mut self, policy: &Policy, examples: usize) -> Vec<ContestedStatement<'_>> {
        let Slots { by_slot, by_policy, compared } = self;
        let Some(PolicySlots { precedence, slots }) = by_policy.get(&policy.resource.key) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for slot in slots {
            let Some(said) = by_slot.get(slot) else { continue };
            let Some(own) = said.of(precedence) else { continue };
            let Some(decision) = own.decision() else { continue };
            let against = said.against(decision);
            let examples: Vec<&Statement> = against.values().rev().take(examples).collect();
            *compared += 1 + examples.len() as u64;
            all.push(ContestedStatement {
                about: &slot.about,
                own,
                decision,
                opponents: against.len(),
                examples,
            });
        }
        all
    }

    /// Returns the number of entries that were looked at so far.
    pub(crate) fn compared(&self) -> u64 {
        self.compared
    }
}

/// Returns the statements of policies with higher precedence, the lowest first.
fn above<'a>(statements: &'a Statements, precedence: &Precedence) -> impl Iterator<Item = &'a Statement> {
    let higher = statements.range::<Precedence, _>((Bound::Excluded(precedence), Bound::Unbounded));
    higher.map(|(_, statement)| statement)
}

/// Nothing of the policy with this precedence is left when those above it are merged over it. Computed once,
/// until one of those changes.
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

/// Returns the statements of a policy, slot by slot: a permission is about clients, others are about the
/// targets of their entries.
fn statements(policy: &Arc<Policy>) -> BTreeMap<Arc<Slot>, Statement> {
    let mut said: BTreeMap<Arc<Slot>, Statement> = BTreeMap::new();
    let pretends = policy.resource.label(labels::EFFECT) == Some("shadow");
    let Some(effect) = policy.view.traits.effect.filter(|_| !pretends) else { return said };
    let kind = policy.resource.kind();
    let reach = reach(policy);
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

/// Returns the decisions of a permission, each with its clients.
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

/// Returns the entries of a policy in their order.
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
