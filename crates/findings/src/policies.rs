//! Findings about one policy.

use plan::effective;
use policy::Policy;
use resources::{
    Kind,
    finding::{Code, Finding},
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
    policy::PolicyPresentation,
};
use topology::MeshSnapshot;

use crate::{
    clients::{self, Clients},
    slots::{ClientDecision, ContestedStatement, Slots},
};

/// Maximum policies that a finding names; it counts the others.
const MAX_EXAMPLES: usize = 3;
/// Maximum contradictions listed of one permission.
const MAX_CONTRADICTIONS: usize = 20;

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

/// Proxies of the mesh have certificates: of its own authority, or of a MeshIdentity.
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

/// Reports a policy of which policies that select the same proxies override everything.
fn shadowed(slots: &mut Slots, policy: &Policy) -> Option<Finding> {
    let by = slots.overriding(policy)?;
    let some = by.iter().take(MAX_EXAMPLES).map(ToString::to_string).collect();
    Some(about(policy, Code::Shadowed, format!("overridden by {}", and_more(some, by.len()))))
}

/// Permissions that decide the opposite about the same clients, and entries of this one that do. Statements
/// of many policies about many clients are counted: listing all of them would take their product.
fn contradictions(slots: &mut Slots, policy: &Policy) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut left_out = 0;
    for contested in slots.contested(policy, MAX_EXAMPLES) {
        for contradiction in [against_itself, against_others] {
            let Some(text) = contradiction(policy, &contested) else { continue };
            if found.len() < MAX_CONTRADICTIONS {
                found.push(about(policy, Code::Contradiction, text));
            } else {
                left_out += 1;
            }
        }
    }
    if left_out > 0 {
        let text = format!("{left_out} more contradictions of this policy are left out");
        found.push(about(policy, Code::Contradiction, text));
    }
    found
}

fn against_itself(
    _: &Policy,
    ContestedStatement { about, own, decision, .. }: &ContestedStatement<'_>,
) -> Option<String> {
    let wins = match decision {
        ClientDecision { in_from: true, allowed: true } => "the last entry wins, which allows them",
        ClientDecision { in_from: true, allowed: false } => "the last entry wins, which denies them",
        ClientDecision { in_from: false, .. } => "the deny wins",
    };
    own.contradicts_itself().then(|| format!("it both allows and denies {about}; {wins}"))
}

fn against_others(policy: &Policy, contested: &ContestedStatement<'_>) -> Option<String> {
    let ContestedStatement { about, decision, opponents, examples, .. } = contested;
    let highest = examples.first()?;
    let one = *opponents == 1;
    let wins = match decision {
        ClientDecision { in_from: true, .. } if highest.precedence() < &policy.view.precedence => {
            "this one wins"
        }
        ClientDecision { in_from: true, .. } if one => "that one wins",
        ClientDecision { in_from: true, .. } => "the first of those wins",
        ClientDecision { allowed: false, .. } => "this one wins, because it denies",
        ClientDecision { allowed: true, .. } if one => "that one wins, because it denies",
        ClientDecision { allowed: true, .. } => "those win, because they deny",
    };
    let some = examples.iter().map(|statement| statement.policy.view.kri.to_string()).collect();
    let says = if one { "says" } else { "say" };
    Some(format!("{} {says} the opposite about {about}; {wins}", and_more(some, *opponents)))
}

/// Names and how many others there are: `a, b and c`, `a, b, c and 7 more`.
fn and_more(mut names: Vec<String>, total: usize) -> String {
    let more = total.saturating_sub(names.len());
    let last = if more > 0 { Some(format!("{more} more")) } else { names.pop() };
    let last = last.unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
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
