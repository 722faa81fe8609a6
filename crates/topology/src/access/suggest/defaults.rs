//! Permissions that say what holds for everyone: allow all, and the deny all that only shows what holds anyway.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Draft, Key, Kind, Resource, Spec,
    kinds::{
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission},
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
    naming::Kri,
};

use super::{
    SuggestionInput,
    everyone::{is_everywhere, refuses_everyone, without_everyone},
    servers::Group,
};
use crate::{MeshSnapshot, access::targets::as_stored};

/// Name of the policy that refuses everyone. Of policies of one rank the last in the alphabet decides last,
/// so that it takes nothing from permissions that stand beside it.
pub(super) const DENY_ALL: &str = "zz-deny-all";

/// A policy that lets in every client everywhere, whatever else it says.
#[derive(Debug, Clone)]
pub(super) struct AllowAll {
    pub policy: Arc<Resource>,
    /// The policy without the rules that let everyone in; `None` if nothing is left.
    judged: Option<Arc<Resource>>,
    /// The same as it is to be written.
    pub rest: Option<Arc<Resource>>,
}

/// Rules for clients that no other rule is about.
pub(super) struct Defaults {
    /// The policies that allow everyone everywhere.
    pub allow: Vec<AllowAll>,
    /// The policies that deny all clients that nothing else allows, and show it.
    deny: BTreeSet<Kri>,
    /// Those of them that are stored.
    there: BTreeSet<Kri>,
    /// The deny all to come, where none is there.
    to_come: Option<(Draft, Arc<Resource>)>,
}

impl Defaults {
    pub fn of(question: &SuggestionInput<'_>) -> Defaults {
        let mesh = question.mesh;
        let mut allow = Vec::new();
        let mut deny = BTreeSet::new();
        let mut shown = false;
        for policy in mesh.policies_of(Kind::MeshTrafficPermission).filter(|policy| is_in_effect(policy)) {
            let Some(spec) = policy.spec.get::<MeshTrafficPermission>() else { continue };
            let everywhere = is_everywhere(mesh, spec);
            if let Some(rest) = without_everyone(spec).filter(|_| everywhere) {
                let with = |spec: MeshTrafficPermission| {
                    let spec = Spec::MeshTrafficPermission(Arc::new(spec));
                    Arc::new(Resource { spec, ..Resource::clone(policy) })
                };
                let judged = rest.written.is_some().then(|| with(rest.judged));
                allow.push(AllowAll { policy: policy.clone(), judged, rest: rest.written.map(with) });
                continue;
            }
            let labelled = policy.label(labels::REACHABILITY_DEFAULT_DENY) == Some("true");
            if (everywhere || labelled) && refuses_everyone(spec) {
                deny.extend(policy.kri(""));
                shown |= everywhere;
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

    /// A policy with this reference shows that everyone else is refused.
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
        question: &SuggestionInput<'_>,
        name: &str,
        target: &TargetRef,
    ) -> (Draft, Arc<Resource>) {
        let made = closing(question, name, target);
        self.deny.extend(made.1.kri(""));
        made
    }

    /// The policy of an entry is stored.
    pub fn is_there(&self, origin: &Kri) -> bool {
        self.there.contains(&origin.without_section())
    }

    /// The permissions that someone decided on, of those that may be about a Dataplane.
    pub fn decisions<'m>(&'m self, mesh: &'m MeshSnapshot, dataplane: &Resource) -> Vec<&'m Arc<Resource>> {
        let is_default = |it: &Resource| it.kri("").is_some_and(|kri| self.deny.contains(&kri));
        let kept = stored_about(mesh, dataplane).filter_map(|it| self.kept(it));
        kept.filter(|it| !is_default(it)).collect()
    }

    /// The permissions that may be about a Dataplane once the mesh is closed.
    pub fn closed<'m>(&'m self, mesh: &'m MeshSnapshot, dataplane: &Resource) -> Vec<&'m Arc<Resource>> {
        let kept = stored_about(mesh, dataplane).filter_map(|it| self.kept(it));
        kept.chain(self.to_come.as_ref().map(|(_, resource)| resource)).collect()
    }

    /// Returns a policy without the rules that let everyone in.
    fn kept<'m>(&'m self, policy: &'m Arc<Resource>) -> Option<&'m Arc<Resource>> {
        match self.allow.iter().find(|it| it.policy.key == policy.key) {
            Some(all) => all.judged.as_ref(),
            None => Some(policy),
        }
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

fn closing(question: &SuggestionInput<'_>, name: &str, target: &TargetRef) -> (Draft, Arc<Resource>) {
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
