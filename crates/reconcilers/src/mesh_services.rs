//! Writes the MeshServices and Workloads that Dataplanes ask for, and what is known about them.
//!
//! What to write is decided by [`topology::services`] and [`topology::workloads`]: one generator of each for each
//! mesh follows the changes, at a cost that depends on the changed resource only. Addresses are given by writing a record
//! before the services that get them. This loop feeds the generators and writes their answers: the first at once, then at most one batch in an interval while
//! changes keep coming. Control planes on one store may all do it: who comes second finds its version
//! outdated, and asks again when the other one's write has arrived.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use admission::Registrar;
use findings::ServiceConflicts;
use reconcile::{Follow, Meshes, Next, Pass, ReconcileFailure, Reconciler, Runner};
use resources::{
    Key, Kind, Resource,
    finding::{Code, Finding},
    naming::sni,
};
use store::{Dirty, Error, Snapshot, Write};
use topology::{
    services::{
        Addresses, Desired, ExhaustedRange, Generator, MOST_YOUNG, PortConflict, ServiceChange,
        mesh_of_record, record_of,
    },
    workloads,
};

use crate::Config;

/// Pause after the services of a mesh were written: a thousand proxies that connect at once are a few batches, not a
/// thousand.
const INTERVAL: Duration = Duration::from_millis(50);

/// The services of every mesh.
struct Services {
    zone: String,
    grace_period: Duration,
    addresses: Addresses,
    snis: sni::Owner,
    conflicts: Arc<ServiceConflicts>,
    meshes: Meshes<MeshGenerators>,
}

/// The services of a mesh.
struct MeshGenerators {
    generator: Generator,
    workloads: workloads::Generator,
    /// The ranges that were said to be used up.
    exhausted: BTreeSet<Kind>,
}

/// Starts to follow.
pub fn start(
    registrar: &Registrar,
    conflicts: Arc<ServiceConflicts>,
    config: &Config,
    zone: &str,
    runner: &Runner,
) {
    runner.run(Services {
        zone: zone.to_owned(),
        grace_period: config.mesh_service.deletion_grace_period.to_std().unwrap_or_default(),
        addresses: config.ipam.addresses(),
        snis: registrar.sni_owner().clone(),
        conflicts,
        meshes: Meshes::default(),
    });
}

impl Reconciler for Services {
    const NAME: &'static str = "mesh_services";
    const WORK: &'static str = "write generated MeshServices";
    /// The mesh, its record of addresses, [`MeshGenerators::GLOBAL`], and what services of a mesh are made from.
    const FOLLOWS: &'static [Kind] = &[
        Kind::Mesh,
        Kind::Config,
        Kind::HostnameGenerator,
        Kind::Dataplane,
        Kind::DataplaneInsight,
        Kind::MeshService,
        Kind::MeshExternalService,
        Kind::MeshMultiZoneService,
        Kind::MeshIdentity,
        Kind::Workload,
    ];
    type Unit = Arc<str>;

    /// Feeds what changed to the generators.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        let Services { zone, grace_period, addresses, snis, conflicts: _, meshes } = self;
        meshes.apply(snapshot, dirty, |snapshot, mesh, before| {
            let exhausted = before.as_ref().map(|followed| followed.exhausted.clone()).unwrap_or_default();
            let generator = match before {
                Some(followed) => followed.generator.anew(),
                None => Generator::new(zone, *grace_period).with_addresses(addresses).with_snis(snis),
            };
            let workloads = workloads::Generator::new(zone, &snis.environment);
            let mut followed = MeshGenerators { generator, workloads, exhausted };
            let own = [Key::global(Kind::Mesh, mesh), record_of(mesh)];
            let own = own.iter().filter_map(|key| snapshot.get(key));
            let global = MeshGenerators::GLOBAL.iter().flat_map(|kind| snapshot.of_kind(*kind));
            // Kinds of no mesh have no resource in one.
            let sources = Self::FOLLOWS.iter().flat_map(|kind| snapshot.in_mesh(*kind, mesh));
            for resource in own.chain(global).chain(sources) {
                followed.apply(&resource.key, Some(resource));
            }
            followed
        })
    }

    /// Writes what a mesh needs. It stays due until the store has it: the write comes back as a change, and
    /// what another control plane wrote meanwhile, too.
    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let Some(followed) = self.meshes.get_mut(mesh) else { return Ok(Next::on_change()) };
        let mut desired = followed.generator.desired(pass.now);
        desired.changes.extend(followed.workloads.desired(pass.now));
        desired.conflicts.iter().for_each(|conflict| warn_of(mesh, conflict));
        if desired.crowded_out > 0 {
            let services = desired.crowded_out;
            let mesh: &str = mesh;
            tracing::warn!(
                mesh,
                services,
                limit = MOST_YOUNG,
                "deleting young services without a grace period: too many are waiting"
            );
        }
        followed.say_exhausted(mesh);
        self.conflicts.replace(mesh, findings_of(&pass.snapshot, mesh, &followed.generator));
        let next = Next::on_change().at(desired.look_again);
        if desired.changes.is_empty() && desired.record.is_none() {
            return Ok(next.again_if(followed.is_dirty()));
        }
        write_desired(pass, &mut followed.generator, desired).await?;
        Ok(next.after(INTERVAL).again_if(followed.is_dirty()))
    }
}

