//! The mesh, frozen.

use std::{collections::BTreeMap, sync::Arc};

use resources::{Kind, Resource};

use crate::{Destination, DestinationId, Endpoints};

/// Everything about one mesh that a proxy's configuration can depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshSnapshot {
    pub name: Arc<str>,
    pub mesh: Arc<Resource>,
    pub mtls: Option<Mtls>,
    pub dataplanes: BTreeMap<Arc<str>, Arc<Resource>>,
    pub destinations: BTreeMap<DestinationId, Arc<Destination>>,
    pub endpoints: BTreeMap<DestinationId, Arc<Endpoints>>,
    /// Policies by kind, sorted by name.
    pub policies: BTreeMap<Kind, Vec<Arc<Resource>>>,
}

/// Mutual TLS by the mesh's own certificate authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mtls {
    pub enabled_backend: Arc<str>,
    pub mode: MtlsMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtlsMode {
    Strict,
    Permissive,
}
