//! The record of a mesh: which addresses were given to its services.

use std::sync::Arc;

use jiff::Timestamp;
use resources::{Key, Kind, Labels, Resource, Spec, Status, kinds::config::Config};
use serde::{Deserialize, Serialize};

use super::{
    ServiceChange,
    book::StoredBook,
    vips::{Addresses, Pool},
};

const PREFIX: &str = "kuma-";
const SUFFIX: &str = "-service-vips";

/// The resource that says which addresses of a mesh were given to services.
pub fn record_of(mesh: &str) -> Key {
    Key::global(Kind::Config, &format!("{PREFIX}{mesh}{SUFFIX}"))
}

/// The mesh whose record a resource is.
pub fn mesh_of_record(key: &Key) -> Option<&str> {
    let name = key.name.strip_prefix(PREFIX).filter(|_| key.kind == Kind::Config)?;
    name.strip_suffix(SUFFIX)
}

/// The addresses of a mesh, by kind of service.
#[derive(Debug, Clone)]
pub struct Vips {
    pub services: Pool,
    pub external: Pool,
    pub multi_zone: Pool,
    stored: Option<Arc<Resource>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredBooks {
    mesh_service: StoredBook,
    mesh_external_service: StoredBook,
    mesh_multi_zone_service: StoredBook,
}

impl Vips {
    pub fn of(addresses: &Addresses) -> Vips {
        let pool = |range| Pool::of(range, addresses.quarantine);
        Vips {
            services: pool(addresses.services),
            external: pool(addresses.external),
            multi_zone: pool(addresses.multi_zone),
            stored: None,
        }
    }

    pub fn pools(&self) -> [(Kind, &Pool); 3] {
        [
            (Kind::MeshService, &self.services),
            (Kind::MeshExternalService, &self.external),
            (Kind::MeshMultiZoneService, &self.multi_zone),
        ]
    }

    /// Forgets who has which address, but not that they were in use.
    pub fn release_all(&mut self) {
        for pool in [&mut self.services, &mut self.external, &mut self.multi_zone] {
            pool.release_all();
        }
        self.stored = None;
    }

    /// Takes in the record. Returns the services, by kind, that need another address now.
    pub fn read(&mut self, stored: Option<Arc<Resource>>) -> [(Kind, Vec<Arc<str>>); 3] {
        let config = stored.as_ref().and_then(|stored| stored.spec.get::<Config>());
        // What cannot be read is written anew; the addresses in use are known from the services.
        let books =
            config.map(|config| serde_json::from_str::<StoredBooks>(&config.config).unwrap_or_default());
        let books = books.as_ref();
        let outside = [
            (Kind::MeshService, self.services.read(books.map(|books| &books.mesh_service))),
            (Kind::MeshExternalService, self.external.read(books.map(|books| &books.mesh_external_service))),
            (
                Kind::MeshMultiZoneService,
                self.multi_zone.read(books.map(|books| &books.mesh_multi_zone_service)),
            ),
        ];
        self.stored = stored;
        outside
    }

    /// Takes back the address of a service that could not be written after the record was.
    pub fn was_refused(&mut self, change: &ServiceChange) {
        if let (Some(pool), Some(vip)) = (self.of_kind(change.key().kind), vip_of(change)) {
            pool.was_refused(vip);
        }
    }

    /// Waits for the address of a service that was written.
    pub fn was_written(&mut self, change: &ServiceChange) {
        if let (Some(pool), Some(vip)) = (self.of_kind(change.key().kind), vip_of(change)) {
            pool.was_written(&change.key().name, vip);
        }
    }

    /// A service is seen as it is stored.
    pub fn arrived(&mut self, key: &Key) {
        if let Some(pool) = self.of_kind(key.kind) {
            pool.arrived(&key.name);
        }
    }

    fn of_kind(&mut self, kind: Kind) -> Option<&mut Pool> {
        match kind {
            Kind::MeshService => Some(&mut self.services),
            Kind::MeshExternalService => Some(&mut self.external),
            Kind::MeshMultiZoneService => Some(&mut self.multi_zone),
            _ => None,
        }
    }

    pub fn is_dirty(&self) -> bool {
        self.pools().iter().any(|(_, pool)| pool.is_dirty())
    }

    /// The write that makes the record say what was given in this round; `None` when it does.
    pub fn write(&self, mesh: &Resource, now: Timestamp) -> Option<ServiceChange> {
        let [services, external, multi_zone] = self.pools().map(|(_, pool)| pool.record());
        if !(services.1 || external.1 || multi_zone.1) {
            return None;
        }
        let books = StoredBooks {
            mesh_service: services.0,
            mesh_external_service: external.0,
            mesh_multi_zone_service: multi_zone.0,
        };
        let spec = Spec::from(Config { config: serde_json::to_string(&books).ok()? });
        Some(match &self.stored {
            Some(stored) => {
                let resource = Resource { spec, modified: now, ..Resource::clone(stored) };
                ServiceChange::Update { resource, expected: stored.version }
            }
            None => ServiceChange::Create(Resource {
                key: record_of(mesh.name()),
                labels: Labels::new(),
                created: now,
                modified: now,
                version: 0,
                owner: Some(mesh.key.clone()),
                spec,
                status: None,
            }),
        })
    }
}

/// The address that a write gives to a service.
fn vip_of(change: &ServiceChange) -> Option<&str> {
    let status = match change {
        ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => {
            resource.status.as_ref()?
        }
        ServiceChange::Status { status, .. } => status,
        ServiceChange::Delete { .. } => return None,
    };
    let vip = match status {
        Status::MeshService(status) => status.vips.first()?,
        Status::MeshMultiZoneService(status) => status.vips.first()?,
        Status::MeshExternalService(status) => &status.vip,
        _ => return None,
    };
    Some(&vip.ip)
}
