//! Desired MeshServices and their content; desired status of MeshExternalServices and MeshMultiZoneServices.
//!
//! Outside Kubernetes MeshServices come from the `kuma.io/service` tags of Dataplanes. A [`Generator`]
//! holds what is stored in one mesh, is fed each change, and says what to write; the control plane writes
//! it. Every write names the version it is based on, so that of two control planes on one store the second
//! finds its version outdated, sees what the first wrote, and has nothing left to do.
//!
//! ```text
//!   changed resource ─▶ apply ─▶ the services it belongs to are dirty ─▶ desired ─▶ writes
//!                         ▲                                                           │
//!                         └────────────── the store has written them ◀────────────────┘
//! ```
//!
//! Invariant: what is asked of a generator that followed the changes is what is asked of one that saw the
//! result only; and a change costs what the services it belongs to cost, however many others there are.

mod book;
mod deadlines;
mod generate;
mod generator;
mod grace;
mod hostnames;
mod multi_zone;
mod record;
mod spans;
mod status;
mod vips;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Key, Kind, Labels, Resource, Spec, Status,
    kinds::mesh_service::{MeshService, MeshServiceStatus},
    labels,
    naming::sni,
};

pub use generate::PortConflict;
pub use generator::{ExhaustedRange, Generator};
pub use grace::MOST_YOUNG;
pub use hostnames::HostnameConflict;
pub use record::{mesh_of_record, record_of};
pub use vips::Addresses;

/// Writes that are needed, and the time to ask again though nothing changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// Sorted by key.
    pub changes: Vec<ServiceChange>,
    /// The record of addresses, if it is to say something else. It is written before the services of
    /// `given`, or they are not written.
    pub record: Option<ServiceChange>,
    /// The services that get an address.
    pub given: BTreeSet<Key>,
    /// Dataplanes whose ports are not those of their service, as far as that was not said before.
    pub conflicts: Vec<PortConflict>,
    /// Number of services that are deleted without a grace period, because [`MOST_YOUNG`] young ones are in theirs.
    pub crowded_out: usize,
    /// End of the next grace period, or the time when a service without an address can get one.
    pub look_again: Option<Timestamp>,
}

/// One write to a MeshService, to the record of addresses, or to the status of a MeshExternalService or MeshMultiZoneService.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceChange {
    Create(Resource),
    /// Replaces the version `expected`.
    Update {
        resource: Resource,
        expected: u64,
    },
    /// Replaces the status of the version `expected`, and nothing else.
    Status {
        key: Key,
        status: Status,
        expected: u64,
    },
    Delete {
        key: Key,
        expected: u64,
    },
}

impl ServiceChange {
    pub fn key(&self) -> &Key {
        match self {
            ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => &resource.key,
            ServiceChange::Status { key, .. } | ServiceChange::Delete { key, .. } => key,
        }
    }
}

/// Properties of the mesh that every service depends on.
#[derive(Debug, Clone, Copy)]
struct ServiceContext<'a> {
    zone: &'a str,
    mesh: &'a Resource,
    /// Time for which a service outlives its last Dataplane: `meshService.deletionGracePeriod`.
    deletion_grace_period: Duration,
    /// Owner of the server names of ports, who writes them.
    snis: &'a sni::Owner,
    now: Timestamp,
}

/// A MeshService while it is worked on.
#[derive(Debug)]
struct ServiceWork {
    existing: Option<Arc<Resource>>,
    labels: Labels,
    spec: MeshService,
    status: MeshServiceStatus,
    delete: bool,
}

impl ServiceWork {
    fn on(existing: &Arc<Resource>) -> Option<ServiceWork> {
        let status = match &existing.status {
            Some(Status::MeshService(status)) => MeshServiceStatus::clone(status),
            _ => MeshServiceStatus::default(),
        };
        Some(ServiceWork {
            existing: Some(existing.clone()),
            labels: existing.labels.clone(),
            spec: existing.spec.get::<MeshService>()?.clone(),
            status,
            delete: false,
        })
    }

    fn is_generated(&self) -> bool {
        self.existing.as_deref().is_none_or(is_generated)
    }

    fn is_local(&self) -> bool {
        self.existing.as_deref().is_none_or(crate::matching::is_local)
    }

    /// The service as others see it: with the labels it is going to have.
    fn planned(&self, around: &ServiceContext<'_>, name: &Arc<str>) -> Arc<Resource> {
        match &self.existing {
            Some(existing) if existing.labels == self.labels => existing.clone(),
            Some(existing) => Arc::new(Resource { labels: self.labels.clone(), ..Resource::clone(existing) }),
            None => {
                Arc::new(created(around, name.clone(), self.labels.clone(), self.spec.clone().into(), None))
            }
        }
    }

    /// The write that makes the store agree; `None` when it does.
    fn finish(self, around: &ServiceContext<'_>, name: Arc<str>) -> Option<ServiceChange> {
        let ServiceWork { existing, labels, spec, status, delete } = self;
        let spec = Spec::from(spec);
        let status = Status::MeshService(Arc::new(status));
        match existing {
            None => Some(ServiceChange::Create(created(around, name, labels, spec, Some(status)))),
            Some(existing) if delete => {
                Some(ServiceChange::Delete { key: existing.key.clone(), expected: existing.version })
            }
            Some(existing) if existing.labels == labels && existing.spec == spec => {
                update_status(&existing, status)
            }
            Some(existing) => {
                let status = Some(status);
                let resource =
                    Resource { labels, modified: around.now, spec, status, ..Resource::clone(&existing) };
                Some(ServiceChange::Update { resource, expected: existing.version })
            }
        }
    }
}

/// Only these may be changed and deleted by the generator. A service that was synchronised from
/// another zone carries the same label, but is not ours.
fn is_generated(service: &Resource) -> bool {
    service.label(labels::MANAGED_BY) == Some(labels::MESH_SERVICE_GENERATOR)
        && crate::matching::is_local(service)
}

fn created(
    around: &ServiceContext<'_>,
    name: Arc<str>,
    labels: Labels,
    spec: Spec,
    status: Option<Status>,
) -> Resource {
    let key = Key { kind: Kind::MeshService, mesh: around.mesh.key.name.clone(), name };
    let created = around.now;
    let modified = around.now;
    let owner = Some(around.mesh.key.clone());
    Resource { key, labels, created, modified, version: 0, owner, spec, status }
}

/// `None` when it is what is stored.
pub(crate) fn update_status(existing: &Resource, status: Status) -> Option<ServiceChange> {
    let differs = existing.status.as_ref() != Some(&status);
    differs.then(|| ServiceChange::Status { key: existing.key.clone(), status, expected: existing.version })
}
