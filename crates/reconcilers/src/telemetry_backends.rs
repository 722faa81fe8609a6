//! Writes what is known about MeshOpenTelemetryBackends: how often policies refer to them, and in the status of those
//! policies whether what they refer to is there.
//!
//! One follower for each mesh knows who refers to which labels. A policy that changes costs itself; a backend that comes
//! or goes costs what the different references are, and the policies behind those that mean something else now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use reconcile::{Follow, Meshes, Next, Pass, ReconcileFailure, Reconciler, Runner};
use resources::{
    Key, Kind, Labels, Resource, Status,
    kinds::{mesh_open_telemetry_backend::Conditions, service_status::Condition},
};
use store::{Dirty, Snapshot, Write};

/// The policies that refer to backends.
const REFERRING: [Kind; 3] = [Kind::MeshAccessLog, Kind::MeshMetric, Kind::MeshTrace];

/// The backends of a mesh, and what refers to them.
#[derive(Debug, Default)]
struct MeshBackends {
    backends: BTreeMap<Key, Arc<Resource>>,
    policies: BTreeMap<Key, ReferringPolicy>,
    references: BTreeMap<Labels, Reference>,
    /// Set while the statuses of backends may be out of date.
    backends_dirty: bool,
    /// The policies whose statuses may be out of date.
    dirty_policies: BTreeSet<Key>,
}

/// A policy, and the labels of each backend that it refers to.
#[derive(Debug)]
struct ReferringPolicy {
    policy: Arc<Resource>,
    to: Vec<Labels>,
}

/// Policies that refer to backends with the same labels.
#[derive(Debug, Default)]
struct Reference {
    /// And how often.
    by: BTreeMap<Key, usize>,
    /// True while there is such a backend.
    resolved: bool,
}

/// The references of every mesh.
#[derive(Debug, Default)]
struct TelemetryBackends {
    meshes: Meshes<MeshBackends>,
}

/// Starts to follow.
pub fn start(runner: &Runner) {
    runner.run(TelemetryBackends::default());
}

impl Reconciler for TelemetryBackends {
    const NAME: &'static str = "telemetry_backends";
    const WORK: &'static str = "write statuses of MeshOpenTelemetryBackends and their policies";
    const FOLLOWS: &'static [Kind] =
        &[Kind::Mesh, Kind::MeshOpenTelemetryBackend, Kind::MeshAccessLog, Kind::MeshMetric, Kind::MeshTrace];
    type Unit = Arc<str>;

    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        let kinds = || std::iter::once(Kind::MeshOpenTelemetryBackend).chain(REFERRING);
        self.meshes.apply(snapshot, dirty, |snapshot, mesh, _| {
            let mut followed = MeshBackends::default();
            for resource in kinds().flat_map(|kind| snapshot.in_mesh(kind, mesh)) {
                followed.apply(&resource.key, Some(resource));
            }
            followed
        })
    }

    /// Writes the statuses that are out of date.
    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        if let Some(followed) = self.meshes.get_mut(mesh) {
            pass.write_all(followed.writes()).await?;
            followed.settled();
        }
        Ok(Next::on_change())
    }
}

impl Follow for MeshBackends {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        if key.kind == Kind::MeshOpenTelemetryBackend {
            self.take_backend(key, resource);
            return true;
        }
        if !REFERRING.contains(&key.kind) {
            return false;
        }
        self.take_policy(key, resource);
        self.backends_dirty || self.dirty_policies.contains(key)
    }
}

impl MeshBackends {
    fn take_backend(&mut self, key: &Key, backend: Option<&Arc<Resource>>) {
        let before = match backend {
            Some(backend) => self.backends.insert(key.clone(), backend.clone()),
            None => self.backends.remove(key),
        };
        self.backends_dirty = true;
        let labels = |backend: &Arc<Resource>| backend.labels.clone();
        if before.as_ref().map(labels) == backend.map(labels) {
            return;
        }
        for (labels, reference) in &mut self.references {
            let resolved = meant(&self.backends, labels).is_some();
            if std::mem::replace(&mut reference.resolved, resolved) != resolved {
                self.dirty_policies.extend(reference.by.keys().cloned());
            }
        }
    }

