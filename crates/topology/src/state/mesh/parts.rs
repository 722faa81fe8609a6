//! Parts of the state of a mesh, by what changes together.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use policy::Policy;
use resources::{Key, Resource, kinds::tags::Tags};

use super::super::{
    index::{Index, ServiceRef},
    secrets::Secrets,
};
use crate::{
    Destination, DestinationId, Endpoints, Identities, Mtls, Trusts, VirtualHosts,
    build::BuiltDestinations,
    labelled::Labelled,
    lists::Lists,
    virtual_hosts::{claims::Claims, of_services::ServiceHosts},
};

/// Resources as they are stored.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    pub mesh: Option<Arc<Resource>>,
    pub dataplanes: OrdMap<Arc<str>, Arc<Resource>>,
    pub services: OrdMap<Key, Arc<Resource>>,
    pub policies: OrdMap<Key, Arc<Policy>>,
    /// The MeshOpenTelemetryBackends by name.
    pub telemetry: OrdMap<Arc<str>, Arc<Resource>>,
    pub globals: OrdMap<Key, Arc<Resource>>,
}

/// Settings and resources that decide who proves to be whom.
#[derive(Debug, Clone, Default)]
pub struct Security {
    pub mtls: Option<Mtls>,
    pub identities: Identities,
    pub trusts: Trusts,
    /// Secrets that MeshExternalServices refer to.
    pub secrets: Secrets,
    /// Dataplanes that have a certificate.
    pub certified: OrdSet<Arc<str>>,
}

/// Sets of tags that are called.
#[derive(Debug, Clone, Default)]
pub struct WantedTags {
    /// Number of Dataplanes, routes and hostnames that want each set.
    pub tags: OrdMap<Arc<Tags>, usize>,
    /// Those sets by their service.
    pub services: Lists<Arc<str>, Arc<Tags>>,
}

/// Resources that subjects consist of.
#[derive(Debug, Clone, Default)]
pub struct Members {
    pub index: Index,
    /// Index of MeshMultiZoneServices and their MeshServices.
    pub zones: Index,
}

/// Destinations that subjects offer.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    pub built: OrdMap<ServiceRef, BuiltDestinations>,
    /// Subjects that claim each identifier of a destination; the first of several gets it.
    pub claims: Lists<DestinationId, ServiceRef>,
    pub destinations: OrdMap<DestinationId, Arc<Destination>>,
    pub endpoints: OrdMap<DestinationId, Arc<Endpoints>>,
    pub ports: OrdMap<Key, Arc<[DestinationId]>>,
    pub labelled: Labelled,
}

/// Claims on hostnames, and the hostnames that are offered.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    pub claims: Claims,
    pub virtual_hosts: VirtualHosts,
    pub service_hosts: ServiceHosts,
}
