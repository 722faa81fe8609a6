//! How long things may take while no MeshTimeout says otherwise.

use std::time::Duration;

use topology::Protocol;

const HOUR: Duration = Duration::from_secs(3600);

/// How long things may take. Zero means forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeouts {
    pub connect: Duration,
    pub idle: Duration,
    pub request: Duration,
    pub stream_idle: Duration,
    pub max_stream: Duration,
}

impl Timeouts {
    /// What holds for an inbound without a policy.
    pub fn of_inbound(protocol: Protocol) -> Timeouts {
        // Connections of gRPC carry streams that rest for long, so they get the longer time.
        let idle = if protocol == Protocol::Grpc { 2 * HOUR } else { HOUR };
        Timeouts { idle, ..Timeouts::of_outbound() }
    }

    /// What holds for an outbound without a policy.
    pub fn of_outbound() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(5),
            idle: HOUR,
            request: Duration::from_secs(15),
            stream_idle: HOUR / 2,
            max_stream: Duration::ZERO,
        }
    }
}
