//! Findings: what may be wrong with a mesh.
//!
//! ```text
//!   snapshot + what a change affects ─▶ MeshFindings   of the mesh and of its policies
//!   insights of proxies              ─▶ ProxyFindings  what they reject, certificates that near their end
//!   plan::Finding                    ─▶ as it is       what a proxy asks for and cannot have
//!   all of a mesh, now and before    ─▶ OpenFindings   what was opened and closed, and when
//! ```
//!
//! Every finding has a code of [`resources::finding`] and names the resource it is about. Both collections
//! follow changes: a change looks at the policies it concerns, and compares the entries that it changes with those
//! about the same thing, and with no others.
//!
//! The part of a policy that is kept is bounded, and so is the list of a mesh's findings ([`Listing`]):
//! policies that many people write may contradict each other more often than anyone can read.
//!
//! Invariants: pure; time is an argument. Findings that followed every change are those of a collection that saw only the
//! result: a property test compares the two.

mod clients;
mod conflicts;
mod files;
mod listing;
mod mesh;
mod naming;
mod open;
mod policies;
mod proxies;
mod references;
mod services;
mod slots;
mod trimming;

pub use conflicts::ServiceConflicts;
pub use files::of_resources;
pub use listing::{Listing, MAX_PER_CODE};
pub use mesh::MeshFindings;
pub use open::{FindingChange, OpenFindings};
pub use proxies::ProxyFindings;
pub use resources::finding::{Code, Finding, Severity};
pub use services::{hostnames_without_address, of_services, used_up};
