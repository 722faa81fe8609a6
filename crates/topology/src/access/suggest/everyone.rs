//! Rules of a permission about clients that it does not name.

use policy::{ClientMatch, Effect, Permissions};
use resources::{
    kinds::{
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission},
        tags::ANY_VALUE,
        target_ref::{Match, MatchType, ProxyType, TargetRef, TargetRefKind as K},
    },
    labels,
    naming::Kri,
};

use crate::MeshSnapshot;

/// The policy selects every inbound of every sidecar of the mesh, now and later.
pub(super) fn is_everywhere(mesh: &MeshSnapshot, spec: &MeshTrafficPermission) -> bool {
    let Some(top) = &spec.target_ref else { return true };
    let types = top.proxy_types.as_ref().filter(|types| !types.is_empty());
    let sidecars = types.is_none_or(|types| types.contains(&ProxyType::Sidecar));
    let is_given = |field: &Option<String>| field.as_ref().is_some_and(|it| !it.is_empty());
    let named = is_given(&top.name) || is_given(&top.namespace) || is_given(&top.section_name);
    // The control plane gives these to every Dataplane.
    let of_all = |(label, value): (&String, &String)| match label.as_str() {
        labels::MESH => **value == *mesh.name,
        labels::ZONE => **value == *mesh.zone,
        _ => false,
    };
    match top.kind {
        K::Mesh => sidecars,
        K::MeshSubset => sidecars && any_service(top),
        K::Dataplane => !named && top.labels.iter().flatten().all(of_all),
        _ => false,
    }
}

/// Every proxy has the tags of the reference.
fn any_service(reference: &TargetRef) -> bool {
    let mut tags = reference.tags.iter().flatten();
    tags.all(|(tag, value)| tag == labels::SERVICE && value == ANY_VALUE)
}

/// The policy refuses everyone and says nothing else.
pub(super) fn refuses_everyone(spec: &MeshTrafficPermission) -> bool {
    let refuses = |entry: &Entry<Conf>| {
        is_everyone(&entry.target_ref) && matches!(entry.default.action, Some(Action::Deny))
    };
    !spec.from.is_empty() && spec.rules.is_empty() && spec.from.iter().all(refuses)
}

/// A policy without the entries that let in clients which it does not name.
#[derive(Debug, PartialEq)]
pub(super) struct Rest {
    /// With entries about no one in their places, so that the others keep their numbers.
    pub judged: MeshTrafficPermission,
    /// To be written; `None` where nothing is left, or only what is refused without it.
    pub written: Option<MeshTrafficPermission>,
}

/// Returns the rest of a policy; `None` if no entry of it lets in clients which it does not name.
pub(super) fn without_everyone(spec: &MeshTrafficPermission) -> Option<Rest> {
    let opens = |entry: &&mut Entry<Conf>| is_everyone(&entry.target_ref) && lets_in(&entry.default);
    let mut judged = spec.clone();
    // Clients are not Dataplanes: an allow of such allows no one.
    judged.from.iter_mut().filter(opens).for_each(|entry| entry.target_ref.kind = K::Dataplane);
    for rule in &mut judged.rules {
        for list in [&mut rule.default.allow, &mut rule.default.allow_with_shadow_deny] {
            list.iter_mut().for_each(|matches| matches.retain(|client| !is_whole_domain(client)));
            list.take_if(|matches| matches.is_empty());
        }
    }
    if judged == *spec {
        return None;
    }
    let mut written = judged.clone();
    written.from.retain(|entry| entry.target_ref.kind != K::Dataplane);
    written.rules.retain(|rule| {
        let conf = &rule.default;
        let mut lists = [&conf.allow, &conf.allow_with_shadow_deny, &conf.deny].into_iter().flatten();
        lists.any(|list| !list.is_empty())
    });
    let is_empty = written.from.is_empty() && written.rules.is_empty();
    let is_left = !is_empty && !refuses_everyone(&written);
    Some(Rest { judged, written: is_left.then_some(written) })
}

fn is_everyone(reference: &TargetRef) -> bool {
    match reference.kind {
        K::Mesh => true,
        K::MeshSubset => any_service(reference),
        _ => false,
    }
}

fn lets_in(conf: &Conf) -> bool {
    matches!(conf.action, Some(Action::Allow | Action::AllowWithShadowDeny))
}

/// The match means all clients of a trust domain.
fn is_whole_domain(client: &Match) -> bool {
    let id = client.spiffe_id.as_ref().filter(|id| id.type_ == MatchType::Prefix && client.sni.is_none());
    id.is_some_and(|id| is_domain(&id.value))
}

fn is_domain(prefix: &str) -> bool {
    let domain = prefix.strip_prefix("spiffe://");
    domain.is_some_and(|domain| !domain.trim_end_matches('/').contains('/'))
}

/// The entry that lets in clients which no rule names, if one does.
pub(super) fn opened_by(permissions: &Permissions) -> Option<&Kri> {
    for rule in &permissions.rules {
        let anyone = match &rule.client {
            ClientMatch::Anyone => true,
            ClientMatch::Tags(tags) => {
                tags.iter().all(|(tag, value)| tag == labels::SERVICE && value == ANY_VALUE)
            }
            ClientMatch::SpiffePrefix(prefix) if rule.effect != Effect::Deny => is_domain(prefix.as_str()),
            _ => false,
        };
        if anyone {
            return Some(&rule.origin).filter(|_| rule.effect != Effect::Deny);
        }
    }
    None
}
