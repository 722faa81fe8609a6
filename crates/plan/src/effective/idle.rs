//! Policies that do nothing after a change, and did something before or are new.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use policy::Policy;
use resources::{Key, Kind, Resource, labels};
use topology::{MeshSnapshot, MeshUpdate, State};

use super::{Applying, KINDS, selected};
use crate::{Calls, Class, ProxyTraits, outgoing, own};

/// How many policies are looked at.
const MAX_POLICIES: usize = 200;
/// A policy that selects more proxies than this is not said to be shadowed: that would take planning all of them.
const MAX_PROXIES: usize = 200;
/// How many proxies are planned to find that out, all policies together.
const MAX_PLANS: usize = 500;
/// Through how many of its proxies the neighbours of a policy are looked for.
const NEIGHBOURS_OF: usize = 20;

/// Why a policy does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleReason {
    /// It selects no Dataplane.
    MatchesNothing,
    /// Without it every proxy that it selects would be configured the same.
    Shadowed,
}

impl fmt::Display for IdleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdleReason::MatchesNothing => "it selects no Dataplane: check its targetRef",
            IdleReason::Shadowed => {
                "every proxy that it selects would be configured the same without it: others set the same \
                 values or override it, or what it refers to does not exist"
            }
        })
    }
}

/// A policy that does nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct IdlePolicy {
    pub policy: Arc<Resource>,
    pub reason: IdleReason,
}

/// The policies that these updates leave without effect. `after` is the state that the updates made of `before`.
pub fn becoming_idle(before: &State, after: &State, updates: &[MeshUpdate]) -> Vec<IdlePolicy> {
    let mut found = Vec::new();
    let mut plans = 0;
    for update in updates {
        let Some(mesh) = &update.snapshot else { continue };
        let old = before.mesh(&update.mesh);
        let candidates = candidates(update, old.map(|mesh| &**mesh), mesh);
        for (key, is_new) in candidates.into_iter().take(MAX_POLICIES) {
            let Some(policy) = mesh.policies.get(&key) else { continue };
            let Some(reason) = judge(after, mesh, policy, &mut plans) else { continue };
            let was = old.filter(|_| !is_new).and_then(|mesh| {
                let policy = mesh.policies.get(&key)?;
                judge(before, mesh, policy, &mut plans)
            });
            if was != Some(reason) {
                found.push(IdlePolicy { policy: policy.resource.clone(), reason });
            }
        }
    }
    found
}

/// Policies that may have become idle, each with whether it is one of those that change: these themselves, those they
/// share proxies with, and those that selected Dataplanes that change.
fn candidates(
    update: &MeshUpdate,
    before: Option<&MeshSnapshot>,
    after: &MeshSnapshot,
) -> BTreeMap<Key, bool> {
    let mut found = BTreeMap::new();
    let mut proxies: BTreeSet<(Kind, Arc<str>)> = BTreeSet::new();
    for change in &update.affected.policies {
        for (mesh, policy) in [(before, &change.old), (Some(after), &change.new)] {
            let (Some(mesh), Some(policy)) = (mesh, policy) else { continue };
            let some = selected(mesh, &policy.resource).into_iter().take(NEIGHBOURS_OF);
            proxies.extend(some.map(|dataplane| (policy.resource.kind(), dataplane.key.name.clone())));
        }
        if let Some(policy) = &change.new {
            found.insert(policy.resource.key.clone(), true);
        }
    }
    for (kind, name) in proxies {
        let Some(dataplane) = after.dataplanes.get(&name) else { continue };
        let beside = after.candidates(dataplane).filter(|policy| policy.resource.kind() == kind);
        for policy in beside.take(MAX_POLICIES) {
            found.entry(policy.resource.key.clone()).or_insert(false);
        }
    }
    for name in update.affected.proxies.iter().take(MAX_POLICIES) {
        let Some((mesh, dataplane)) = before.and_then(|mesh| Some((mesh, mesh.dataplanes.get(name)?))) else {
            continue;
        };
        for policy in mesh.candidates(dataplane).take(MAX_POLICIES) {
            found.entry(policy.resource.key.clone()).or_insert(false);
        }
    }
    found
}

/// Why a policy does nothing; `None` for one that does something, or of which that is not known.
fn judge(state: &State, mesh: &MeshSnapshot, policy: &Policy, plans: &mut usize) -> Option<IdleReason> {
    let resource = &policy.resource;
    let pretends = resource.label(labels::EFFECT) == Some("shadow");
    if pretends || !KINDS.contains(&resource.kind()) {
        return None;
    }
    let dataplanes = selected(mesh, resource);
    if dataplanes.is_empty() {
        return Some(IdleReason::MatchesNothing);
    }
    if dataplanes.len() > MAX_PROXIES {
        return None;
    }
    let mut without = State::clone(state);
    let updates = without.apply(&[(resource.key.clone(), None)]);
    let without = updates.into_iter().find_map(|update| update.snapshot)?;
    let needless = dataplanes.into_iter().all(|dataplane| {
        *plans += 1;
        *plans <= MAX_PLANS && is_same(mesh, &without, dataplane)
    });
    needless.then_some(IdleReason::Shadowed)
}

/// Whether a proxy gets the same plan in both.
fn is_same(mesh: &MeshSnapshot, without: &MeshSnapshot, dataplane: &Arc<Resource>) -> bool {
    let traits = ProxyTraits::assumed(dataplane.mesh(), dataplane.name());
    let plan = |mesh: &MeshSnapshot| {
        let applying = Applying::of(mesh, dataplane);
        let own = own(mesh, &traits, &applying).ok()?;
        let outgoing = outgoing(mesh, &Class::of(&traits, dataplane, Calls::of(dataplane), applying));
        Some((own, outgoing.outbounds, outgoing.backends))
    };
    plan(mesh) == plan(without)
}
