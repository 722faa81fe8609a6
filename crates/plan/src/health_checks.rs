//! Health checks of the endpoints of a destination: MeshHealthCheck.

use std::sync::Arc;

use resources::kinds::mesh_health_check::{Conf, Grpc, Http, MeshHealthCheck, Tcp};
use topology::{DestinationId, Protocol};

use crate::{Code, DestinationBackend, Effective, Finding};

/// Health checks of a destination's endpoints, and the behaviour when too few of them are healthy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthChecks {
    pub conf: Arc<Conf>,
    /// `None` where the policy has nothing to ask an endpoint that speaks the destination's protocol.
    pub probe: Option<Probe>,
}

/// Request that checks an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probe {
    Http(Http),
    Http2(Http),
    Grpc(Grpc),
    Tcp(Tcp),
}

impl Probe {
    /// The most specific that the protocol allows. Connections alone are checked where the policy says that
    /// requests are not; where it is silent about requests, nothing is checked.
    fn of(conf: &Conf, protocol: Protocol) -> Option<Probe> {
        let tcp = || conf.tcp.clone().filter(Tcp::enabled).map(Probe::Tcp);
        match (protocol, &conf.http, &conf.grpc) {
            (Protocol::Http, Some(http), _) if http.enabled() => Some(Probe::Http(http.clone())),
            (Protocol::Http2, Some(http), _) if http.enabled() => Some(Probe::Http2(http.clone())),
            (Protocol::Grpc, _, Some(grpc)) if grpc.enabled() => Some(Probe::Grpc(grpc.clone())),
            (Protocol::Http | Protocol::Http2, Some(_), _) | (Protocol::Grpc, _, Some(_)) => tcp(),
            (Protocol::Http | Protocol::Http2 | Protocol::Grpc, ..) => None,
            (Protocol::Kafka | Protocol::Tcp, ..) => tcp(),
        }
    }
}

/// The checks of a destination; `None` where no policy is about it.
pub(crate) fn of_destination(
    effective: &Effective<'_>,
    destination: &DestinationId,
    protocol: Protocol,
) -> Option<HealthChecks> {
    let conf = effective.conf::<MeshHealthCheck>(destination).ok().flatten()?.conf;
    let probe = Probe::of(&conf, protocol);
    Some(HealthChecks { conf, probe })
}

/// Destinations that a policy wants checked, by connections, which it does not do for those that speak HTTP
/// unless it says that requests are not to be checked.
pub(crate) fn unchecked(effective: &Effective<'_>, backends: &[DestinationBackend]) -> Vec<Finding> {
    let wants =
        |checks: &HealthChecks| checks.probe.is_none() && checks.conf.tcp.as_ref().is_some_and(Tcp::enabled);
    let unchecked = backends.iter().filter(|backend| backend.health.as_ref().is_some_and(wants));
    let finding = |backend: &DestinationBackend| {
        let found = effective.conf::<MeshHealthCheck>(&backend.destination).ok().flatten()?;
        let policy = found.merged.origins.last()?.without_section();
        let cluster = &backend.cluster;
        let protocol = backend.protocol.word();
        let text = format!(
            "{policy}: endpoints of {cluster} are not checked: it speaks {protocol}, and the policy checks tcp only"
        );
        Some(Finding::about(Code::UncheckedDestination, policy, text))
    };
    unchecked.filter_map(finding).collect()
}
