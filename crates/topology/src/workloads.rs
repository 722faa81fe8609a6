//! Desired Workloads and their status.
//!
//! Outside Kubernetes there is one for each `kuma.io/workload` label of Dataplanes that can be a name. As with
//! [`services`](crate::services), a [`Generator`] holds what is stored in one mesh, is fed each change, and says
//! what to write.
//!
//! Invariant: a change costs the workload it belongs to, however many Dataplanes and workloads there are.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Environment, Key, Kind, Labels, Resource, Status,
    kinds::{
        dataplane::{Dataplane, InboundState},
        dataplane_insight::DataplaneInsight,
        workload::{Proxies, Workload, WorkloadStatus},
    },
    labels,
    naming::dns,
};

use crate::{
    matching,
    services::{ServiceChange, update_status},
};

/// Value of `kuma.io/managed-by` that distinguishes generated workloads from those of users.
pub const GENERATOR: &str = "workload-generator";

/// Says what to write so that the workloads of one mesh are what they should be.
#[derive(Debug, Clone)]
pub struct Generator {
    zone: Arc<str>,
    environment: Environment,
    mesh: Option<Key>,
    proxies: HashMap<Arc<str>, WorkloadProxy>,
    /// By label.
    counts: BTreeMap<Arc<str>, Proxies>,
    stored: BTreeMap<Arc<str>, Arc<Resource>>,
    /// From a change until what is stored is what is wanted.
    dirty: BTreeSet<Arc<str>>,
    visits: u64,
}

/// Facts about one proxy that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct WorkloadProxy {
    /// The label of its Dataplane, if it has one.
    workload: Option<Arc<str>>,
    healthy: bool,
    connected: bool,
}

impl Generator {
    /// For a mesh of which nothing is known yet.
    pub fn new(zone: &str, environment: &Environment) -> Generator {
        Generator {
            zone: zone.into(),
            environment: environment.clone(),
            mesh: None,
            proxies: HashMap::new(),
            counts: BTreeMap::new(),
            stored: BTreeMap::new(),
            dirty: BTreeSet::new(),
            visits: 0,
        }
    }

    /// Returns the number of times that a workload was looked at, to prove that cost follows change.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// [`Generator::desired`] may return something.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Applies a resource of the mesh as it is now; `None` for one that is gone.
    pub fn apply(&mut self, key: &Key, resource: Option<Arc<Resource>>) {
        match key.kind {
            Kind::Mesh => self.mesh = resource.map(|mesh| mesh.key.clone()),
            Kind::Dataplane => {
                let (workload, healthy) = resource.as_deref().map(of_dataplane).unwrap_or_default();
                self.replace_proxy(&key.name, |old| WorkloadProxy { workload, healthy, ..old });
            }
            Kind::DataplaneInsight => {
                let insight = resource.as_ref().and_then(|insight| insight.spec.get::<DataplaneInsight>());
                let connected = insight.is_some_and(DataplaneInsight::is_online);
                self.replace_proxy(&key.name, |old| WorkloadProxy { connected, ..old });
            }
            Kind::Workload => {
                match resource {
                    Some(resource) => self.stored.insert(key.name.clone(), resource),
                    None => self.stored.remove(&key.name),
                };
                self.dirty.insert(key.name.clone());
            }
            _ => {}
        }
    }

    fn replace_proxy(&mut self, name: &Arc<str>, change: impl FnOnce(WorkloadProxy) -> WorkloadProxy) {
        let old = self.proxies.remove(name).unwrap_or_default();
        let new = change(old.clone());
        if old != new {
            self.count(&old, |count| count.saturating_sub(1));
            self.count(&new, |count| count.saturating_add(1));
        }
        if new != WorkloadProxy::default() {
            self.proxies.insert(name.clone(), new);
        }
    }

    fn count(&mut self, proxy: &WorkloadProxy, step: impl Fn(u32) -> u32) {
        let Some(workload) = &proxy.workload else { return };
        let counts = self.counts.entry(workload.clone()).or_default();
        counts.total = step(counts.total);
        for (counted, count) in
            [(proxy.connected, &mut counts.connected), (proxy.healthy, &mut counts.healthy)]
        {
            if counted {
                *count = step(*count);
            }
        }
        if counts.total == 0 {
            self.counts.remove(workload);
        }
        self.dirty.insert(workload.clone());
    }

    /// Returns the needed writes, sorted by name. A workload is asked for again until the store has it.
    pub fn desired(&mut self, now: Timestamp) -> Vec<ServiceChange> {
        let Some(mesh) = self.mesh.clone() else { return Vec::new() };
        let mut changes = Vec::new();
        for name in std::mem::take(&mut self.dirty) {
            self.visits += 1;
            if let Some(change) = self.change(&mesh, &name, now) {
                changes.push(change);
                self.dirty.insert(name);
            }
        }
        changes
    }

    fn change(&self, mesh: &Key, name: &Arc<str>, now: Timestamp) -> Option<ServiceChange> {
        let counts = self.counts.get(name);
        let status = WorkloadStatus { dataplane_proxies: counts.copied().unwrap_or_default() };
        let status = Status::Workload(Arc::new(status));
        let Some(stored) = self.stored.get(name) else {
            return counts.map(|_| ServiceChange::Create(self.created(mesh, name, Some(status), now)));
        };
        if !matching::is_local(stored) {
            return None;
        }
        let generated = stored.label(labels::MANAGED_BY) == Some(GENERATOR);
        if counts.is_none() && generated {
            return Some(ServiceChange::Delete { key: stored.key.clone(), expected: stored.version });
        }
        update_status(stored, status)
    }

    fn created(&self, mesh: &Key, name: &Arc<str>, status: Option<Status>, now: Timestamp) -> Resource {
        let labels: [(&str, &str); 6] = [
            (labels::MESH, &mesh.name),
            (labels::DISPLAY_NAME, name),
            (labels::MANAGED_BY, GENERATOR),
            (labels::ENV, self.environment.label()),
            (labels::ZONE, &self.zone),
            (labels::ORIGIN, labels::ORIGIN_ZONE),
        ];
        Resource {
            key: Key { kind: Kind::Workload, mesh: mesh.name.clone(), name: name.clone() },
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<Labels>(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(mesh.clone()),
            spec: Workload {}.into(),
            status,
        }
    }
}

/// The workload of a Dataplane, if a Workload can have its name, and whether an inbound takes traffic.
fn of_dataplane(dataplane: &Resource) -> (Option<Arc<str>>, bool) {
    let workload = dataplane.label(labels::WORKLOAD).filter(|workload| dns::is_rfc1035_label(workload));
    let inbounds = dataplane.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
    (workload.map(Arc::from), inbounds.iter().any(|inbound| inbound.state == InboundState::Ready))
}
