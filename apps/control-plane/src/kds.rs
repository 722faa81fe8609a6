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
//! Zones keep what they have when the link is gone, and come back by themselves.

pub mod admin;
pub mod authorities;
pub mod client;
pub mod frame;
pub mod metrics;
pub mod node;
pub mod providing;
pub mod receiving;
pub mod refused;
pub mod server;
pub mod zones;

use std::time::Duration;

/// How half-open connections are found: within the sum of both.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// How long a peer may be silent before it is asked whether it is there.
    pub interval: Duration,
    /// How long it may take to answer.
    pub timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { interval: Duration::from_secs(15), timeout: Duration::from_secs(10) }
    }
}

/// How often a zone gives a sign of life.
pub const HEALTH_CHECK: Duration = Duration::from_secs(10);

/// The metadata of every call: which zone, which protocol.
pub const CLIENT_ID: &str = "client-id";
pub const AUTHORIZATION: &str = "authorization";

/// The public half of a private key in PEM.
fn public_key(private: &[u8]) -> Option<Vec<u8>> {
    identity::KeyPair::from_pem(private).ok().map(|pair| pair.public().pem().into_bytes())
}
