//! Clients that permissions name, known to exist or not.
//!
//! A client is named by the service in its certificate: by a tag, or by the identity that the mesh makes of the tag.
//! Identities of other trust domains are not known here, so nothing is said about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use policy::{Client, Policy};
use resources::{
    Key, Kind, Resource,
    kinds::{tags::ANY_VALUE, target_ref::TargetRefKind as K},
    labels,
    naming::SpiffeId,
};
use serde_json::Value;
use topology::MeshSnapshot;

use crate::policies::shown;

/// A client that a permission names.
pub(crate) struct PermittedClient {
    pub(crate) service: String,
    /// Text of the finding if there is none.
    pub(crate) text: String,
}

/// The clients of a mesh, and the permissions that name some.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    /// Number of Dataplanes with each service in their certificate.
    dataplanes: BTreeMap<String, usize>,
    permissions: BTreeMap<String, BTreeSet<Key>>,
}

impl Clients {
    pub(crate) fn add_policy(&mut self, policy: &Policy) {
        for PermittedClient { service, .. } in named(policy) {
            self.permissions.entry(service).or_default().insert(policy.resource.key.clone());
        }
    }

    pub(crate) fn remove_policy(&mut self, policy: &Policy) {
        for PermittedClient { service, .. } in named(policy) {
            let Some(keys) = self.permissions.get_mut(&service) else { continue };
            keys.remove(&policy.resource.key);
            if keys.is_empty() {
                self.permissions.remove(&service);
            }
        }
    }

    /// Takes in another version of a Dataplane; gives the permissions that are about clients that came or went.
    pub(crate) fn replace(&mut self, old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> Vec<Key> {
        let old = services(old);
        let new = services(new);
        let mut changed = Vec::new();
        for service in new.difference(&old) {
            let count = self.dataplanes.entry(service.clone()).or_default();
            *count += 1;
            if *count == 1 {
                changed.push(service.clone());
            }
        }
        for service in old.difference(&new) {
            let Some(count) = self.dataplanes.get_mut(service) else { continue };
            *count -= 1;
            if *count == 0 {
                self.dataplanes.remove(service);
                changed.push(service.clone());
            }
        }
        changed.iter().flat_map(|service| self.naming(service)).cloned().collect()
    }

    /// The permissions that name a service as their client.
    pub(crate) fn naming(&self, service: &str) -> impl Iterator<Item = &Key> {
        self.permissions.get(service).into_iter().flatten()
    }

    /// Such a client exists, here or in another zone.
    pub(crate) fn knows(&self, mesh: &MeshSnapshot, service: &str) -> bool {
        let of_another_zone = || {
            let tags = [(labels::SERVICE.to_owned(), service.to_owned())].into();
            mesh.services.contains_key(&Key::new(Kind::MeshService, &mesh.name, service))
                || !mesh.zones.tagged(&mesh.name, &tags, false).is_empty()
        };
        self.dataplanes.contains_key(service) || of_another_zone()
    }
}

fn services(dataplane: Option<&Arc<Resource>>) -> BTreeSet<String> {
    let tags = dataplane.and_then(|dataplane| Client::of_dataplane(dataplane).tags.remove(labels::SERVICE));
    tags.unwrap_or_default()
}

/// The clients that a permission names one by one.
pub(crate) fn named(policy: &Policy) -> Vec<PermittedClient> {
    if policy.resource.kind() != Kind::MeshTrafficPermission {
        return Vec::new();
    }
    let from = policy.view.from.iter().enumerate().filter_map(|(at, entry)| {
        let target = &entry.target;
        let service = match target.kind {
            K::MeshService | K::MeshServiceSubset => target.name.clone(),
            K::MeshSubset => target.tags.as_ref().and_then(|tags| tags.get(labels::SERVICE).cloned()),
            _ => None,
        };
        let service = service.filter(|service| service != ANY_VALUE)?;
        let text = format!("from[{at}].targetRef {} is no client of the mesh", shown(target));
        Some(PermittedClient { service, text })
    });
    let rules = policy.view.rules.iter().enumerate().flat_map(|(at, rule)| {
        let lists = ["allow", "allowWithShadowDeny", "deny"].into_iter();
        let lists = lists.filter_map(|list| Some((list, rule.conf.value.get(list)?.as_array()?)));
        let of_list = move |(list, matches): (&'static str, &'_ Vec<Value>)| {
            matches.iter().filter_map(move |it| by_identity(policy, at, list, it)).collect::<Vec<_>>()
        };
        lists.flat_map(of_list).collect::<Vec<_>>()
    });
    from.chain(rules).collect()
}

/// The service that an exact identity of the mesh's own trust domain stands for.
fn by_identity(policy: &Policy, at: usize, list: &str, client: &Value) -> Option<PermittedClient> {
    let id = client.get("spiffeID").filter(|id| id["type"] == "Exact")?["value"].as_str()?;
    let service = id.strip_prefix("spiffe://")?.strip_prefix(policy.resource.mesh())?.strip_prefix('/')?;
    let is_egress = SpiffeId::of_zone_egress(policy.resource.mesh()).to_string() == id;
    let text = format!("rules[{at}].default.{list} names {id}, which is no client of the mesh");
    (!is_egress && !service.contains('/')).then(|| PermittedClient { service: service.to_owned(), text })
}
