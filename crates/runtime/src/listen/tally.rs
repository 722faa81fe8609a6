//! Ends of connections and requests, as metrics and as log lines.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use tokio::time::Instant;

use crate::{
    logs::Throttle,
    metrics::{AuthFailures, Metrics},
};

/// Reason that a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The client closed it in good order.
    Closed,
    /// This process ends.
    Shutdown,
    /// It was without requests for too long.
    Idle,
    /// No request came at all.
    NoRequest,
    /// Not a single byte came.
    Silent,
    /// It was not used when another one needed its place.
    Shed,
    /// As many as allowed were open already.
    ConnectionLimit,
    /// As many as allowed were open from the same address.
    PeerLimit,
    /// The client did not do its part of the TLS handshake in time.
    HandshakeTimeout,
    /// Too many others were before it.
    HandshakeWait,
    /// The client left during its TLS handshake.
    HandshakeAbandoned,
    /// Client and server do not agree, or a certificate is not accepted.
    HandshakeFailed,
    /// The head of a request took too long.
    SlowHead,
    /// The client did not read its answers.
    SlowReader,
    /// The peer stopped answering.
    Vanished,
    /// The client broke the connection.
    Reset,
    /// The bytes were not HTTP.
    Protocol,
}

/// Severity of an end.
#[derive(Debug, PartialEq, Eq)]
enum Weight {
    /// Happens all the time.
    Usual,
    /// Something is wrong with the client or the network.
    Odd,
    /// The client was rejected.
    Rejected,
}

impl End {
    /// As metrics and logs name it.
    pub fn reason(self) -> &'static str {
        match self {
            End::Closed => "closed",
            End::Shutdown => "shutdown",
            End::Idle => "idle",
            End::NoRequest => "no_request",
            End::Silent => "silent",
            End::Shed => "shed",
            End::ConnectionLimit => "connection_limit",
            End::PeerLimit => "peer_limit",
            End::HandshakeTimeout => "handshake_timeout",
            End::HandshakeWait => "handshake_wait",
            End::HandshakeAbandoned => "handshake_abandoned",
            End::HandshakeFailed => "handshake_failed",
            End::SlowHead => "slow_head",
            End::SlowReader => "slow_reader",
            End::Vanished => "vanished",
            End::Reset => "reset",
            End::Protocol => "protocol",
        }
    }

    fn weight(self) -> Weight {
        match self {
            End::Closed | End::Shutdown | End::Idle => Weight::Usual,
            // Browsers connect in advance, and health checks only connect.
            End::NoRequest | End::Silent | End::HandshakeAbandoned | End::Vanished | End::Reset => {
                Weight::Odd
            }
            End::ConnectionLimit
            | End::PeerLimit
            | End::Shed
            | End::SlowReader
            | End::HandshakeTimeout
            | End::HandshakeWait
            | End::HandshakeFailed
            | End::SlowHead
            | End::Protocol => Weight::Rejected,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// Counts and logs for one server. Clones share the counts.
#[derive(Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// As logs name the server.
    server: &'static str,
    open: Gauge,
    waiting: Gauge,
    ended: Family<Labels, Counter>,
    rejected: Family<Labels, Counter>,
    auth_failures: AuthFailures,
    logged: Throttle,
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tally({})", self.0.server)
    }
}

impl Tally {
    /// The metrics begin with the server's name, such as `api_server`.
    pub fn register(metrics: &Metrics, server: &'static str) -> Tally {
        let counts = Counts { server, auth_failures: metrics.auth_failures(), ..Counts::default() };
        let named = |name: &str| format!("{server}_{name}");
        metrics.register(&named("connections"), "Open connections", counts.open.clone());
        let help = "TLS handshakes that wait in line";
        metrics.register(&named("handshakes_waiting"), help, counts.waiting.clone());
        let help = "Ended connections, by reason";
        metrics.register(&named("connections_ended"), help, counts.ended.clone());
        let help = "Refused connections, requests and streams, by reason";
        metrics.register(&named("rejected"), help, counts.rejected.clone());
        Tally(Arc::new(counts))
    }

    /// Counts a rejected request or stream.
    pub fn count(&self, reason: &'static str) {
        self.0.rejected.get_or_create(&Labels { reason }).inc();
    }

    /// Counts a caller that could not prove who it is.
    pub fn auth_failed(&self, reason: &'static str) {
        self.0.auth_failures.with(self.0.server, reason);
    }

    /// Counts and logs a rejected request or stream.
    pub fn rejected(&self, peer: Option<SocketAddr>, reason: &'static str, detail: &str) {
        self.count(reason);
        self.warn(self.0.logged.admit(reason, Instant::now()), peer, reason, detail);
    }

    /// As [`Tally::rejected`], with lines for each peer: who it is that cannot prove who it is must not be hidden by
    /// others.
    pub fn unauthenticated(&self, peer: Option<SocketAddr>, detail: &str) {
        const REASON: &str = "unauthenticated";
        self.count(REASON);
        let address = peer.map(|peer| peer.ip().to_canonical());
        self.warn(self.0.logged.admit_from(REASON, address, Instant::now()), peer, REASON, detail);
    }

    fn warn(&self, admitted: Option<u64>, peer: Option<SocketAddr>, reason: &'static str, detail: &str) {
        if let Some(unsaid) = admitted {
            let server = self.0.server;
            let peer = peer.map(tracing::field::display);
            tracing::warn!(server, peer, reason, unsaid, detail, "connection rejected");
        }
    }

    /// Connections are open until they are dropped.
    pub(super) fn open(&self) -> CountGuard {
        CountGuard::new(&self.0.open)
    }

    pub(super) fn handshake_waits(&self) -> CountGuard {
        CountGuard::new(&self.0.waiting)
    }

    pub(super) fn ended(&self, peer: SocketAddr, end: End, detail: &str) {
        let reason = end.reason();
        self.0.ended.get_or_create(&Labels { reason }).inc();
        match end.weight() {
            Weight::Usual => tracing::debug!(server = self.0.server, %peer, reason, "a connection ended"),
            Weight::Rejected => self.rejected(Some(peer), reason, detail),
            Weight::Odd => {
                if let Some(unsaid) = self.0.logged.admit(reason, Instant::now()) {
                    let server = self.0.server;
                    tracing::info!(server, %peer, reason, unsaid, detail, "a connection ended");
                }
            }
        }
    }

    pub(super) fn cannot_accept(&self, error: &io::Error) {
        self.rejected(None, "accept_failed", &format!("cannot accept a connection: {error}"));
    }
}

/// One more, until it is dropped.
pub(super) struct CountGuard(Gauge);

impl CountGuard {
    fn new(gauge: &Gauge) -> CountGuard {
        gauge.inc();
        CountGuard(gauge.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
