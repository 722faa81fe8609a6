//! Which MeshServices there should be, and what should be written in them; and what should be written in
//! the status of MeshExternalServices and MeshMultiZoneServices.
//!
//! Outside Kubernetes MeshServices come from the `kuma.io/service` tags of Dataplanes. [`desired`]
//! compares that with what is stored and says what to write; the control plane writes it. The answer
//! depends only on what is stored, so asking again after the writes, or asking on two control planes at
//! once, ends at the same resources: every change names the version it is based on, and who comes
//! second finds nothing left to do.

mod generate;
mod multi_zone;
mod status;
mod vips;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Key, Kind, Labels, Resource, Spec, Status,
    kinds::{
        mesh::{Mesh, MeshServicesMode},
        mesh_service::{MeshService, MeshServiceStatus},
    },
    labels,
};

pub use generate::PortConflict;
pub use status::Observed;
pub use vips::Vips;

/// How `kuma.io/managed-by` tells generated services from those of users.
pub const GENERATOR: &str = "meshservice-generator";

/// The resources of one mesh that services are made from.
#[derive(Debug, Clone, Copy)]
pub struct MeshView<'a> {
    pub zone: &'a str,
    pub mesh: &'a Resource,
    pub dataplanes: &'a [Arc<Resource>],
    pub insights: &'a [Arc<Resource>],
    pub services: &'a [Arc<Resource>],
    pub external_services: &'a [Arc<Resource>],
    pub multi_zone_services: &'a [Arc<Resource>],
    /// How long a service outlives its last Dataplane: `meshService.deletionGracePeriod`.
    pub deletion_grace_period: Duration,
}

/// What to write, and when to ask again though nothing changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// Sorted by key.
    pub changes: Vec<ServiceChange>,
    /// Dataplanes whose ports are not those of their service.
    pub conflicts: Vec<PortConflict>,
    /// When the next grace period ends.
    pub look_again: Option<Timestamp>,
}

/// One write to a MeshService, or to the status of a MeshExternalService or MeshMultiZoneService.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceChange {
    Create(Resource),
    /// Replaces the version `expected`.
    Update {
        resource: Resource,
        expected: u64,
    },
    Delete {
        key: Key,
        expected: u64,
    },
}

/// What the services of a mesh should be. `vips` is kept between calls, one for each mesh.
pub fn desired(view: &MeshView<'_>, vips: &mut Vips, now: Timestamp) -> Desired {
    let mut desired = Desired::default();
    let mut services: BTreeMap<Arc<str>, Work<'_>> =
        view.services.iter().filter_map(|r| Some((r.key.name.clone(), Work::on(r)?))).collect();
    let mode = view.mesh.spec.get::<Mesh>().map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode);
    match mode {
        MeshServicesMode::Disabled => {
            services.values_mut().filter(|work| work.is_generated()).for_each(|work| work.delete = true);
        }
        _ => generate::generate(view, &mut services, &mut desired, now),
    }
    services.retain(|_, work| {
        if work.delete {
            desired.changes.extend(work.deletion());
        }
        !work.delete
    });
    status::observe(view, &mut services);
    let mut multi_zone = multi_zone::observe(view, &services);
    vips.assign(&mut services, &mut multi_zone);
    let external = vips.assign_external(view);
    desired.changes.extend(services.into_iter().filter_map(|(name, work)| work.finish(view, name, now)));
    let external = external.into_iter().map(|(r, status)| (r, Status::MeshExternalService(Arc::new(status))));
    let multi_zone =
        multi_zone.into_iter().map(|(r, status)| (r, Status::MeshMultiZoneService(Arc::new(status))));
    let statuses = external.chain(multi_zone);
    desired.changes.extend(statuses.filter_map(|(existing, status)| update_status(existing, status, now)));
    desired.changes.sort_by(|a, b| a.key().cmp(b.key()));
    desired
}

impl ServiceChange {
    pub fn key(&self) -> &Key {
        match self {
            ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => &resource.key,
            ServiceChange::Delete { key, .. } => key,
        }
    }
}

/// A MeshService while it is worked on.
#[derive(Debug)]
struct Work<'a> {
    existing: Option<&'a Resource>,
    labels: Labels,
    spec: MeshService,
    status: MeshServiceStatus,
    delete: bool,
}

impl<'a> Work<'a> {
    fn on(existing: &'a Resource) -> Option<Work<'a>> {
        let status = match &existing.status {
            Some(Status::MeshService(status)) => MeshServiceStatus::clone(status),
            _ => MeshServiceStatus::default(),
        };
        Some(Work {
            existing: Some(existing),
            labels: existing.labels.clone(),
            spec: existing.spec.get::<MeshService>()?.clone(),
            status,
            delete: false,
        })
    }

    /// Only these may be changed and deleted by the generator. A service that was synchronised from
    /// another zone carries the same label, but is not ours.
    fn is_generated(&self) -> bool {
        self.labels.get(labels::MANAGED_BY).is_some_and(|by| by == GENERATOR) && self.is_local()
    }

    fn is_local(&self) -> bool {
        self.existing.is_none_or(crate::matching::is_local)
    }

    fn deletion(&self) -> Option<ServiceChange> {
        let existing = self.existing?;
        Some(ServiceChange::Delete { key: existing.key.clone(), expected: existing.version })
    }

    /// The write that makes the store agree; `None` when it does.
    fn finish(self, view: &MeshView<'_>, name: Arc<str>, now: Timestamp) -> Option<ServiceChange> {
        let Work { existing, labels, spec, status, .. } = self;
        let key = Key { kind: Kind::MeshService, mesh: view.mesh.key.name.clone(), name };
        let (spec, status) = (Spec::from(spec), Some(Status::MeshService(Arc::new(status))));
        let Some(existing) = existing else {
            let owner = Some(view.mesh.key.clone());
            let (created, modified, version) = (now, now, 0);
            return Some(ServiceChange::Create(Resource {
                key,
                labels,
                created,
                modified,
                version,
                owner,
                spec,
                status,
            }));
        };
        if existing.labels == labels && existing.spec == spec && existing.status == status {
            return None;
        }
        let resource = Resource { labels, modified: now, spec, status, ..existing.clone() };
        Some(ServiceChange::Update { resource, expected: existing.version })
    }
}

/// `None` when it is what is stored.
fn update_status(existing: &Resource, status: Status, now: Timestamp) -> Option<ServiceChange> {
    let status = Some(status);
    if existing.status == status {
        return None;
    }
    let resource = Resource { modified: now, status, ..existing.clone() };
    Some(ServiceChange::Update { resource, expected: existing.version })
}
