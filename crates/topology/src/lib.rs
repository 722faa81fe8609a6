//! The mesh at one moment: its destinations, their endpoints, and the clients that may call them.
//!
//! One writer folds changes of resources into [`AllMeshes`]; readers hold an immutable [`MeshSnapshot`]. Older
//! forms of configuration (`kuma.io/service` tags) become the same [`Destination`] as a MeshService here,
//! once, and nowhere later.
//!
//! ```text
//!   changed resources ──▶ AllMeshes::apply ──▶ Arc<MeshSnapshot> + Affected (who must look again)
//! ```
//!
//! Invariant: pure. Time, status writes and addresses to allocate come in and go out as values; two
//! states that saw the same resources are equal, whatever the order.

pub mod access;
mod build;
pub mod cidr;
pub mod destination;
pub mod endpoint;
pub mod identities;
pub mod labelled;
mod lists;
pub mod matching;
pub mod observed;
pub mod selection;
pub mod services;
pub mod snapshot;
pub mod state;
pub mod virtual_hosts;
pub mod workloads;
pub mod zones;

pub use access::{AccessGraph, ClientClass, DestinationAccess, Inactive, ModeSource, Trimming, TrimmingMode};
pub use destination::{ClientTls, Destination, DestinationId, External, Protocol};
pub use endpoint::{Endpoint, Endpoints, Instance};
pub use identities::{Identities, Trusts, VouchedLabels};
pub use snapshot::{MeshSnapshot, Mtls, MtlsMode};
pub use state::{Affected, AllMeshes, MeshUpdate, PolicyChange, ResourceChange};
pub use virtual_hosts::{HostConflict, TakenOver, VirtualHost, VirtualHosts, VirtualPort};
pub use zones::ZoneRoutes;
