//! Insights: the state of proxies, and counts over each mesh.
//!
//! ```text
//!   streams ─▶ Connection ─▶ Writer ─▶ DataplaneInsight ─┐
//!                                                        ├─▶ store::Changes ─▶ resync ─▶ MeshInsight
//!   Dataplanes, services, policies ──────────────────────┘                              ServiceInsight
//! ```
//!
//! Insights are written only when they say something else than before, many in one batch. Proxies are
//! not configured from them, except for one fact: whether a server has a certificate, which tells clients of
//! a permissive mesh when to use TLS.

mod compatibility;
pub mod connection;
pub mod counts;
pub mod kinds;
mod resync;
mod stale_connections;
pub mod writer;

use std::sync::Arc;

use jiff::Timestamp;
use resources::{Key, Labels, Resource, Spec};
use runtime::Shutdown;
use store::{Snapshot, Store, Write};

pub use connection::Connection;
pub use stale_connections::close_connections;
pub use writer::Writer;

/// Starts counting.
pub fn start(store: Arc<dyn Store>, shutdown: &Shutdown) {
    resync::start(store, shutdown);
}

/// The write after which the insight says `spec`; `None` when it does already. It ends with its `owner`.
pub(crate) fn write(snapshot: &Snapshot, key: &Key, owner: &Key, spec: Spec) -> Option<Write> {
    let now = Timestamp::now();
    match snapshot.get(key) {
        Some(stored) if stored.spec == spec => None,
        Some(stored) => {
            let resource = Resource { spec, modified: now, ..Resource::clone(stored) };
            Some(Write::Update { resource, expected: stored.version })
        }
        None => Some(Write::Create(Resource {
            key: key.clone(),
            labels: Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(owner.clone()),
            spec,
            status: None,
        })),
    }
}
