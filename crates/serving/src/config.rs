//! The settings of what proxies connect to.

mod bootstrap_server;
mod check;
mod dp_server;

use std::time::Duration;

use resources::duration::GoDuration;
use runtime::listen;
use settings::{choice, section};

pub use self::{
    bootstrap_server::{BootstrapParams, BootstrapServer, Proxies},
    dp_server::{DpAuthn, DpLimits, DpServer, HealthCheckDefaults, HealthDiscovery},
};

section! {
    /// Proxies: the server they connect to, their bootstrap and their configuration.
    pub struct Config {
        section dp_server: DpServer, "dpServer";
        section bootstrap_server: BootstrapServer, "bootstrapServer";
        section proxy: Proxies, "proxy";
        section xds_server: XdsServer, "xdsServer";
    }
}

section! {
    /// The configuration of proxies.
    pub struct XdsServer {
        /// Delay before the Dataplane of a proxy that has gone is deleted, if the proxy had brought it along.
        dataplane_deregistration_delay: GoDuration = GoDuration::from_secs(10), "dataplaneDeregistrationDelay",
            "KUMA_XDS_DATAPLANE_DEREGISTRATION_DELAY";
        /// Longest delay until the insight of a proxy shows what the proxy accepted and rejected.
        dataplane_status_flush_interval: GoDuration = GoDuration::from_secs(1), "dataplaneStatusFlushInterval",
            "KUMA_XDS_SERVER_DATAPLANE_STATUS_FLUSH_INTERVAL";
        /// Longest time that a newly allowed destination waits for servers before it reaches clients whose destinations
        /// are trimmed: it is sent as soon as connected servers have acknowledged the permission. 0s holds nothing.
        permissions_hold: GoDuration = GoDuration::from_secs(5), "permissionsHold", "KUMA_XDS_SERVER_PERMISSIONS_HOLD";
        /// Time for which clients whose destinations are trimmed keep a newly denied destination. Longer than servers
        /// drain connections (`kuma-dp run --drain-time`), it is the server that refuses the call.
        permissions_drain: GoDuration = GoDuration::from_secs(35), "permissionsDrain",
            "KUMA_XDS_SERVER_PERMISSIONS_DRAIN";
    }
}

choice! {
    /// Credentials of proxies of workloads.
    pub enum DpAuthnType { Default = "", DpToken = "dpToken", None = "none" }
}

choice! {
    /// Credentials of proxies of zones.
    pub enum ZoneAuthnType { Default = "", ZoneToken = "zoneToken", None = "none" }
}

/// Time limit for a bootstrap, or the beginning of a stream. A stream is one request that never ends.
const BEGINNING: Duration = Duration::from_secs(60);

impl DpServer {
    /// The limits of the listener that proxies connect to, of which so many may be connected at a time.
    pub fn listener(&self, connections: usize, idle: Duration) -> listen::Limits {
        let limits = &self.limits;
        listen::Limits {
            connections,
            // Proxies may all come from one address, that of a gateway.
            per_peer: connections - connections / 4,
            handshakes: match limits.max_handshakes {
                0 => listen::handshakes_at_once(),
                some => usize::try_from(some).unwrap_or(usize::MAX),
            },
            streams: limits.max_requests_per_connection,
            handshake: time(limits.handshake_timeout),
            handshake_wait: time(limits.handshake_wait_timeout),
            first_request: time(limits.first_request_timeout),
            header_read: time(self.read_header_timeout),
            idle,
            request: BEGINNING,
            ..listen::Limits::default()
        }
    }
}

/// A configuration holds no negative durations.
fn time(setting: GoDuration) -> Duration {
    setting.to_std().unwrap_or_default()
}
