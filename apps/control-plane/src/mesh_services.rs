//! Writes the MeshServices and Workloads that Dataplanes ask for, and what is known about them.
//!
//! What to write is decided by [`topology::services`] and [`topology::workloads`]: one generator of each for each
//! mesh follows the changes. This
//! loop feeds them and writes their answers: the first at once, then at most one batch in an interval while
//! changes keep coming. Control planes on one store may all do it: who comes second finds its version
//! outdated, and asks again when the other one's write has arrived.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Key, Kind, Resource,
    finding::{Code, Finding},
};
use runtime::Shutdown;
use store::{Dirty, Error, Registrar, Store, Write};
use tokio::time::Instant;
use topology::{
    services::{Desired, Generator, PortConflict, ServiceChange},
    workloads,
};

use crate::{
    config::Config,
    findings::ServiceConflicts,
    following::{Follow, Meshes},
};

/// The kinds of a mesh that services are made from.
const SOURCES: [Kind; 7] = [
    Kind::Dataplane,
    Kind::DataplaneInsight,
    Kind::MeshService,
    Kind::MeshExternalService,
    Kind::MeshMultiZoneService,
    Kind::MeshIdentity,
    Kind::Workload,
];
/// How long to leave a mesh alone after its services were written: a thousand proxies that connect at once
/// are a few batches, not a thousand.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The services of every mesh.
struct Services {
    store: Arc<dyn Store>,
    zone: String,
    grace_period: Duration,
    conflicts: Arc<ServiceConflicts>,
    meshes: Meshes<Followed>,
}

/// The services of a mesh, and when to look at them.
struct Followed {
    generator: Generator,
    workloads: workloads::Generator,
    /// When something happens though nothing changes.
    deadline: Option<Timestamp>,
    /// Not before then.
    rested: Instant,
}

/// Starts the loop.
pub fn start(
    registrar: Arc<Registrar>,
    conflicts: Arc<ServiceConflicts>,
    config: &Config,
    shutdown: &Shutdown,
) {
    let mut services = Services {
        store: registrar.store().clone(),
        zone: config.multizone.zone.name.clone(),
        grace_period: config.mesh_service.deletion_grace_period.to_std().unwrap_or_default(),
        conflicts,
        meshes: Meshes::default(),
    };
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = services.run() => {}
            () = ending.begun() => {}
        }
    });
}

impl Services {
    async fn run(&mut self) {
        let mut changes = self.store.changes();
        self.fold(Dirty::Everything);
        loop {
            let next = self.next();
            tokio::select! {
                dirty = changes.next() => match dirty {
                    Some(dirty) => self.fold(dirty),
                    None => return,
                },
                () = tokio::time::sleep(PAUSE), if self.meshes.behind() => self.fold(Dirty::Everything),
                mesh = at(next) => self.settle(&mesh).await,
            }
        }
    }

    /// The mesh to look at next, and when.
    fn next(&self) -> Option<(Instant, Arc<str>)> {
        let due = |(mesh, followed): (&Arc<str>, &Followed)| Some((followed.due()?, mesh.clone()));
        self.meshes.iter().filter_map(due).min()
    }

    /// Feeds what changed to the generators.
    fn fold(&mut self, dirty: Dirty) {
        let (zone, grace_period) = (&self.zone, self.grace_period);
        self.meshes.fold(self.store.as_ref(), dirty, |snapshot, mesh, before| {
            let rested = before.as_ref().map_or_else(Instant::now, |followed| followed.rested);
            let generator = match before {
                Some(followed) => followed.generator.anew(),
                None => Generator::new(zone, grace_period),
            };
            let mut followed =
                Followed { generator, workloads: workloads::Generator::new(zone), deadline: None, rested };
            let own = snapshot.get(&Key::global(Kind::Mesh, mesh));
            for resource in
                own.into_iter().chain(SOURCES.iter().flat_map(|kind| snapshot.in_mesh(*kind, mesh)))
            {
                followed.apply(&resource.key, Some(resource));
            }
            followed
        });
    }

