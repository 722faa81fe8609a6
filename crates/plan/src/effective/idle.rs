//! Policies that do nothing after a change, and did something before or are new.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use policy::Policy;
use resources::{Key, Kind, Resource, labels};
use topology::{Affected, AllMeshes, MeshSnapshot, MeshUpdate};

use super::{Applying, KINDS, selected_within};
use crate::{
    Calls, Class, ProxyTraits,
    budget::{Budget, Spent},
    outgoing, own,
};

/// Limit of policies that are looked at.
const MAX_POLICIES: usize = 200;
/// A policy that selects more proxies than this is not said to be shadowed: that would take planning all of them.
const MAX_PROXIES: usize = 200;
/// Limit of proxies through which the neighbours of a policy are looked for.
const NEIGHBOURS_OF: usize = 20;

/// Reason why a policy has no effect.
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

/// Policies that do nothing, as far as was looked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IdlePolicies {
    pub found: Vec<IdlePolicy>,
    /// Number of policies that were not looked at.
    pub left_out: usize,
}

/// The policies that these updates leave without effect, as far as the budget goes. `after` is the state that the
/// updates made of `before`.
pub fn becoming_idle(
    before: &AllMeshes,
    after: &AllMeshes,
    updates: &[MeshUpdate],
    budget: &Budget,
) -> IdlePolicies {
    let mut idle = IdlePolicies::default();
    for update in updates {
        let Some(mesh) = &update.snapshot else { continue };
        let old = before.mesh(&update.mesh);
        let candidates = candidates(update, old.map(|mesh| &**mesh), mesh, budget);
        let count = candidates.len();
        for (at, (key, is_new)) in candidates.into_iter().enumerate() {
            let was = old.filter(|_| !is_new).map(|mesh| Version { state: before, mesh });
            let is = Version { state: after, mesh };
            let found = if at < MAX_POLICIES { becomes_idle(was, is, &key, budget) } else { Err(Spent) };
            match found {
                Ok(found) => idle.found.extend(found),
                Err(Spent) => {
                    idle.left_out += count - at;
                    break;
                }
            }
        }
    }
    idle
}

/// A mesh on one side of a change.
#[derive(Clone, Copy)]
struct Version<'a> {
    state: &'a AllMeshes,
    mesh: &'a MeshSnapshot,
}

impl Version<'_> {
    fn judge(self, key: &Key, budget: &Budget) -> Result<Option<IdleReason>, Spent> {
        let policy = self.mesh.policies.get(key);
        policy.map_or(Ok(None), |policy| judge(self.state, self.mesh, policy, budget))
    }
}

/// A policy that does nothing after a change and did something before, if there was a before.
fn becomes_idle(
    was: Option<Version<'_>>,
    is: Version<'_>,
    key: &Key,
    budget: &Budget,
) -> Result<Option<IdlePolicy>, Spent> {
    let Some(reason) = is.judge(key, budget)? else { return Ok(None) };
    let before = was.map_or(Ok(None), |was| was.judge(key, budget))?;
    let policy = is.mesh.policies.get(key).filter(|_| before != Some(reason));
    Ok(policy.map(|policy| IdlePolicy { policy: policy.resource.clone(), reason }))
}

/// Policies that may have become idle, each with whether it is one of those that change: these themselves, those they
/// share proxies with, and those that selected Dataplanes that change.
fn candidates(
    update: &MeshUpdate,
    before: Option<&MeshSnapshot>,
    after: &MeshSnapshot,
    budget: &Budget,
) -> BTreeMap<Key, bool> {
    let Affected {
        policies,
        proxies: changed_proxies,
        // A policy is idle because of the Dataplanes it selects and the policies beside it.
        whole_mesh: _,
        destinations: _,
        services: _,
        endpoints: _,
        virtual_hosts: _,
        globals: _,
        zones: _,
        access_rules: _,
        reachability: _,
        reachability_by_default: _,
    } = &update.affected;
    let mut found = BTreeMap::new();
    let mut proxies: BTreeSet<(Kind, Arc<str>)> = BTreeSet::new();
    for change in policies {
        for (mesh, policy) in [(before, &change.old), (Some(after), &change.new)] {
            let (Some(mesh), Some(policy)) = (mesh, policy) else { continue };
            let some = selected_within(mesh, policy, budget).unwrap_or_default();
            let some = some.into_iter().take(NEIGHBOURS_OF);
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
    for name in changed_proxies.iter().take(MAX_POLICIES) {
        let Some((mesh, dataplane)) = before.and_then(|mesh| Some((mesh, mesh.dataplanes.get(name)?))) else {
            continue;
        };
        for policy in mesh.candidates(dataplane).take(MAX_POLICIES) {
            found.entry(policy.resource.key.clone()).or_insert(false);
        }
    }
    found
}

/// Returns the reason why a policy has no effect; `None` if it has one, or if that is not known.
fn judge(
    state: &AllMeshes,
    mesh: &MeshSnapshot,
    policy: &Policy,
    budget: &Budget,
) -> Result<Option<IdleReason>, Spent> {
    let resource = &policy.resource;
    let pretends = resource.label(labels::EFFECT) == Some("shadow");
    if pretends || !KINDS.contains(&resource.kind()) {
        return Ok(None);
    }
    let dataplanes = selected_within(mesh, policy, budget)?;
    if dataplanes.is_empty() {
        return Ok(Some(IdleReason::MatchesNothing));
    }
    if dataplanes.len() > MAX_PROXIES {
        return Ok(None);
    }
    let mut without = AllMeshes::clone(state);
    let updates = without.apply(&[(resource.key.clone(), None)]);
    let Some(without) = updates.into_iter().find_map(|update| update.snapshot) else { return Ok(None) };
    for dataplane in dataplanes {
        if !is_same(mesh, &without, dataplane, budget)? {
            return Ok(None);
        }
    }
    Ok(Some(IdleReason::Shadowed))
}

/// A proxy gets the same plan in both.
fn is_same(
    mesh: &MeshSnapshot,
    without: &MeshSnapshot,
    dataplane: &Arc<Resource>,
    budget: &Budget,
) -> Result<bool, Spent> {
    let traits = ProxyTraits::assumed(dataplane.mesh(), dataplane.name());
    let plan = |mesh: &MeshSnapshot| {
        let applying = Applying::of(mesh, dataplane);
        budget.spend(1 + applying.iter().count())?;
        let Ok(own) = own(mesh, &traits, &applying) else { return Ok(None) };
        let outgoing = outgoing(mesh, &Class::of(&traits, dataplane, Calls::of(dataplane), applying));
        budget.spend(outgoing.outbounds.len())?;
        Ok(Some((own, outgoing.outbounds, outgoing.backends)))
    };
    Ok(plan(mesh)? == plan(without)?)
}