    fn take_policy(&mut self, key: &Key, policy: Option<&Arc<Resource>>) {
        let to = policy.map(|policy| policy::view::telemetry_references(policy)).unwrap_or_default();
        let before = self.policies.remove(key).map(|known| known.to).unwrap_or_default();
        if before != to {
            self.backends_dirty = true;
            self.forget(key, &before);
            for labels in &to {
                let resolved = || meant(&self.backends, labels).is_some();
                let fresh = || Reference { by: BTreeMap::new(), resolved: resolved() };
                let reference = self.references.entry(labels.clone()).or_insert_with(fresh);
                *reference.by.entry(key.clone()).or_default() += 1;
            }
        }
        match policy {
            Some(policy) => {
                self.policies.insert(key.clone(), ReferringPolicy { policy: policy.clone(), to });
                self.dirty_policies.insert(key.clone());
            }
            None => {
                self.dirty_policies.remove(key);
            }
        }
    }

    fn forget(&mut self, policy: &Key, references: &[Labels]) {
        for labels in references {
            let left = self.references.get_mut(labels).map(|reference| {
                reference.by.remove(policy);
                reference.by.len()
            });
            if left == Some(0) {
                self.references.remove(labels);
            }
        }
    }

    fn settled(&mut self) {
        self.backends_dirty = false;
        self.dirty_policies.clear();
    }

    /// The statuses that are not as they should be.
    fn writes(&self) -> Vec<Write> {
        let backends = if self.backends_dirty { self.of_backends() } else { Vec::new() };
        let policies = self.dirty_policies.iter().filter_map(|key| {
            let ReferringPolicy { policy, to } = self.policies.get(key)?;
            outdated(policy, self.resolved(to))
        });
        backends.into_iter().chain(policies).collect()
    }

    fn of_backends(&self) -> Vec<Write> {
        let mut counts: BTreeMap<&Key, usize> = BTreeMap::new();
        for (labels, reference) in &self.references {
            if let Some(backend) = meant(&self.backends, labels) {
                *counts.entry(&backend.key).or_default() += reference.by.values().sum::<usize>();
            }
        }
        let count = |backend: &Key| counts.get(backend).copied().unwrap_or_default();
        self.backends
            .values()
            .filter_map(|backend| outdated(backend, referenced(count(&backend.key))))
            .collect()
    }

    fn resolved(&self, references: &[Labels]) -> Condition {
        let resolved = |labels: &Labels| self.references.get(labels).is_some_and(|known| known.resolved);
        let unresolved: BTreeSet<String> =
            references.iter().filter(|labels| !resolved(labels)).map(described).collect();
        if !unresolved.is_empty() {
            let all: Vec<String> = unresolved.into_iter().collect();
            let message = format!("Unresolved MeshOpenTelemetryBackend references: {}", all.join(", "));
            return condition(RESOLVED, "False", "UnresolvedBackendRefs", message);
        }
        let message = if references.is_empty() {
            "No MeshOpenTelemetryBackend references configured"
        } else {
            "All MeshOpenTelemetryBackend references are resolved"
        };
        condition(RESOLVED, "True", "AllBackendRefsResolved", message.to_owned())
    }
}

/// Type of the condition of policies.
const RESOLVED: &str = "BackendRefsResolved";

/// The oldest backend that carries the labels.
fn meant<'a>(backends: &'a BTreeMap<Key, Arc<Resource>>, labels: &Labels) -> Option<&'a Arc<Resource>> {
    let carries = |backend: &&Arc<Resource>| {
        labels.iter().all(|(name, value)| backend.label(name) == Some(value.as_str()))
    };
    backends.values().filter(carries).min_by_key(|backend| (backend.created, &backend.key.name))
}

/// Kuma's spelling of a reference by labels.
fn described(labels: &Labels) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("labels:{}", labels.join(","))
}

/// The write of a status with this condition; `None` when it is stored already.
fn outdated(stored: &Arc<Resource>, condition: Condition) -> Option<Write> {
    let conditions = Arc::new(Conditions { conditions: vec![condition] });
    let status = match stored.key.kind {
        Kind::MeshAccessLog => Status::MeshAccessLog(conditions),
        Kind::MeshMetric => Status::MeshMetric(conditions),
        Kind::MeshTrace => Status::MeshTrace(conditions),
        _ => Status::MeshOpenTelemetryBackend(conditions),
    };
    let is_new = stored.status.as_ref() != Some(&status);
    is_new.then(|| Write::Status { key: stored.key.clone(), status, expected: Some(stored.version) })
}

fn referenced(count: usize) -> Condition {
    let (status, reason, message) = match count {
        0 => ("False", "NotReferenced", "Not referenced by any observability policy".to_owned()),
        _ => ("True", "Referenced", format!("Referenced by {count} policy backend(s)")),
    };
    condition("ReferencedByPolicies", status, reason, message)
}

fn condition(type_: &str, status: &str, reason: &str, message: String) -> Condition {
    Condition { type_: type_.to_owned(), status: status.to_owned(), reason: reason.to_owned(), message }
}
