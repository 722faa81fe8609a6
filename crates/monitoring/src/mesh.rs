//! The targets of a mesh, kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::OrdMap;
use policy::Policy;
use resources::{
    Key, Kind,
    kinds::{mesh_metric::MeshMetric, target_ref::TargetRefKind},
};
use topology::{Affected, MeshSnapshot, PolicyChange};

use crate::target::{RenderedTarget, of_dataplane};

/// The targets of a mesh by Dataplane. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct MeshTargets {
    /// Only Dataplanes that have any.
    targets: OrdMap<Arc<str>, Arc<[RenderedTarget]>>,
    /// The clients that MeshMetrics have pages for, by policy.
    clients: BTreeMap<Key, BTreeSet<String>>,
    /// Number of Dataplanes looked at since the beginning, to prove that cost follows change.
    examined: u64,
}

/// The Dataplanes that a change concerns.
enum Concerned {
    All,
    Some(BTreeSet<Arc<str>>),
}

impl MeshTargets {
    pub fn of(mesh: &MeshSnapshot) -> MeshTargets {
        let mut made = MeshTargets::default();
        for policy in mesh.viewed(Kind::MeshMetric) {
            made.take_policy(&policy.resource.key, Some(policy));
        }
        for name in mesh.dataplanes.keys() {
            made.examine(mesh, name);
        }
        made
    }

    /// Takes in the mesh after changes that affect this much of it. Returns true if targets or clients are others now.
    pub fn update(&mut self, mesh: &MeshSnapshot, affected: &Affected) -> bool {
        if affected.whole_mesh {
            let before = std::mem::take(self);
            *self = MeshTargets::of(mesh);
            self.examined += before.examined;
            return self.targets != before.targets || self.clients != before.clients;
        }
        let mut changed = false;
        for change in affected.policies.iter().filter(|change| kind_of(change) == Some(Kind::MeshMetric)) {
            let key = change.versions().next().map(|policy| policy.resource.key.clone());
            changed |= key.is_some_and(|key| self.take_policy(&key, change.new.as_ref()));
        }
        let names = match concerned(mesh, &affected.policies) {
            Concerned::All => {
                mesh.dataplanes.keys().chain(&affected.proxies).cloned().collect::<BTreeSet<_>>()
            }
            Concerned::Some(selected) => {
                selected.into_iter().chain(affected.proxies.iter().cloned()).collect()
            }
        };
        names.iter().fold(changed, |changed, name| self.examine(mesh, name) || changed)
    }

    /// Returns true if the clients of the policy are others now.
    fn take_policy(&mut self, key: &Key, policy: Option<&Arc<Policy>>) -> bool {
        let spec = policy.and_then(|policy| policy.resource.spec.get::<MeshMetric>());
        let clients = spec.map(|spec| plan::metrics::scrape_clients(&spec.default)).unwrap_or_default();
        let clients: BTreeSet<String> = clients.into_iter().map(str::to_owned).collect();
        if clients.is_empty() {
            return self.clients.remove(key).is_some();
        }
        self.clients.insert(key.clone(), clients.clone()) != Some(clients)
    }

    /// Returns true if the Dataplane has other targets now.
    fn examine(&mut self, mesh: &MeshSnapshot, name: &Arc<str>) -> bool {
        self.examined += 1;
        let targets = mesh.dataplanes.get(name).map(|dataplane| of_dataplane(mesh, dataplane));
        match targets.filter(|targets| !targets.is_empty()) {
            Some(targets) if self.targets.get(name) == Some(&targets) => false,
            Some(targets) => {
                self.targets.insert(name.clone(), targets);
                true
            }
            None => self.targets.remove(name).is_some(),
        }
    }

    pub fn clients(&self) -> impl Iterator<Item = &String> {
        self.clients.values().flatten()
    }

    /// The targets of a client, in the order of Dataplanes.
    pub fn of_client(&self, client: Option<&str>) -> impl Iterator<Item = &RenderedTarget> {
        let all = self.targets.values().flat_map(|targets| targets.iter());
        all.filter(move |target| target.client.as_deref() == client)
    }

    pub fn examined(&self) -> u64 {
        self.examined
    }
}

fn kind_of(change: &PolicyChange) -> Option<Kind> {
    change.versions().next().map(|policy| policy.resource.kind())
}

/// The Dataplanes that changed policies select, as they were and as they are.
fn concerned(mesh: &MeshSnapshot, changes: &[PolicyChange]) -> Concerned {
    let by_route = |policy: &Arc<Policy>| policy.view.top.kind == TargetRefKind::MeshHttpRoute;
    let mut names = BTreeSet::new();
    for change in changes {
        match kind_of(change) {
            // A policy with a route at its top selects what that route selects, which may have been others a moment ago.
            Some(Kind::MeshHTTPRoute) if mesh.viewed(Kind::MeshMetric).any(by_route) => {
                return Concerned::All;
            }
            Some(Kind::MeshMetric) if change.versions().any(by_route) => return Concerned::All,
            Some(Kind::MeshMetric) => {}
            _ => continue,
        }
        for policy in change.versions() {
            match mesh.selections.dataplanes(&policy.view) {
                Some(selected) => names.extend(selected.into_iter().cloned()),
                None => return Concerned::All,
            }
        }
    }
    Concerned::Some(names)
}
