//! Every resource kind of the mesh as plain data.
//!
//! A kind is one row in [`kind`]'s table and one file in [`kinds`]: spec, defaults, validation and
//! their tests; a policy has one more row in [`policy`]. [`format`] reads and writes the two forms users know (Universal and Kubernetes),
//! [`naming`] builds and reads every name that leaves the control plane (KRI, SNI, `self_…`).
//!
//! Invariant: this crate is pure. It has no clock, no randomness, no files, no network; the same
//! input gives the same bytes.

pub mod checks;
pub mod duration;
pub mod finding;
pub mod format;
pub mod kind;
pub mod kinds;
pub mod labels;
pub mod naming;
pub mod overview;
pub mod policy;
mod resource;
pub mod schema;
mod shape;
pub mod superseded;
pub mod violation;

pub use kind::{Administered, Descriptor, Form, Kind, Scope, Spec, Status};
pub use policy::PolicyTraits;
pub use resource::{Draft, Key, Labels, Resource};
pub use schema::{NoStatus, Schema, Subject};
pub use violation::{Path, Violation, Violations};
