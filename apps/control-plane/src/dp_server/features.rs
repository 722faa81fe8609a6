//! What agents can do, as they say it when they connect.

pub use resources::naming::unified_naming;

/// Asks for changes only, not for everything each time.
pub const DELTA: &str = "feature-delta-grpc";
pub const REUSE_PORT: &str = "feature-reuse-port";
/// Wants no redirected traffic but for its inbounds.
pub const STRICT_INBOUND_PORTS: &str = "feature-strict-inbound-ports";
