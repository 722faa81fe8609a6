//! Policies that would do nothing, and do something now or are new.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::inspect::what_if::{Idle, IdleReason};
use plan::{Calls, ProxyTraits, effective::KINDS};
use policy::Policy;
use resources::{Key, Kind, Resource, labels};
use serde_json::Value;
use topology::{MeshSnapshot, MeshUpdate, State};

use crate::{
    dp_server::proxy,
    push::{Hypothetical, planned},
};

/// How many policies are looked at.
const MAX_POLICIES: usize = 200;
/// A policy that selects more proxies than this is not said to be shadowed: that would take planning all of them.
const MAX_PROXIES: usize = 200;
/// How many proxies are planned to find that out, all policies together.
const MAX_PLANS: usize = 500;
/// Through how many of its proxies the neighbours of a policy are looked for.
const NEIGHBOURS_OF: usize = 20;

/// The policies that would be idle.
pub fn idle(would: &Hypothetical) -> Vec<Idle> {
    let mut found = Vec::new();
    let mut plans = 0;
    for update in &would.updates {
        let Some(after) = &update.snapshot else { continue };
        let before = would.before.mesh(&update.mesh);
        for (key, is_new) in
            candidates(update, before.map(|mesh| &**mesh), after).into_iter().take(MAX_POLICIES)
        {
            let Some(policy) = after.policies.get(&key) else { continue };
            let Some(reason) = judge(&would.after, after, policy, &mut plans) else { continue };
            let before = before.filter(|_| !is_new).and_then(|mesh| {
                let was = mesh.policies.get(&key)?;
                judge(&would.before, mesh, was, &mut plans)
            });
            if before != Some(reason) {
                found.push(told(&policy.resource, reason));
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
            let selected = plan::effective::selected(mesh, &policy.resource).into_iter().take(NEIGHBOURS_OF);
            proxies.extend(selected.map(|dataplane| (policy.resource.kind(), dataplane.key.name.clone())));
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
    let selected = plan::effective::selected(mesh, resource);
    if selected.is_empty() {
        return Some(IdleReason::MatchesNothing);
    }
    if selected.len() > MAX_PROXIES {
        return None;
    }
    let mut without = State::clone(state);
    let updates = without.apply(&[(resource.key.clone(), None)]);
    let without = updates.into_iter().find_map(|update| update.snapshot)?;
    let needless = selected.into_iter().all(|dataplane| {
        *plans += 1;
        *plans <= MAX_PLANS && is_same(mesh, &without, dataplane)
    });
    needless.then_some(IdleReason::Shadowed)
}

/// Whether a proxy gets the same plan in both.
fn is_same(mesh: &MeshSnapshot, without: &MeshSnapshot, dataplane: &Resource) -> bool {
    let traits: ProxyTraits = proxy::traits(dataplane.mesh(), dataplane.name(), &Value::Null);
    let plan = |mesh: &MeshSnapshot| {
        let (own, class, _) = planned(mesh, &traits, Calls::of).ok()?;
        let outgoing = plan::outgoing(mesh, &class);
        Some((own, outgoing.outbounds, outgoing.backends))
    };
    plan(mesh) == plan(without)
}

fn told(policy: &Resource, reason: IdleReason) -> Idle {
    let text = match reason {
        IdleReason::MatchesNothing => "it selects no Dataplane: check its targetRef".to_owned(),
        IdleReason::Shadowed => {
            "every proxy that it selects would be configured the same without it: others set the same \
            values or override it, or what it refers to does not exist"
                .to_owned()
        }
    };
    Idle {
        r#type: policy.kind().name(),
        mesh: policy.mesh().to_owned(),
        name: policy.name().to_owned(),
        kri: policy.kri("").map(|kri| kri.to_string()),
        reason,
        text,
    }
}
