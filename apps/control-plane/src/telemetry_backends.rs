//! Writes what is known about MeshOpenTelemetryBackends: how often policies refer to them.
//!
//! One follower for each mesh keeps the backends and the references, not the policies, so what a change costs
//! depends on how many different references there are.

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

/// The backends of a mesh, and what refers to them.
#[derive(Debug, Default)]
struct Followed {
    backends: BTreeMap<Key, Arc<Resource>>,
    policies: BTreeMap<Key, Vec<Labels>>,
    /// How often each set of labels is referred to.
    references: BTreeMap<Labels, usize>,
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
        due = settle(&meshes, store, due).await;
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
    let kinds = || std::iter::once(Kind::MeshOpenTelemetryBackend).chain(Kind::POLICIES.iter().copied());
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
    meshes: &Meshes<Followed>,
    store: &Arc<dyn Store>,
    due: BTreeSet<Arc<str>>,
) -> BTreeSet<Arc<str>> {
    let mut failed = BTreeSet::new();
    for mesh in due {
        let writes = meshes.get(&mesh).map(Followed::writes).unwrap_or_default();
        if writes.is_empty() {
            continue;
        }
        if let Err(error) = write_all(store.as_ref(), writes).await {
            tracing::warn!(mesh = &*mesh, %error, "statuses of MeshOpenTelemetryBackends could not be written; this is tried again");
            failed.insert(mesh);
        }
    }
    failed
}

impl Follow for Followed {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        if key.kind == Kind::MeshOpenTelemetryBackend {
            match resource {
                Some(backend) => self.backends.insert(key.clone(), backend.clone()),
                None => self.backends.remove(key),
            };
            return true;
        }
        if !Kind::POLICIES.contains(&key.kind) {
            return false;
        }
        let now = resource.map(|policy| policy::view::telemetry_references(policy)).unwrap_or_default();
        let before = match now.is_empty() {
            true => self.policies.remove(key),
            false => self.policies.insert(key.clone(), now.clone()),
        }
        .unwrap_or_default();
        for labels in &before {
            if let Some(count) = self.references.get_mut(labels) {
                *count -= 1;
            }
        }
        for labels in &now {
            *self.references.entry(labels.clone()).or_default() += 1;
        }
        self.references.retain(|_, count| *count > 0);
        before != now
    }
}

impl Followed {
    /// The statuses that are not as they should be.
    fn writes(&self) -> Vec<Write> {
        let mut counts: BTreeMap<&Key, usize> = BTreeMap::new();
        for (labels, count) in &self.references {
            if let Some(backend) = self.meant(labels) {
                *counts.entry(&backend.key).or_default() += count;
            }
        }
        let outdated = |backend: &Arc<Resource>| {
            let status = Status::MeshOpenTelemetryBackend(Arc::new(Conditions {
                conditions: vec![referenced(counts.get(&backend.key).copied().unwrap_or_default())],
            }));
            let resource = Resource { status: Some(status), ..Resource::clone(backend) };
            (resource.status != backend.status).then(|| Write::Update { resource, expected: backend.version })
        };
        self.backends.values().filter_map(outdated).collect()
    }

    /// The oldest backend that carries the labels.
    fn meant(&self, labels: &Labels) -> Option<&Arc<Resource>> {
        let carries = |backend: &&Arc<Resource>| {
            labels.iter().all(|(name, value)| backend.label(name) == Some(value.as_str()))
        };
        self.backends.values().filter(carries).min_by_key(|backend| (backend.created, &backend.key.name))
    }
}

fn referenced(count: usize) -> Condition {
    let (status, reason, message) = match count {
        0 => ("False", "NotReferenced", "Not referenced by any observability policy".to_owned()),
        _ => ("True", "Referenced", format!("Referenced by {count} policy backend(s)")),
    };
    Condition {
        type_: "ReferencedByPolicies".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
    }
}
