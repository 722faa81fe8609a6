//! Writes into the ZoneIngresses of this zone what other zones can ask for by tags, and whether there are permissions
//! that other zones do not know. Where services are called as resources, only what VirtualOutbounds name is among it:
//! other zones know the rest as MeshServices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use policy::view::Role;
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner, Wake, Whole};
use resources::{
    Key, Kind, Resource, Spec,
    kinds::zone_ingress::{AvailableService, ZoneIngress},
    labels,
};
use serving::push::{MeshChange, PendingChanges, Push};
use store::{Dirty, Snapshot, Write};
use topology::{Affected, MeshSnapshot};

/// Time for which changes are collected before they are written: all proxies of other zones hear of each write.
const INTERVAL: Duration = Duration::from_secs(1);

/// The services that other zones find here by tags.
struct AvailableServices {
    push: Arc<Push>,
    pending: Arc<PendingChanges>,
}

/// Begins to follow the meshes. Before the push loop starts, so that nothing is missed.
pub fn start(push: &Arc<Push>, runner: &Runner) {
    runner.run(AvailableServices { push: push.clone(), pending: push.subscribe() });
}

impl Reconciler for AvailableServices {
    const NAME: &'static str = "available_services";
    const WORK: &'static str = "write the services that this zone offers to others";
    const FOLLOWS: &'static [Kind] = &[];
    type Unit = Whole;

    fn apply(&mut self, _snapshot: &Snapshot, _dirty: &Dirty) -> BTreeSet<Whole> {
        BTreeSet::new()
    }

    fn wake(&self) -> Wake {
        self.pending.wake()
    }

    fn woken(&mut self) -> BTreeSet<Whole> {
        Whole::if_due(matters(&self.pending))
    }

    async fn reconcile(&mut self, _unit: &Whole, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let writes = outdated(&self.push, &pass.snapshot, pass.now);
        if !writes.is_empty() {
            pass.store.write(writes).await?;
        }
        Ok(Next::on_change().after(INTERVAL))
    }
}

/// True if something changed that other zones may find here: proxies, hostnames, meshes, or an ingress.
fn matters(pending: &PendingChanges) -> bool {
    let changed = pending.take();
    let matters = |change: &MeshChange| {
        let Affected {
            whole_mesh,
            policies,
            proxies,
            virtual_hosts,
            globals,
            // Other zones find Dataplanes, hostnames and permissions here; the rest follows from these.
            destinations: _,
            services: _,
            endpoints: _,
            zones: _,
            access_rules: _,
            reachability: _,
            reachability_by_default: _,
        } = &change.affected;
        let ingress = globals.iter().any(|key| key.kind == Kind::ZoneIngress);
        let versions = policies.iter().flat_map(|change| change.versions());
        let permission = versions.into_iter().any(|policy| is_of_zone(&policy.resource));
        ingress
            || permission
            || *whole_mesh
            || !proxies.is_empty()
            || !virtual_hosts.is_empty()
            || change.snapshot.is_none()
    };
    changed.anew || changed.meshes.values().any(matters)
}

/// True for a permission that stays in this zone.
fn is_of_zone(policy: &Resource) -> bool {
    policy.kind() == Kind::MeshTrafficPermission
        && policy.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
        && Role::of(&policy.labels) != Role::Producer
}

/// Services of a mesh that are found by tags; none where nothing can cross zones.
fn services(mesh: &MeshSnapshot) -> Vec<AvailableService> {
    let secured = mesh.mtls.is_some() || mesh.identities.any_ready();
    if !secured {
        return Vec::new();
    }
    let one = |(tags, instances): (&Arc<_>, u32)| AvailableService {
        tags: BTreeMap::clone(tags),
        instances,
        mesh: mesh.name.to_string(),
        external_service: false,
    };
    mesh.found_by_tags().map(one).collect()
}

/// The writes after which the ingresses of this zone say what it offers.
fn outdated(push: &Push, snapshot: &Snapshot, now: Timestamp) -> Vec<Write> {
    let ingresses = push.own_ingresses();
    if ingresses.is_empty() {
        return Vec::new();
    }
    let meshes = push.all_meshes();
    let all: Vec<AvailableService> = meshes.iter().flat_map(|mesh| services(mesh)).collect();
    let permissions = |mesh: &Arc<MeshSnapshot>| {
        mesh.policies_of(Kind::MeshTrafficPermission).any(|policy| is_of_zone(policy))
    };
    let own_permissions = meshes.iter().any(permissions).then(|| "true".to_owned());
    let mut writes = Vec::new();
    for name in ingresses {
        let Some(stored) = snapshot.get(&Key::global(Kind::ZoneIngress, &name)) else { continue };
        let Some(spec) = stored.spec.get::<ZoneIngress>() else { continue };
        let mut labels = stored.labels.clone();
        match &own_permissions {
            Some(value) => drop(labels.insert(labels::OWN_PERMISSIONS.to_owned(), value.clone())),
            None => drop(labels.remove(labels::OWN_PERMISSIONS)),
        }
        if spec.available_services == all && stored.labels == labels {
            continue;
        }
        let spec = ZoneIngress { available_services: all.clone(), ..spec.clone() };
        let resource = Resource { spec: Spec::from(spec), labels, modified: now, ..Resource::clone(stored) };
        writes.push(Write::Update { expected: stored.version, resource });
    }
    writes
}
