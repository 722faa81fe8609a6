//! Writes suggested permissions as resources.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Draft, Key, Kind, Resource, Spec,
    kinds::{
        entry::{Always, Entry},
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission, RuleConf},
        tags::Tags,
        target_ref::{Match, MatchType, SpiffeIdMatch, TargetRef, TargetRefKind as K},
    },
    labels,
    naming::SpiffeId,
};

use super::{
    Evidence, Permission, SuggestionInput,
    callers::service,
    defaults::{Defaults, is_in_effect},
    servers::Group,
};
use crate::{
    MeshSnapshot,
    access::{policy_names, targets::Choice},
};

/// Way in which permissions name clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// By the tag `kuma.io/service`.
    From,
    /// By SPIFFE id.
    Rules,
}

impl Form {
    /// As the mesh names clients already.
    pub fn of(mesh: &MeshSnapshot, defaults: &Defaults) -> Form {
        let is_default = |policy: &Resource| defaults.allow.iter().any(|it| it.policy.key == policy.key);
        let by_identity = mesh.policies_of(Kind::MeshTrafficPermission).any(|policy| {
            let spec = policy.spec.get::<MeshTrafficPermission>();
            spec.is_some_and(|spec| !spec.rules.is_empty()) && !is_default(policy)
        });
        if by_identity || !mesh.identities.is_empty() { Form::Rules } else { Form::From }
    }

    /// The form in which a client can be named.
    fn of_client(self, mesh: &MeshSnapshot, id: &SpiffeId) -> Form {
        // A service may be called what no path of a SPIFFE id is.
        let is_identity = || id.as_str().parse::<SpiffeId>().is_ok();
        match (self, service(mesh, id)) {
            (Form::From, Some(_)) => Form::From,
            (Form::Rules, Some(_)) if !is_identity() => Form::From,
            _ => Form::Rules,
        }
    }
}

/// The permissions that let clients in: one, or one for each form in which they can be named.
pub(super) fn permissions(
    question: &SuggestionInput<'_>,
    form: Form,
    names: &mut BTreeSet<String>,
    group: &Group,
    choice: &Choice,
    wanted: &[(Evidence, &SpiffeId)],
) -> Vec<Permission> {
    let mesh = question.mesh;
    let mut written = Vec::new();
    for named in [Form::From, Form::Rules] {
        let of_form = wanted.iter().filter(|(_, id)| form.of_client(mesh, id) == named);
        let of_form: Vec<_> = of_form.collect();
        if of_form.is_empty() {
            continue;
        }
        let name = policy_names::free_or(mesh, names, &format!("allow-to-{}", group.title()), |existing| {
            extends(existing, &choice.target, named)
        });
        let key = Key::new(Kind::MeshTrafficPermission, &mesh.name, &name);
        let existing = mesh.policies.get(&key).map(|policy| &policy.resource);
        let clients: BTreeSet<&SpiffeId> = of_form.iter().map(|(_, id)| *id).collect();
        let mut spec = existing
            .and_then(|it| it.spec.get::<MeshTrafficPermission>().cloned())
            .unwrap_or_else(|| MeshTrafficPermission {
                target_ref: Some(choice.target.clone()),
                ..MeshTrafficPermission::default()
            });
        match named {
            Form::From => spec.from.extend(clients.into_iter().filter_map(|id| entry(mesh, id))),
            Form::Rules => allow(&mut spec, clients),
        }
        let labels = existing.map_or_else(|| question.labels.clone(), |it| it.labels.clone());
        let resource = Draft { labels, ..Draft::new(key, Spec::MeshTrafficPermission(Arc::new(spec))) };
        let evidence = of_form.iter().map(|(evidence, _)| evidence.clone()).collect();
        written.push(Permission { resource, evidence, notes: Vec::new() });
    }
    written
}

/// Clients can be added to an existing policy.
fn extends(existing: &Resource, target: &TargetRef, form: Form) -> bool {
    let Some(spec) = existing.spec.get::<MeshTrafficPermission>() else { return false };
    let same_form = match form {
        Form::From => spec.rules.is_empty(),
        Form::Rules => spec.from.is_empty(),
    };
    is_in_effect(existing) && same_form && spec.target_ref.as_ref() == Some(target)
}

fn entry(mesh: &MeshSnapshot, id: &SpiffeId) -> Option<Entry<Conf>> {
    let tags = Tags::from([(labels::SERVICE.to_owned(), service(mesh, id)?.to_owned())]);
    // A reference to a MeshService means the same and is deprecated.
    let target_ref = TargetRef { kind: K::MeshSubset, tags: Some(tags), ..TargetRef::default() };
    Some(Entry { target_ref, default: Conf { action: Some(Action::Allow) } })
}

/// Adds identities to those that are allowed.
fn allow(spec: &mut MeshTrafficPermission, clients: BTreeSet<&SpiffeId>) {
    let matches = clients.into_iter().map(|id| Match {
        spiffe_id: Some(SpiffeIdMatch { type_: MatchType::Exact, value: id.to_string() }),
        sni: None,
    });
    match spec.rules.first_mut() {
        Some(rule) => rule.default.allow.get_or_insert_default().extend(matches),
        None => {
            let conf = RuleConf { allow: Some(matches.collect()), ..RuleConf::default() };
            spec.rules.push(Always { default: conf });
        }
    }
}
