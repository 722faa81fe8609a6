//! Synchronisation with other control planes: a server where this one is global, a client where it is a zone that
//! follows a global one.
//!
//! ```text
//!   zone                               global
//!   client ── GlobalToZoneSync ──────▶ server     Receiving ◀── Providing
//!          ── ZoneToGlobalSync ──────▶            Providing ──▶ Receiving
//!          ── StreamXDSConfigs, … ───▶            questions about proxies, which the zone answers
//!          ── HealthCheck ───────────▶            a sign of life
//! ```
//!
//! What is sent and stored is decided by the state machines of crate `kds`; here are sockets, clocks and tasks.
//! Zones keep what they have when the link is gone, and come back by themselves. A zone needs no link to work: its store
//! has what came from elsewhere as well, and proxies are configured from the store.
//!
//! A global control plane asks the zone for what depends on where a proxy stands. Instances that share a store pass
//! questions on to the one that is connected to the zone, or to the proxy ([`admin`]).

// Tests of other crates include `admin/tests/echo.rs`, which names this crate.
#[cfg(test)]
extern crate self as synchronisation;

pub mod admin;
pub mod authorities;
pub mod client;
pub mod config;
pub mod frame;
pub mod metrics;
pub mod node;
pub mod providing;
pub mod receiving;
pub mod refused;
pub mod server;
pub mod views;
pub mod zones;

use std::time::Duration;

pub use config::Config;

/// Detection of half-open connections: within the sum of both.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// Silence of a peer after which it is asked whether it is there.
    pub interval: Duration,
    /// Time limit for its answer.
    pub timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { interval: Duration::from_secs(15), timeout: Duration::from_secs(10) }
    }
}

/// Interval of a zone's signs of life.
pub const HEALTH_CHECK: Duration = Duration::from_secs(10);

/// The metadata of every call: which zone, which protocol.
pub const CLIENT_ID: &str = "client-id";
pub const AUTHORIZATION: &str = "authorization";

/// The public half of a private key in PEM.
fn public_key(private: &[u8]) -> Option<Vec<u8>> {
    identity::KeyPair::from_pem(private).ok().map(|pair| pair.public().pem().into_bytes())
}
