//! Permissions that say what holds for everyone: allow all, and the deny all that only shows what holds anyway.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Draft, Key, Kind, Resource, Spec,
    kinds::{
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission, RuleConf},
        target_ref::{Match, MatchType, TargetRef, TargetRefKind as K},
    },
    labels,
    naming::Kri,
};

use super::{Question, servers::Group};
use crate::{MeshSnapshot, reachability::targets::as_stored};

/// What the policy is called that refuses everyone. Of policies of one rank the last in the alphabet decides last, so
/// that it takes nothing from permissions that stand beside it.
pub(super) const DENY_ALL: &str = "zz-deny-all";

/// What holds for clients that no other rule is about.
pub(super) struct Defaults {
    /// The policies that allow everyone everywhere.
    pub allow: Vec<Arc<Resource>>,
    /// The policies that deny all clients that nothing else allows, and show it.
    deny: BTreeSet<Kri>,
    /// Those of them that are stored.
    there: BTreeSet<Kri>,
    /// The deny all to come, where none is there.
    to_come: Option<(Draft, Arc<Resource>)>,
}

impl Defaults {
    pub fn of(question: &Question<'_>) -> Defaults {
        let mesh = question.mesh;
        let (mut allow, mut deny, mut shown) = (Vec::new(), BTreeSet::new(), false);
        for policy in mesh.policies_of(Kind::MeshTrafficPermission).filter(|policy| is_in_effect(policy)) {
            let Some(spec) = policy.spec.get::<MeshTrafficPermission>() else { continue };
            if is_for_mesh(spec) && allows_everyone(spec) {
                allow.push(policy.clone());
            }
            let labelled = policy.label(labels::REACHABILITY_DEFAULT_DENY) == Some("true");
            if (is_for_mesh(spec) || labelled) && refuses_everyone(spec) {
                deny.extend(policy.kri(""));
                shown |= is_for_mesh(spec);
            }
        }
        let to_come = match question.service {
            None if !shown => {
                let name = free(mesh, DENY_ALL);
                Some(closing(question, &name, &TargetRef::mesh()))
            }
            _ => None,
        };
        let there = deny.clone();
        if let Some((_, resource)) = &to_come {
            deny.extend(resource.kri(""));
        }
        Defaults { allow, deny, there, to_come }
    }

    /// The deny all of the mesh that is not there yet.
    pub fn closing_of_mesh(&self) -> Option<Draft> {
        self.to_come.as_ref().map(|(draft, _)| draft.clone())
    }

    /// Whether a policy with this reference shows that everyone else is refused.
    pub fn closes(&self, mesh: &MeshSnapshot, target: &TargetRef) -> bool {
        mesh.policies_of(Kind::MeshTrafficPermission).any(|policy| {
            let spec = policy.spec.get::<MeshTrafficPermission>();
            policy.kri("").is_some_and(|kri| self.deny.contains(&kri))
                && spec.is_some_and(|spec| spec.target_ref.as_ref() == Some(target))
        })
    }

    /// The policy that closes some inbounds on their own.
    pub fn closing_of(
        &mut self,
        question: &Question<'_>,
        name: &str,
        target: &TargetRef,
    ) -> (Draft, Arc<Resource>) {
        let made = closing(question, name, target);
        self.deny.extend(made.1.kri(""));
        made
    }

    /// Whether the policy of an entry is stored.
    pub fn is_there(&self, origin: &Kri) -> bool {
        self.there.contains(&origin.without_section())
    }

    /// The permissions that someone decided on, of those that may be about a Dataplane.
    pub fn decisions<'m>(&self, mesh: &'m MeshSnapshot, dataplane: &Resource) -> Vec<&'m Arc<Resource>> {
        let is_default = |it: &Resource| it.kri("").is_some_and(|kri| self.deny.contains(&kri));
        stored_about(mesh, dataplane).filter(|it| !self.allows(it) && !is_default(it)).collect()
    }

    /// The permissions that may be about a Dataplane once the mesh is closed.
    pub fn closed<'m>(&'m self, mesh: &'m MeshSnapshot, dataplane: &Resource) -> Vec<&'m Arc<Resource>> {
        let kept = stored_about(mesh, dataplane).filter(|it| !self.allows(it));
        kept.chain(self.to_come.as_ref().map(|(_, resource)| resource)).collect()
    }

    fn allows(&self, policy: &Resource) -> bool {
        self.allow.iter().any(|it| it.key == policy.key)
    }
}

