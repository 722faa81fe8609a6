//! The mesh at one moment: which destinations there are, who serves them, who may be reached.
//!
//! One writer folds changes of resources into [`State`]; readers hold an immutable [`MeshSnapshot`].
//! What users wrote in older words (`kuma.io/service` tags) becomes the same [`Destination`] as a
//! MeshService here, once, and nowhere later.
//!
//! ```text
//!   changed resources ──▶ State::apply ──▶ Arc<MeshSnapshot> + Affected (who must look again)
//! ```
//!
//! Invariant: pure. Time, status writes and addresses to allocate come in and go out as values; two
//! states that saw the same resources are equal, whatever the order.

mod build;
pub mod cidr;
pub mod destination;
pub mod endpoint;
pub mod identities;
pub mod labelled;
mod lists;
pub mod matching;
pub mod observed;
pub mod reachability;
pub mod selection;
pub mod services;
pub mod snapshot;
pub mod state;
pub mod virtual_hosts;
pub mod workloads;
pub mod zones;

pub use destination::{ClientTls, Destination, DestinationId, External, Protocol};
pub use endpoint::{Endpoint, Endpoints, Instance};
pub use identities::{Identities, Trusts, Vouched};
pub use reachability::{ClientClass, Inactive, Mode, ModeSource, Reachability, Row, Trimming};
pub use snapshot::{MeshSnapshot, Mtls, MtlsMode};
pub use state::{Affected, Change, MeshUpdate, PolicyChange, State};
pub use virtual_hosts::{HostConflict, TakenOver, VirtualHost, VirtualHosts, VirtualPort};
pub use zones::Zones;
