//! Writes into the ZoneIngresses of this zone what other zones can ask for by tags, and whether there are permissions
//! that other zones do not know. Where services are called as resources, only what VirtualOutbounds name is among it:
//! other zones know the rest as MeshServices.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use policy::view::Role;
use resources::{
    Key, Kind, Resource, Spec,
    kinds::zone_ingress::{AvailableService, ZoneIngress},
    labels,
};
use runtime::Shutdown;
use store::{Error, Store, Write};
use topology::MeshSnapshot;

use crate::push::{MeshChange, PendingChanges, Push};

/// How long changes are collected before they are written: all proxies of other zones hear of each write.
const INTERVAL: Duration = Duration::from_secs(1);

/// Begins to follow the meshes. Before the push loop starts, so that nothing is missed.
pub fn start(store: &Arc<dyn Store>, push: &Arc<Push>, shutdown: &Shutdown) {
    let (store, push, ending) = (store.clone(), push.clone(), shutdown.clone());
    let pending = push.subscribe();
    shutdown.spawn(async move {
        let mut behind = false;
        loop {
            tokio::select! {
                () = pending.arrived(), if !behind => {}
                () = std::future::ready(()), if behind => {}
                () = ending.begun() => return,
            }
            behind |= matters(&pending);
            if behind {
                match write(&store, &push).await {
                    Ok(()) => behind = false,
                    Err(error) => {
                        tracing::warn!(%error, "cannot write the services that this zone offers to others; retrying");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = ending.begun() => return,
            }
        }
    });
}

/// Whether something changed that other zones may find here: proxies, hostnames, meshes, or an ingress.
fn matters(pending: &PendingChanges) -> bool {
    let changed = pending.take();
    let matters = |change: &MeshChange| {
        let affected = &change.affected;
        let ingress = affected.globals.iter().any(|key| key.kind == Kind::ZoneIngress);
        let versions = affected.policies.iter().flat_map(|change| change.versions());
        let permission = versions.into_iter().any(|policy| is_of_zone(&policy.resource));
        ingress
            || permission
            || affected.whole_mesh
            || !affected.proxies.is_empty()
            || !affected.virtual_hosts.is_empty()
            || change.snapshot.is_none()
    };
    changed.anew || changed.meshes.values().any(matters)
}

/// Whether a policy is a permission that stays in this zone.
fn is_of_zone(policy: &Resource) -> bool {
    policy.kind() == Kind::MeshTrafficPermission
        && policy.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
        && Role::of(&policy.labels) != Role::Producer
}

/// What of a mesh is found by tags; nothing where nothing can cross zones.
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

async fn write(store: &Arc<dyn Store>, push: &Push) -> Result<(), Error> {
    let ingresses = push.own_ingresses();
    if ingresses.is_empty() {
        return Ok(());
    }
    let all: Vec<AvailableService> = push.all_meshes().iter().flat_map(|mesh| services(mesh)).collect();
    let meshes = push.all_meshes();
    let permissions = |mesh: &Arc<MeshSnapshot>| {
        mesh.policies_of(Kind::MeshTrafficPermission).any(|policy| is_of_zone(policy))
    };
    let own_permissions = meshes.iter().any(permissions).then(|| "true".to_owned());
    let snapshot = store.snapshot()?;
    let mut writes = Vec::new();
    for name in ingresses {
        let Some(stored) = snapshot.get(&Key::global(Kind::ZoneIngress, &name)) else { continue };
        let Some(spec) = stored.spec.get::<ZoneIngress>() else { continue };
        let mut now = stored.labels.clone();
        match &own_permissions {
            Some(value) => drop(now.insert(labels::OWN_PERMISSIONS.to_owned(), value.clone())),
            None => drop(now.remove(labels::OWN_PERMISSIONS)),
        }
        if spec.available_services == all && stored.labels == now {
            continue;
        }
        let spec = ZoneIngress { available_services: all.clone(), ..spec.clone() };
        let resource = Resource {
            spec: Spec::from(spec),
            labels: now,
            modified: Timestamp::now(),
            ..Resource::clone(stored)
        };
        writes.push(Write::Update { expected: stored.version, resource });
    }
    if writes.is_empty() { Ok(()) } else { store.write(writes).await.map(drop) }
}
