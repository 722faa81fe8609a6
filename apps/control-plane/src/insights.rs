//! What is observed, written down: how proxies fare, and counts over each mesh.
//!
//! ```text
//!   streams ─▶ Connection ─▶ Writer ─▶ DataplaneInsight ─┐
//!                                                        ├─▶ store::Changes ─▶ resync ─▶ MeshInsight
//!   Dataplanes, services, policies ──────────────────────┘                              ServiceInsight
//! ```
//!
//! Insights are written only when they say something else than before, many in one batch. They are
//! never looked at when a proxy's configuration is made.

pub mod connection;
pub mod counts;
mod predecessor;
mod resync;
pub mod writer;

pub use connection::Connection;
pub use predecessor::close_connections;
pub use resync::start;
pub use writer::Writer;
