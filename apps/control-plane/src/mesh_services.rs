//! Writes the MeshServices and Workloads that Dataplanes ask for, and what is known about them.
//!
//! What to write is decided by [`topology::services`] and [`topology::workloads`]: one generator of each for each
//! mesh follows the changes. This
//! loop feeds them and writes their answers: the first at once, then at most one batch in an interval while
//! changes keep coming. Control planes on one store may all do it: who comes second finds its version
//! outdated, and asks again when the other one's write has arrived.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Key, Kind, Resource,
    finding::{Code, Finding},
    naming::sni,
};
use runtime::Shutdown;
use store::{Dirty, Error, Registrar, Store, Write};
use tokio::time::Instant;
use topology::{
    services::{
        Addresses, Desired, Exhausted, Generator, PortConflict, ServiceChange, mesh_of_record, record_of,
    },
    workloads,
};

use crate::{
    config::Config,
    findings::ServiceConflicts,
    following::{Follow, Meshes},
    turns,
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
    addresses: Addresses,
    snis: sni::Owner,
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
    /// The ranges that were said to be used up.
    exhausted: BTreeSet<Kind>,
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
        addresses: config.ipam.addresses(),
        snis: registrar.sni_owner().clone(),
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
                mesh = turns::at(next) => self.settle(&mesh).await,
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
        let (addresses, snis) = (&self.addresses, &self.snis);
        self.meshes.fold(self.store.as_ref(), dirty, |snapshot, mesh, before| {
            let rested = before.as_ref().map_or_else(Instant::now, |followed| followed.rested);
            let exhausted = before.as_ref().map(|followed| followed.exhausted.clone()).unwrap_or_default();
            let generator = match before {
                Some(followed) => followed.generator.anew(),
                None => Generator::new(zone, grace_period).with_addresses(addresses).with_snis(snis),
            };
            let workloads = workloads::Generator::new(zone);
            let mut followed = Followed { generator, workloads, deadline: None, rested, exhausted };
            let own = [Key::global(Kind::Mesh, mesh), record_of(mesh)];
            let own = own.iter().filter_map(|key| snapshot.get(key));
            let global = Followed::GLOBAL.iter().flat_map(|kind| snapshot.of_kind(*kind));
            let sources = SOURCES.iter().flat_map(|kind| snapshot.in_mesh(*kind, mesh));
            for resource in own.chain(global).chain(sources) {
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
        let mut desired = followed.generator.desired(now);
        desired.changes.extend(followed.workloads.desired(now));
        desired.conflicts.iter().for_each(|conflict| warn_of(mesh, conflict));
        followed.say_exhausted(mesh);
        self.conflicts.replace(mesh, findings_of(self.store.as_ref(), mesh, &followed.generator));
        followed.deadline = desired.look_again;
        if desired.changes.is_empty() && desired.record.is_none() {
            return;
        }
        let pause = match write_desired(self.store.as_ref(), &mut followed.generator, desired).await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(mesh = &**mesh, %error, "cannot write generated MeshServices; retrying");
                PAUSE
            }
        };
        followed.rested = Instant::now() + pause;
    }
}

impl Follow for Followed {
    const GLOBAL: &'static [Kind] = &[Kind::HostnameGenerator];

    fn mesh_of(key: &Key) -> Option<&str> {
        mesh_of_record(key)
    }

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

    /// Logs which ranges of addresses are used up, each once until it is not any more.
    fn say_exhausted(&mut self, mesh: &str) {
        let exhausted: Vec<Exhausted> = self.generator.exhausted().collect();
        for exhausted in exhausted.iter().filter(|exhausted| !self.exhausted.contains(&exhausted.kind)) {
            let detail = findings::used_up(exhausted);
            tracing::error!(mesh, code = %Code::AddressesExhausted, detail, "a range of addresses is used up");
        }
        self.exhausted = exhausted.iter().map(|exhausted| exhausted.kind).collect();
    }

    /// When to look at the mesh again; `None` when nothing is to be done.
    fn due(&self) -> Option<Instant> {
        turns::due(self.is_dirty(), self.deadline, self.rested)
    }
}

fn warn_of(mesh: &str, conflict: &PortConflict) {
    let detail = described(conflict);
    tracing::warn!(mesh, code = %Code::ServicePortConflict, detail, "ports of a service conflict");
}

/// What is wrong with the services of a mesh.
fn findings_of(store: &dyn Store, mesh: &str, generator: &Generator) -> Vec<Finding> {
    let stored = store.snapshot().ok();
    let kri = |kind: Kind, name: &str| stored.as_ref()?.get(&Key::new(kind, mesh, name))?.kri("");
    let ports = generator.conflicts().map(|conflict| {
        // The service may be about to be written.
        let dataplanes = conflict.dataplanes.iter();
        let about = kri(Kind::MeshService, &conflict.service)
            .or_else(|| dataplanes.into_iter().find_map(|name| kri(Kind::Dataplane, name)));
        Finding::new(Code::ServicePortConflict, described(conflict)).or_about(about)
    });
    ports.chain(findings::of_services(generator, kri)).collect()
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

/// Writes what a generator wants. No address is used before the record of addresses says so: whatever else
/// is refused, an address is given by one control plane only.
async fn write_desired(store: &dyn Store, generator: &mut Generator, desired: Desired) -> Result<(), Error> {
    let Desired { changes, record, given, .. } = desired;
    let Some(record) = record.map(write) else {
        return write_all(store, changes.into_iter().map(write).collect()).await;
    };
    let all = std::iter::once(record.clone()).chain(changes.iter().cloned().map(write));
    let is_given = |change: &&ServiceChange| given.contains(change.key());
    match store.write(all.collect()).await {
        Err(error) if error.is_outdated() => {}
        Err(error) => return Err(error),
        Ok(_) => {
            changes.iter().filter(is_given).for_each(|change| generator.was_written(change));
            return Ok(());
        }
    }
    let recorded = match store.write(vec![record]).await {
        Ok(_) => true,
        Err(error) if error.is_outdated() => false,
        Err(error) => return Err(error),
    };
    let changes = changes.into_iter().filter(|change| recorded || !given.contains(change.key()));
    let changes: Vec<ServiceChange> = changes.collect();
    let outcomes = store.write_each(changes.iter().cloned().map(write).collect()).await;
    let mut failure = None;
    for (change, outcome) in changes.iter().zip(outcomes) {
        match outcome {
            Err(error) if !error.is_outdated() => failure = Some(error),
            Err(_) if is_given(&change) => generator.was_refused(change),
            Ok(_) if is_given(&change) => generator.was_written(change),
            _ => {}
        }
    }
    failure.map_or(Ok(()), Err)
}

fn write(change: ServiceChange) -> Write {
    match change {
        ServiceChange::Create(resource) => Write::Create(resource),
        ServiceChange::Update { resource, expected } => Write::Update { resource, expected },
        ServiceChange::Delete { key, expected } => Write::Delete { key, expected: Some(expected) },
    }
}
