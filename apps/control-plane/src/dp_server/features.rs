//! What agents can do, as they say it when they connect.

pub use resources::naming::unified_naming;

/// Asks for changes only, not for everything each time.
pub const DELTA: &str = "feature-delta-grpc";
pub const REUSE_PORT: &str = "feature-reuse-port";
/// Binds virtual addresses instead of having traffic redirected.
pub const BIND_OUTBOUNDS: &str = "feature-bind-outbounds";
/// Wants no redirected traffic but for its inbounds.
pub const STRICT_INBOUND_PORTS: &str = "feature-strict-inbound-ports";