impl Follow for MeshGenerators {
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

impl MeshGenerators {
    fn is_dirty(&self) -> bool {
        self.generator.is_dirty() || self.workloads.is_dirty()
    }

    /// Logs which ranges of addresses are used up, each once until it is not any more.
    fn say_exhausted(&mut self, mesh: &str) {
        let exhausted: Vec<ExhaustedRange> = self.generator.exhausted().collect();
        for exhausted in exhausted.iter().filter(|exhausted| !self.exhausted.contains(&exhausted.kind)) {
            let detail = findings::used_up(exhausted);
            tracing::error!(mesh, code = %Code::AddressesExhausted, detail, "a range of addresses is used up");
        }
        self.exhausted = exhausted.iter().map(|exhausted| exhausted.kind).collect();
    }
}

fn warn_of(mesh: &str, conflict: &PortConflict) {
    let detail = described(conflict);
    tracing::warn!(mesh, code = %Code::ServicePortConflict, detail, "ports of a service conflict");
}

/// Findings of the services of a mesh.
fn findings_of(stored: &Snapshot, mesh: &str, generator: &Generator) -> Vec<Finding> {
    let kri = |kind: Kind, name: &str| stored.get(&Key::new(kind, mesh, name))?.kri("");
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

/// Writes what a generator wants. No address is used before the record of addresses says so: whatever else
/// is refused, an address is given by one control plane only.
async fn write_desired(
    pass: &Pass,
    generator: &mut Generator,
    desired: Desired,
) -> Result<(), ReconcileFailure> {
    let store = &pass.store;
    let Desired { changes, record, given, .. } = desired;
    let Some(record) = record.map(write) else {
        return pass.write_all(changes.into_iter().map(write).collect()).await;
    };
    let all = std::iter::once(record.clone()).chain(changes.iter().cloned().map(write));
    let is_given = |change: &&ServiceChange| given.contains(change.key());
    match store.write(all.collect()).await {
        Err(error) if error.is_outdated() => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {
            changes.iter().filter(is_given).for_each(|change| generator.was_written(change));
            return Ok(());
        }
    }
    let recorded = match store.write(vec![record]).await {
        Ok(_) => true,
        Err(error) if error.is_outdated() => false,
        Err(error) => return Err(error.into()),
    };
    let changes = changes.into_iter().filter(|change| recorded || !given.contains(change.key()));
    let changes: Vec<ServiceChange> = changes.collect();
    let outcomes = store.write_each(changes.iter().cloned().map(write).collect()).await;
    let mut failure: Option<Error> = None;
    for (change, outcome) in changes.iter().zip(outcomes) {
        match outcome {
            Err(error) if !error.is_outdated() => failure = Some(error),
            Err(_) if is_given(&change) => generator.was_refused(change),
            Ok(_) if is_given(&change) => generator.was_written(change),
            _ => {}
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn write(change: ServiceChange) -> Write {
    match change {
        ServiceChange::Create(resource) => Write::Create(resource),
        ServiceChange::Update { resource, expected } => Write::Update { resource, expected },
        ServiceChange::Status { key, status, expected } => {
            Write::Status { key, status, expected: Some(expected) }
        }
        ServiceChange::Delete { key, expected } => Write::Delete { key, expected: Some(expected) },
    }
}
