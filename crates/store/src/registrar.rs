//! The door every user's write goes through: labels, names, mesh existence, ownership, read-only rules.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use resources::{Draft, Key, Kind, Resource, Violations};

use crate::{Error, Store};

/// Which control plane this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Global,
    /// `federated` when it is connected to a global control plane.
    Zone { name: String, federated: bool },
}

/// The resources that come into being together with a mesh: default policies, signing key.
pub type Companions = Box<dyn Fn(&Draft) -> Vec<Draft> + Send + Sync>;

/// What the rules depend on.
pub struct Setup {
    pub mode: Mode,
    /// `apiServer.readOnly`
    pub read_only: bool,
    /// `multizone.zone.disableOriginLabelValidation`
    pub disable_origin_label_validation: bool,
    /// `store.unsafeDelete`: meshes with dataplanes and zones that are online may be deleted.
    pub unsafe_delete: bool,
    pub companions: Companions,
    pub now: fn() -> Timestamp,
}

/// Admits writes.
pub struct Registrar {
    store: Arc<dyn Store>,
    setup: Setup,
}

/// What a put did.
#[derive(Debug, Clone)]
pub struct Put {
    pub resource: Arc<Resource>,
    pub outcome: Outcome,
    /// Deprecations and other advice for the author.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Updated,
    /// What was asked for is what is stored already; nothing was written.
    Unchanged,
}

/// Why a write was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This kind cannot be written here; the text says where it can.
    #[error("{0}")]
    ReadOnly(String),
    #[error("{0}")]
    Invalid(Violations),
    #[error("mesh {0:?} is not found")]
    MeshMissing(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Registrar {
    pub fn new(store: Arc<dyn Store>, setup: Setup) -> Registrar {
        Registrar { store, setup }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn mode(&self) -> &Mode {
        &self.setup.mode
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("mode", &self.setup.mode).finish_non_exhaustive()
    }
}

#[allow(unused, reason = "in the making")]
fn _uses(_: Key, _: Kind) {}
