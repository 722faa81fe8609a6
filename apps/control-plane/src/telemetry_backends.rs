//! Writes what is known about MeshOpenTelemetryBackends: how often policies refer to them, and in the status of those
//! policies whether what they refer to is there.
//!
//! One follower for each mesh knows who refers to which labels. A policy that changes costs itself; a backend that comes
//! or goes costs what the different references are, and the policies behind those that mean something else now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use resources::{
    Key, Kind, Labels, Resource, Status,
    kinds::{mesh_open_telemetry_backend::Conditions, service_status::Condition},
};
use runtime::Shutdown;
use store::{Dirty, Registrar, Store, Write};

use crate::{
    following::{Follow, Meshes},
    mesh_services::write_all,
};

/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The policies that refer to backends.
const REFERRING: [Kind; 3] = [Kind::MeshAccessLog, Kind::MeshMetric, Kind::MeshTrace];

/// The backends of a mesh, and what refers to them.
#[derive(Debug, Default)]
struct Followed {
    backends: BTreeMap<Key, Arc<Resource>>,
    policies: BTreeMap<Key, Referring>,
    references: BTreeMap<Labels, Reference>,
    /// Whether the statuses of backends may be out of date.
    counted_anew: bool,
    /// The policies whose statuses may be out of date.
    doubtful: BTreeSet<Key>,
}

/// A policy, and the labels of each backend that it refers to.
#[derive(Debug)]
struct Referring {
    policy: Arc<Resource>,
    to: Vec<Labels>,
}

/// Who refers to backends with the same labels.
#[derive(Debug, Default)]
struct Reference {
    /// And how often.
    by: BTreeMap<Key, usize>,
    /// Whether there is such a backend.
    resolved: bool,
}

/// Starts the loop.
pub fn start(registrar: &Registrar, shutdown: &Shutdown) {
    let (store, ending) = (registrar.store().clone(), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = run(&store) => {}
            () = ending.begun() => {}
        }
    });
}

async fn run(store: &Arc<dyn Store>) {
    let mut changes = store.changes();
    let mut meshes = Meshes::<Followed>::default();
    let mut due = fold(&mut meshes, store, Dirty::Everything);
    loop {
        due = settle(&mut meshes, store, due).await;
        let wait = !due.is_empty() || meshes.behind();
        let dirty = tokio::select! {
            dirty = changes.next() => dirty,
            () = tokio::time::sleep(PAUSE), if wait => Some(Dirty::Keys(BTreeSet::new())),
        };
        let Some(dirty) = dirty else { return };
        due.extend(fold(&mut meshes, store, dirty));
    }
}

/// Takes in what changed; returns the meshes to look at.
fn fold(meshes: &mut Meshes<Followed>, store: &Arc<dyn Store>, dirty: Dirty) -> BTreeSet<Arc<str>> {
    let kinds = || std::iter::once(Kind::MeshOpenTelemetryBackend).chain(REFERRING);
    meshes.fold(store.as_ref(), dirty, |snapshot, mesh, _| {
        let mut followed = Followed::default();
        for resource in kinds().flat_map(|kind| snapshot.in_mesh(kind, mesh)) {
            followed.apply(&resource.key, Some(resource));
        }
        followed
    })
}

/// Writes the statuses that are out of date; returns the meshes where that failed.
async fn settle(
    meshes: &mut Meshes<Followed>,
    store: &Arc<dyn Store>,
    due: BTreeSet<Arc<str>>,
) -> BTreeSet<Arc<str>> {
    let mut failed = BTreeSet::new();
    for mesh in due {
        let Some(followed) = meshes.get_mut(&mesh) else { continue };
        let writes = followed.writes();
        // A write that another one was faster than comes back as a change.
        let written = match writes.is_empty() {
            true => Ok(()),
            false => write_all(store.as_ref(), writes).await,
        };
        match written {
            Ok(()) => followed.settled(),
            Err(error) => {
                tracing::warn!(mesh = &*mesh, %error, "cannot write statuses of MeshOpenTelemetryBackends and their policies; retrying");
                failed.insert(mesh);
            }
        }
    }
    failed
}

impl Follow for Followed {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        if key.kind == Kind::MeshOpenTelemetryBackend {
            self.take_backend(key, resource);
            return true;
        }
        if !REFERRING.contains(&key.kind) {
            return false;
        }
        self.take_policy(key, resource);
        self.counted_anew || self.doubtful.contains(key)
    }
}

impl Followed {
    fn take_backend(&mut self, key: &Key, backend: Option<&Arc<Resource>>) {
        let before = match backend {
            Some(backend) => self.backends.insert(key.clone(), backend.clone()),
            None => self.backends.remove(key),
        };
        self.counted_anew = true;
        let labels = |backend: &Arc<Resource>| backend.labels.clone();
        if before.as_ref().map(labels) == backend.map(labels) {
            return;
        }
        for (labels, reference) in &mut self.references {
            let resolved = meant(&self.backends, labels).is_some();
            if std::mem::replace(&mut reference.resolved, resolved) != resolved {
                self.doubtful.extend(reference.by.keys().cloned());
            }
        }
    }

    fn take_policy(&mut self, key: &Key, policy: Option<&Arc<Resource>>) {
        let to = policy.map(|policy| policy::view::telemetry_references(policy)).unwrap_or_default();
        let before = self.policies.remove(key).map(|known| known.to).unwrap_or_default();
        if before != to {
            self.counted_anew = true;
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
                self.policies.insert(key.clone(), Referring { policy: policy.clone(), to });
                self.doubtful.insert(key.clone());
            }
            None => {
                self.doubtful.remove(key);
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
        self.counted_anew = false;
        self.doubtful.clear();
    }

    /// The statuses that are not as they should be.
    fn writes(&self) -> Vec<Write> {
        let backends = if self.counted_anew { self.of_backends() } else { Vec::new() };
        let policies = self.doubtful.iter().filter_map(|key| {
            let Referring { policy, to } = self.policies.get(key)?;
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
        let message = match references.is_empty() {
            true => "No MeshOpenTelemetryBackend references configured",
            false => "All MeshOpenTelemetryBackend references are resolved",
        };
        condition(RESOLVED, "True", "AllBackendRefsResolved", message.to_owned())
    }
}

/// What the condition of policies is called.
const RESOLVED: &str = "BackendRefsResolved";

/// The oldest backend that carries the labels.
fn meant<'a>(backends: &'a BTreeMap<Key, Arc<Resource>>, labels: &Labels) -> Option<&'a Arc<Resource>> {
    let carries = |backend: &&Arc<Resource>| {
        labels.iter().all(|(name, value)| backend.label(name) == Some(value.as_str()))
    };
    backends.values().filter(carries).min_by_key(|backend| (backend.created, &backend.key.name))
}

/// How Kuma writes a reference by labels.
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
    let resource = Resource { status: Some(status), ..Resource::clone(stored) };
    (resource.status != stored.status).then(|| Write::Update { resource, expected: stored.version })
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