/// The permissions that are stored and may be about a Dataplane.
pub(super) fn stored_about<'m>(
    mesh: &'m MeshSnapshot,
    dataplane: &Resource,
) -> impl Iterator<Item = &'m Arc<Resource>> {
    let candidates = mesh.candidates(dataplane).map(|policy| &policy.resource);
    candidates.filter(|policy| policy.kind() == Kind::MeshTrafficPermission)
}

/// The references of policies that closed the inbounds of a group.
pub(super) fn closing_references(mesh: &MeshSnapshot, group: &Group) -> Vec<TargetRef> {
    let first = group.places.first().and_then(|(name, _)| mesh.dataplanes.get(name));
    let Some(dataplane) = first else { return Vec::new() };
    let closing = stored_about(mesh, dataplane)
        .filter(|policy| policy.label(labels::REACHABILITY_DEFAULT_DENY) == Some("true"));
    closing
        .filter_map(|policy| policy.spec.target_ref()?.cloned())
        .filter(|top| top.kind != K::Mesh)
        .collect()
}

fn closing(question: &Question<'_>, name: &str, target: &TargetRef) -> (Draft, Arc<Resource>) {
    let refusal = Conf { action: Some(Action::Deny) };
    let spec = MeshTrafficPermission {
        target_ref: Some(target.clone()),
        rules: Vec::new(),
        from: vec![Entry { target_ref: TargetRef::mesh(), default: refusal }],
    };
    let mut draft = Draft::new(
        Key::new(Kind::MeshTrafficPermission, &question.mesh.name, name),
        Spec::MeshTrafficPermission(Arc::new(spec)),
    );
    draft.labels = question.labels.clone();
    draft.labels.insert(labels::REACHABILITY_DEFAULT_DENY.to_owned(), "true".to_owned());
    let resource = as_stored(question.mesh, &draft);
    (draft, resource)
}

/// A name that no permission of the mesh has.
fn free(mesh: &MeshSnapshot, base: &str) -> String {
    let taken =
        |name: &str| mesh.policies.contains_key(&Key::new(Kind::MeshTrafficPermission, &mesh.name, name));
    let others = (2_u32..).map(|n| format!("{base}-{n}"));
    std::iter::once(base.to_owned()).chain(others).find(|name| !taken(name)).unwrap_or_default()
}

pub(super) fn is_in_effect(policy: &Resource) -> bool {
    policy.label(labels::EFFECT) != Some("shadow")
}

fn is_for_mesh(spec: &MeshTrafficPermission) -> bool {
    spec.target_ref.as_ref().is_none_or(|top| top.kind == K::Mesh)
}

fn refuses_everyone(spec: &MeshTrafficPermission) -> bool {
    match (spec.from.as_slice(), spec.rules.is_empty()) {
        ([entry], true) => entry.target_ref.kind == K::Mesh && entry.default.action == Some(Action::Deny),
        _ => false,
    }
}

fn allows_everyone(spec: &MeshTrafficPermission) -> bool {
    let allows =
        |action: &Option<Action>| matches!(action, Some(Action::Allow | Action::AllowWithShadowDeny));
    match (spec.from.as_slice(), spec.rules.as_slice()) {
        ([entry], []) => entry.target_ref.kind == K::Mesh && allows(&entry.default.action),
        ([], rules) => !rules.is_empty() && rules.iter().all(|rule| allows_domains(&rule.default)),
        _ => false,
    }
}

/// Whether a rule allows whole trust domains and says nothing else.
fn allows_domains(rule: &RuleConf) -> bool {
    let whole = |client: &Match| {
        let id = client.spiffe_id.as_ref().filter(|id| id.type_ == MatchType::Prefix && client.sni.is_none());
        id.and_then(|id| id.value.strip_prefix("spiffe://"))
            .is_some_and(|domain| !domain.trim_end_matches('/').contains('/'))
    };
    let listed = || rule.allow.iter().chain(&rule.allow_with_shadow_deny).flatten();
    rule.deny.as_ref().is_none_or(Vec::is_empty) && listed().next().is_some() && listed().all(whole)
}