    /// Writes what a mesh needs. It stays due until the store has it: the write comes back as a change, and
    /// what another control plane wrote meanwhile, too.
    async fn settle(&mut self, mesh: &Arc<str>) {
        let Some(followed) = self.meshes.get_mut(mesh) else { return };
        let now = Timestamp::now();
        let Desired { mut changes, conflicts, look_again } = followed.generator.desired(now);
        changes.extend(followed.workloads.desired(now));
        conflicts.iter().for_each(|conflict| warn_of(mesh, conflict));
        let known = followed.generator.conflicts().map(|conflict| finding(&self.store, mesh, conflict));
        self.conflicts.replace(mesh, known.collect());
        followed.deadline = look_again;
        if changes.is_empty() {
            return;
        }
        let pause = match write_all(self.store.as_ref(), changes.into_iter().map(write).collect()).await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(mesh = &**mesh, %error, "services could not be written; this is tried again");
                PAUSE
            }
        };
        followed.rested = Instant::now() + pause;
    }
}

impl Follow for Followed {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        self.generator.apply(key, resource.cloned());
        self.workloads.apply(key, resource.cloned());
        self.is_dirty()
    }
}

impl Followed {
    fn is_dirty(&self) -> bool {
        self.generator.is_dirty() || self.workloads.is_dirty()
    }

    /// When to look at the mesh again; `None` when nothing is to be done.
    fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        let deadline = self.deadline.map(|deadline| {
            now + Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default()
        });
        let due = if self.is_dirty() { Some(now) } else { deadline };
        due.map(|due| due.max(self.rested))
    }
}

fn warn_of(mesh: &str, conflict: &PortConflict) {
    tracing::warn!(mesh, code = %Code::ServicePortConflict, "{}", described(conflict));
}

fn finding(store: &Arc<dyn Store>, mesh: &str, conflict: &PortConflict) -> Finding {
    // The service may be about to be written.
    let service = Key::new(Kind::MeshService, mesh, &conflict.service);
    let dataplanes = conflict.dataplanes.iter().map(|name| Key::new(Kind::Dataplane, mesh, name));
    let stored = store.snapshot().ok();
    let known = |key: Key| stored.as_ref()?.get(&key)?.kri("");
    let about = std::iter::once(service).chain(dataplanes).find_map(known);
    Finding::new(Code::ServicePortConflict, described(conflict)).or_about(about)
}

fn described(PortConflict { service, dataplanes }: &PortConflict) -> String {
    format!(
        "the Dataplanes {dataplanes:?} have other ports than the service {service:?} they belong to: those ports \
         cannot be reached"
    )
}

/// Writes all at once, or each on its own when one of them is outdated: another control plane wrote in between, or the
/// mesh is gone, and that is on its way here.
pub(crate) async fn write_all(store: &dyn Store, writes: Vec<Write>) -> Result<(), Error> {
    match store.write(writes.clone()).await {
        Err(error) if error.is_outdated() => {
            let outcomes = store.write_each(writes).await;
            outcomes.into_iter().filter_map(Result::err).find(|e| !e.is_outdated()).map_or(Ok(()), Err)
        }
        outcome => outcome.map(drop),
    }
}

fn write(change: ServiceChange) -> Write {
    match change {
        ServiceChange::Create(resource) => Write::Create(resource),
        ServiceChange::Update { resource, expected } => Write::Update { resource, expected },
        ServiceChange::Delete { key, expected } => Write::Delete { key, expected: Some(expected) },
    }
}

/// Waits for a mesh's turn; forever without one.
async fn at(next: Option<(Instant, Arc<str>)>) -> Arc<str> {
    match next {
        Some((at, mesh)) => {
            tokio::time::sleep_until(at).await;
            mesh
        }
        None => std::future::pending().await,
    }
}
