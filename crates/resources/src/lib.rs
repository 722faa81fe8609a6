//! Every resource kind of the mesh as plain data.
//!
//! A kind is one row in [`kind`]'s table and one file in [`kinds`]: spec, defaults, validation and
//! their tests; a policy has one more row in [`policy`]. [`format`] reads and writes the two forms users know (Universal and Kubernetes),
//! [`naming`] builds and reads every name that leaves the control plane (KRI, SNI, `self_…`).
//!
//! A user's resource is JSON until [`format`] has read it; from there on it is typed. `shape` compares it with the
//! schema first, [`checks`] looks at names and labels, for control planes and `kumactl` alike. There is no second model
//! of a resource: one serde type per kind.
//!
//! Invariant: this crate is pure. It has no clock, no randomness, no files, no network; the same
//! input gives the same bytes.

pub mod checks;
pub mod duration;
mod environment;
pub mod finding;
pub mod format;
pub mod kind;
pub mod kinds;
pub mod labels;
pub mod naming;
pub mod nearest;
pub mod overview;
pub mod policy;
mod resource;
pub mod schema;
mod shape;
pub mod superseded;
pub mod violation;

pub use environment::Environment;
pub use kind::{Administered, Descriptor, Form, Kind, Scope, Spec, Status};
pub use policy::PolicyTraits;
pub use resource::{Draft, Key, Labels, Resource};
pub use schema::{NoStatus, Schema, Subject};
pub use violation::{Path, Violation, Violations};
