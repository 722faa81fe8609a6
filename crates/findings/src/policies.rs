//! What may be wrong with one policy.

use std::collections::BTreeSet;

use plan::effective;
use policy::Policy;
use resources::{
    Kind,
    finding::{Code, Finding},
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
    naming::Kri,
    policy::PolicyPresentation,
};
use topology::MeshSnapshot;

use crate::{
    clients::{self, Clients},
    slots::{ClientDecision, Slots},
};

/// Everything that is wrong with a policy.
pub(crate) fn examine(
    mesh: &MeshSnapshot,
    slots: &mut Slots,
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
        Some(PolicyPresentation::Clients) => found.extend(contradictions(slots, policy)),
        Some(PolicyPresentation::Confs | PolicyPresentation::Routes { .. }) => {
            found.extend(shadowed(slots, policy))
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
fn shadowed(slots: &mut Slots, policy: &Policy) -> Option<Finding> {
    let by: Vec<String> = slots.overriding(policy)?.into_iter().map(Kri::to_string).collect();
    Some(about(policy, Code::Shadowed, format!("overridden by {}", by.join(", "))))
}

/// Permissions that say the opposite about the same clients, and entries of this one that do.
fn contradictions(slots: &mut Slots, policy: &Policy) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    for (slot, own, others) in slots.beside(policy) {
        let clients = &slot.about;
        for said in &own.decisions {
            let opposite = |other: &ClientDecision| other.allowed != said.allowed;
            for other in others.iter().filter(|other| other.decisions.iter().any(opposite)) {
                let other = &other.policy.view;
                let wins = match said.in_from {
                    true if other.precedence > policy.view.precedence => "that one wins",
                    true => "this one wins",
                    false if said.allowed => "that one wins, because it denies",
                    false => "this one wins, because it denies",
                };
                found.insert(format!("{} says the opposite about {clients}; {wins}", other.kri));
            }
            if said.allowed && own.decisions.iter().any(opposite) {
                let wins = match (said.in_from, own.decisions.last()) {
                    (true, Some(ClientDecision { allowed: true, .. })) => {
                        "the last entry wins, which allows them"
                    }
                    (true, _) => "the last entry wins, which denies them",
                    (false, _) => "the deny wins",
                };
                found.insert(format!("it both allows and denies {clients}; {wins}"));
            }
        }
    }
    found.into_iter().map(|text| about(policy, Code::Contradiction, text)).collect()
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
