//! Common parts of daemons, without any knowledge of meshes: logs, metrics, shutdown, TLS listeners, backoff.
//!
//! Nothing here is global except what a process can only have one of (the log subscriber, the TLS
//! provider); everything else is a value that its owner passes on.
//!
//! Invariants: this crate does not know resources, meshes or proxies. Every connection ends for a reason that is
//! counted. Logging never blocks and never fails.

pub mod backoff;
pub mod files;
pub mod listen;
pub mod logs;
pub mod metrics;
pub mod process;
pub mod shutdown;
pub mod tls;
pub mod trailers;

pub use backoff::Backoff;
pub use shutdown::Shutdown;

use std::{io, net::SocketAddr};

/// Reason that a part of the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text has the cause, so it is no `source`: chains of errors would show it twice.
    #[error("cannot listen on {addr}: {cause}{}", hint(cause))]
    Bind { addr: SocketAddr, cause: io::Error },
    #[error("cannot install the log subscriber: {0}")]
    Logs(String),
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error("the TLS certificate or key cannot be used: {0}")]
    Tls(String),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process uses this port already",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need extra privileges",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}
