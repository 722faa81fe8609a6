//! What may be wrong with one policy.

use std::{collections::BTreeSet, sync::Arc};

use plan::effective;
use policy::{Conf, Policy, conf};
use resources::{
    Key, Kind,
    finding::{Code, Finding},
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
    naming::Kri,
    policy::PolicyPresentation,
};
use serde_json::Value;
use topology::MeshSnapshot;

use crate::{
    clients::{self, Clients},
    slots::{ClientDecision, Slots, decisions, entries},
};

/// Everything that is wrong with a policy.
pub(crate) fn examine(
    mesh: &MeshSnapshot,
    slots: &Slots,
    clients: &Clients,
    policy: &Policy,
) -> Vec<Finding> {
    // It only pretends to be there.
    if policy.resource.label(labels::EFFECT) == Some("shadow") {
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(matches_nothing(mesh, policy));
    found.extend(needs_mtls(mesh, policy));
    found.extend(unknown_targets(mesh, policy));
    let unknown = clients::named(policy).into_iter().filter(|named| !clients.knows(mesh, &named.service));
    found.extend(unknown.map(|named| about(policy, Code::UnknownClient, named.text)));
    match policy.view.traits.effect.map(|effect| effect.shown) {
        Some(PolicyPresentation::Clients) => found.extend(contradictions(mesh, slots, policy)),
        Some(PolicyPresentation::Confs | PolicyPresentation::Routes { .. }) => {
            found.extend(shadowed(mesh, slots, policy))
        }
        None => {}
    }
    found
}

fn about(policy: &Policy, code: Code, text: String) -> Finding {
    Finding::about(code, policy.view.kri.clone(), text)
}

/// A policy for the whole mesh, or for all gateways of it, is for what may come; others mean something.
fn matches_nothing(mesh: &MeshSnapshot, policy: &Policy) -> Option<Finding> {
    if policy.view.top.kind == K::Mesh || effective::selects_any(mesh, policy) {
        return None;
    }
    let top = shown(&policy.view.top);
    Some(about(policy, Code::MatchesNothing, format!("targetRef {top} selects no Dataplane")))
}

/// Whether proxies of the mesh have certificates: of its own authority, or of a MeshIdentity.
pub(crate) fn has_mtls(mesh: &MeshSnapshot) -> bool {
    mesh.mtls.is_some() || mesh.identities.any_ready()
}

fn needs_mtls(mesh: &MeshSnapshot, policy: &Policy) -> Option<Finding> {
    if has_mtls(mesh) {
        return None;
    }
    if policy.resource.kind() == Kind::MeshTLS {
        let text = format!("mesh {} has no mutual TLS to say anything about", mesh.name);
        return Some(about(policy, Code::NeedsMtls, text));
    }
    if policy.resource.kind() == Kind::MeshTrafficPermission {
        let text = format!("mesh {} has no mutual TLS, so every call is allowed", mesh.name);
        return Some(about(policy, Code::NeedsMtls, text));
    }
    let matched = policy.view.rules.iter().position(|rule| !rule.matches.is_empty())?;
    let text = format!("rules[{matched}] is for certain clients, and mesh {} has no mutual TLS", mesh.name);
    Some(about(policy, Code::NeedsMtls, text))
}

fn unknown_targets(mesh: &MeshSnapshot, policy: &Policy) -> Vec<Finding> {
    let entries = policy.view.to.iter().enumerate();
    let unknown = entries.filter(|(_, entry)| !effective::knows(mesh, &policy.view.kri, &entry.target));
    unknown
        .map(|(at, entry)| {
            let text = format!("to[{at}].targetRef {} does not exist", shown(&entry.target));
            about(policy, Code::UnknownTarget, text)
        })
        .collect()
}

/// Whether all that the policy says is overridden by policies that select the same proxies.
fn shadowed(mesh: &MeshSnapshot, slots: &Slots, policy: &Policy) -> Option<Finding> {
    let shape = policy.view.traits.merge;
    let said = entries(policy);
    if said.is_empty() {
        return None;
    }
    let mut by: BTreeSet<Kri> = BTreeSet::new();
    for (slot, own) in &said {
        let mut above: Vec<(&Arc<Policy>, Arc<Conf>)> = Vec::new();
        for other in others(mesh, slots.policies(slot), policy) {
            if other.view.precedence > policy.view.precedence {
                let same = entries(other).into_iter().filter(|(place, _)| place == slot);
                above.extend(same.map(|(_, conf)| (other, conf)));
            }
        }
        above.sort_by(|(a, _), (b, _)| a.view.precedence.cmp(&b.view.precedence));
        let without: Vec<Arc<Conf>> = above.iter().map(|(_, conf)| conf.clone()).collect();
        let with: Vec<Arc<Conf>> = std::iter::once(own).chain(&without).cloned().collect();
        let result = |confs: &[Arc<Conf>]| -> Vec<Value> {
            conf::merged(confs, shape).iter().map(|merged| merged.conf.clone()).collect()
        };
        if without.is_empty() || result(&with) != result(&without) {
            return None;
        }
        by.extend(above.into_iter().map(|(other, _)| other.view.kri.clone()));
    }
    let by: Vec<String> = by.iter().map(Kri::to_string).collect();
    Some(about(policy, Code::Shadowed, format!("overridden by {}", by.join(", "))))
}

/// Permissions that say the opposite about the same clients, and entries of this one that do.
fn contradictions(mesh: &MeshSnapshot, slots: &Slots, policy: &Policy) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    let own = decisions(policy);
    for said in &own {
        let opposite = |other: &ClientDecision| other.slot == said.slot && other.allowed != said.allowed;
        for other in others(mesh, slots.policies(&said.slot), policy) {
            if decisions(other).iter().any(opposite) {
                let wins = match said.in_from {
                    true if other.view.precedence > policy.view.precedence => "that one wins",
                    true => "this one wins",
                    false if said.allowed => "that one wins, because it denies",
                    false => "this one wins, because it denies",
                };
                let text = format!("{} says the opposite about {}; {wins}", other.view.kri, said.clients);
                found.insert(text);
            }
        }
        if said.allowed && own.iter().any(opposite) {
            let last = own.iter().rfind(|it| it.slot == said.slot).map(|last| last.allowed);
            let wins = match (said.in_from, last) {
                (true, Some(true)) => "the last entry wins, which allows them",
                (true, _) => "the last entry wins, which denies them",
                (false, _) => "the deny wins",
            };
            found.insert(format!("it both allows and denies {}; {wins}", said.clients));
        }
    }
    found.into_iter().map(|text| about(policy, Code::Contradiction, text)).collect()
}

/// The policies behind these keys, without the one that is looked at and those that only pretend to be there.
fn others<'a>(
    mesh: &'a MeshSnapshot,
    keys: impl Iterator<Item = &'a Key>,
    policy: &Policy,
) -> Vec<&'a Arc<Policy>> {
    keys.filter(|key| **key != policy.resource.key)
        .filter_map(|key| mesh.policies.get(key))
        .filter(|other| other.resource.label(labels::EFFECT) != Some("shadow"))
        .collect()
}

/// A reference in few words: `MeshService backend:http`.
pub(crate) fn shown(target: &TargetRef) -> String {
    let mut words = vec![target.kind.to_string()];
    words.extend(target.name.clone());
    for map in [&target.labels, &target.tags].into_iter().flatten() {
        words.extend(map.iter().map(|(name, value)| format!("{name}={value}")));
    }
    if let Some(section) = target.section_name.as_ref().filter(|section| !section.is_empty()) {
        words.push(format!("section {section}"));
    }
    words.join(" ")
}
