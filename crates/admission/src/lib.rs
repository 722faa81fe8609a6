//! Every write by a user passes through here.
//!
//! A store keeps whatever it is given; [`Rules`] know what may be given. They validate specs, names
//! and labels, compute the labels and SNIs only the control plane may set, see that the mesh exists and
//! owns its resources, and refuse what this control plane must not write (see [`ControlPlaneRole`]). All violations
//! are reported at once. The [`Registrar`] makes the writes that were admitted; nothing is written when
//! there is a violation.
//!
//! ```text
//!   Draft + Snapshot ──▶ Rules::admit ──▶ Admitted { outcome, warnings, pending } ──▶ Registrar::commit ──▶ Store::write
//!                        pure             or Refusal with every violation             async
//! ```
//!
//! Rules write nothing and need no store, so they also answer what a change would do, and decide for a
//! store that others write, such as the Kubernetes API. A caller whose version is outdated because of
//! another control plane's write waits for that write with [`Store::caught_up`](store::Store::caught_up),
//! and is admitted again.

mod dataplane;
mod deletion;
mod expected;
mod labels;
mod names;
mod reachability;
mod registrar;
mod rules;
mod secrets;
mod services;
mod snis;
#[cfg(test)]
mod tests;
mod trial;
mod writable;

use std::sync::Arc;

use jiff::Timestamp;
use resources::{Draft, Environment, Key, Resource, Violations};
use store::{Error, Snapshot};

pub use expected::{Expected, VersionConflict};
pub use registrar::{Attempts, Registrar};
pub use rules::{AdmittedWrite, Pending, Rules};
pub use trial::Trial;

/// Role of this control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlPlaneRole {
    Global,
    /// `federated` when it is connected to a global control plane.
    Zone {
        name: String,
        federated: bool,
    },
}

/// Companions that a mesh lacks on this snapshot: default policies, signing key.
///
/// A new mesh lacks all of them. So may one that is stored: a store without transactions can fail
/// between the mesh and its companions. They are written in the order given, so the last one tells
/// that none before it was forgotten; one that an operator has deleted must not be asked for again.
pub type Companions = Box<dyn Fn(&Draft, &Snapshot) -> Vec<Companion> + Send + Sync>;

/// Adds to what is wrong with a draft, and to the advice for its author.
pub type DraftCheck = fn(&Draft, &mut Violations, &mut Vec<String>);

/// Something a mesh comes with.
#[derive(Debug, Clone)]
pub enum Companion {
    Known(Draft),
    /// Made when it is stored, after everything that is known. A mesh whose secrets cannot be made is
    /// not made either.
    Secret {
        key: Key,
        make: fn(&Key) -> Result<Draft, Error>,
    },
}

impl Companion {
    pub fn key(&self) -> &Key {
        match self {
            Companion::Known(draft) => &draft.key,
            Companion::Secret { key, .. } => key,
        }
    }
}

/// Configuration of the rules.
pub struct RuleSettings {
    pub mode: ControlPlaneRole,
    pub environment: Environment,
    /// `multizone.zone.disableOriginLabelValidation`
    pub disable_origin_label_validation: bool,
    /// `store.unsafeDelete`: meshes with dataplanes and zones that are online may be deleted.
    pub unsafe_delete: bool,
    /// `dpServer.hds.enabled`: whether proxies probe the applications of inbounds with a `serviceProbe`.
    pub health_discovery: bool,
    pub companions: Companions,
    /// Rules that depend on more than the kinds themselves, for example on what proxies understand.
    pub check: DraftCheck,
    pub now: fn() -> Timestamp,
}

/// Outcome of a put, with the resource as it is stored.
#[derive(Debug, Clone)]
pub struct Put {
    pub resource: Arc<Resource>,
    pub outcome: WriteEffect,
    /// Deprecations and other advice for the author.
    pub warnings: Vec<String>,
}

/// Effect of a put on what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEffect {
    Created,
    Updated,
    /// Nothing was written: the same is stored already.
    Unchanged,
}

/// Reason to refuse a write.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This kind cannot be written here; the text says where it can.
    #[error("{0}")]
    ReadOnly(String),
    #[error("{0}")]
    Invalid(Violations),
    /// Valid by itself, and not as a change of what is stored.
    #[error("{0}")]
    Immutable(Violations),
    #[error("mesh {0:?} is not found")]
    MeshMissing(String),
    /// The constraints of the mesh keep this proxy out.
    #[error("{0}")]
    NotAMember(String),
    /// Not the version that the caller means to replace or delete.
    #[error("{} was changed by another writer", .0.key)]
    Changed(VersionConflict),
    #[error(transparent)]
    Store(#[from] Error),
}
