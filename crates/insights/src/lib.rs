//! Insights: the state of proxies, and counts over each mesh.
//!
//! ```text
//!   streams ─▶ ProxyConnection ─▶ Writer ─▶ DataplaneInsight ─┐
//!                                                             ├─▶ store::Changes ─▶ resync ─▶ MeshInsight
//!   Dataplanes, services, policies ───────────────────────────┘                              ServiceInsight
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

use jiff::Timestamp;
use reconcile::Runner;
use resources::{Key, Labels, Resource, Spec};
use store::{Snapshot, Write};

pub use compatibility::BASED_ON_KUMA;
pub use connection::ProxyConnection;
pub use stale_connections::close_connections;
pub use writer::Writer;

/// Starts counting.
pub fn start(runner: &Runner) {
    runner.run(resync::Insights::default());
}

/// The write after which the insight says `spec`; `None` when it does already. It ends with its `owner`.
pub fn write(snapshot: &Snapshot, key: &Key, owner: &Key, spec: Spec) -> Option<Write> {
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
