//! Services outside of the mesh and the permissions about them, each found from the other by server names.

use std::collections::BTreeSet;

use imbl::OrdMap;
use policy::{Policy, select::is_for_every_sidecar};
use resources::{Key, kinds::mesh_traffic_permission::MeshTrafficPermission};

use crate::{
    lists::{Lists, add_to, remove_from},
    state::index::ServiceRef,
};

/// A server name as it is compared: without regard to case.
type ServerName = String;

#[derive(Debug, Clone, Default)]
pub(super) struct EgressIndex {
    names: OrdMap<ServiceRef, BTreeSet<ServerName>>,
    subjects: Lists<ServerName, ServiceRef>,
    policies: Lists<ServerName, Key>,
}

impl EgressIndex {
    /// Takes in the server names of a subject.
    pub(super) fn replace_subject<'a>(
        &mut self,
        subject: &ServiceRef,
        server_names: impl Iterator<Item = &'a String>,
    ) {
        let names: BTreeSet<ServerName> = server_names.map(|name| name.to_ascii_lowercase()).collect();
        if self.names.get(subject).map_or(names.is_empty(), |before| *before == names) {
            return;
        }
        for name in self.names.remove(subject).unwrap_or_default() {
            remove_from(&mut self.subjects, &name, subject);
        }
        for name in &names {
            add_to(&mut self.subjects, name.clone(), subject.clone());
        }
        if !names.is_empty() {
            self.names.insert(subject.clone(), names);
        }
    }

    /// Takes in a permission as it is now.
    pub(super) fn replace_policy(&mut self, old: Option<&Policy>, new: Option<&Policy>) {
        for (name, policy) in old.into_iter().flat_map(|it| named_by(it).into_iter().map(move |n| (n, it))) {
            remove_from(&mut self.policies, &name, &policy.resource.key);
        }
        for (name, policy) in new.into_iter().flat_map(|it| named_by(it).into_iter().map(move |n| (n, it))) {
            add_to(&mut self.policies, name, policy.resource.key.clone());
        }
    }

    /// The subjects that a permission is about.
    pub(super) fn named_by(&self, policy: &Policy) -> Vec<ServiceRef> {
        named_by(policy).iter().filter_map(|name| self.subjects.get(name)).flatten().cloned().collect()
    }

    /// The permissions about these server names.
    pub(super) fn policies<'a>(&'a self, server_names: &'a [String]) -> BTreeSet<&'a Key> {
        let names = server_names.iter().map(|name| name.to_ascii_lowercase());
        names.filter_map(|name| self.policies.get(&name)).flatten().collect()
    }
}

/// The server names in the rules of a permission for all sidecars, which egresses obey.
fn named_by(policy: &Policy) -> BTreeSet<ServerName> {
    let spec = policy.resource.spec.get::<MeshTrafficPermission>();
    let rules = spec.into_iter().filter(|_| is_for_every_sidecar(policy)).flat_map(|spec| &spec.rules);
    let matches = rules.flat_map(|rule| {
        let conf = &rule.default;
        [&conf.deny, &conf.allow_with_shadow_deny, &conf.allow].into_iter().flatten().flatten()
    });
    matches.filter_map(|client| client.sni.as_ref()).map(|sni| sni.value.to_ascii_lowercase()).collect()
}
