//! Timeouts of certain clients: rules by identity or by the server name they ask for.

use policy::{ClientMatch, InboundRule};
use resources::{duration::GoDuration, kinds::mesh_timeout::Conf};

use super::RequestTimeouts;
use crate::clients;

/// Timeouts of requests of certain clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientTimeouts {
    pub client: ClientMatch,
    pub request: RequestTimeouts,
}

impl ClientTimeouts {
    /// Returns the clients that rules distinguish, the most specific first. Values that no rule sets for them
    /// are those of `others`.
    pub(crate) fn of_inbound(rules: &[InboundRule], others: RequestTimeouts) -> Vec<ClientTimeouts> {
        let or = |given: Option<GoDuration>, other| given.and_then(GoDuration::to_std).unwrap_or(other);
        let told_apart = clients::told_apart(rules).into_iter().map(|(client, merged)| {
            let http = merged.typed::<Conf>().ok().and_then(|conf| conf.http.clone()).unwrap_or_default();
            ClientTimeouts {
                client,
                request: RequestTimeouts {
                    request: or(http.request_timeout, others.request),
                    stream_idle: or(http.stream_idle_timeout, others.stream_idle),
                },
            }
        });
        told_apart.collect()
    }
}
