//! Counters of a sample.

/// Something that is counted of the calls of an edge or of an inbound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Requests, or connections where requests are not looked at.
    Requests,
    Responses1xx,
    Responses2xx,
    Responses3xx,
    Responses4xx,
    Responses5xx,
    /// Calls of gRPC with status `OK`.
    GrpcOk,
    /// Calls of gRPC with any other status.
    GrpcFailed,
    /// Connections to an endpoint.
    Connections,
    /// Connections that were not established.
    ConnectFailures,
    /// Requests that the other side, or the proxy, reset.
    Resets,
    /// Requests that got no answer in time.
    Timeouts,
    Retries,
    /// Requests for which there was no healthy endpoint.
    NoEndpoint,
    /// Requests or connections that permissions refused.
    Denied,
}

impl Counter {
    pub const ALL: [Counter; 15] = [
        Counter::Requests,
        Counter::Responses1xx,
        Counter::Responses2xx,
        Counter::Responses3xx,
        Counter::Responses4xx,
        Counter::Responses5xx,
        Counter::GrpcOk,
        Counter::GrpcFailed,
        Counter::Connections,
        Counter::ConnectFailures,
        Counter::Resets,
        Counter::Timeouts,
        Counter::Retries,
        Counter::NoEndpoint,
        Counter::Denied,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter.index(), index, "{counter:?}");
        }
    }
}
