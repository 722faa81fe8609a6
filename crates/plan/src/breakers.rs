//! Limits and outlier detection: MeshCircuitBreaker.

use std::sync::Arc;

use policy::InboundRule;
use resources::kinds::mesh_circuit_breaker::{Conf, MeshCircuitBreaker};
use topology::{Destination, DestinationId};

use crate::Effective;

/// The limits of traffic to an application; `None` where no policy says any.
pub(crate) fn of_inbound(rules: &[InboundRule]) -> Option<Arc<Conf>> {
    policy::inbound::fold_unconditional(rules)?.typed().ok()
}

/// The limits of traffic to a destination.
pub(crate) fn of_destination(effective: &Effective<'_>, destination: &DestinationId) -> Option<Arc<Conf>> {
    effective.conf::<MeshCircuitBreaker>(destination).ok().flatten().map(|found| found.conf)
}

/// The same as clients have it. An egress that stands for several zones is not left out because of one of them.
pub(crate) fn of_called(effective: &Effective<'_>, destination: &Destination) -> Option<Arc<Conf>> {
    let conf = of_destination(effective, &destination.id)?;
    if destination.shared_exit && conf.outlier_detection.is_some() {
        Some(Arc::new(Conf { outlier_detection: None, ..Conf::clone(&conf) }))
    } else {
        Some(conf)
    }
}
