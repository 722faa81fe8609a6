//! Clusters that a proxy keeps after its names were switched.
//!
//! Listeners with new names take over the sockets of the old ones, which Envoy drains: connections that are open go on
//! until the drain time ends, and their requests go to clusters with the old names. Without these they would fail.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use xds::{Encoded, Target, Type};

/// Drain time of an Envoy whose agent does not tell, which is the default of agents.
const USUAL: Duration = Duration::from_secs(30);
/// Longest drain time that is waited for.
const LONGEST: Duration = Duration::from_secs(3600);
/// Time between a proxy's acknowledgement and the moment at which its last old connection ended.
const MARGIN: Duration = Duration::from_secs(1);
/// Resources that requests on old connections need.
const KINDS: [Type; 3] = [Type::Cluster, Type::Endpoint, Type::Secret];

/// Resources with the names from before the switch.
#[derive(Debug)]
pub(super) struct Lingering {
    resources: Vec<(Type, Arc<Encoded>)>,
    drain_time: Duration,
    /// `None` until the proxy has taken its listeners.
    until: Option<Instant>,
}

impl Lingering {
    /// Parts of a target that stay.
    pub(super) fn of(before: &Target, drain_time: Option<Duration>) -> Lingering {
        let of_kind = |kind: Type| before.of(kind).values().map(move |resource| (kind, resource.clone()));
        Lingering {
            resources: KINDS.into_iter().flat_map(of_kind).collect(),
            drain_time: drain_time.unwrap_or(USUAL).min(LONGEST),
            until: None,
        }
    }

    /// Adds to a target what it does not have itself.
    pub(super) fn add_to(&self, target: &mut Target) {
        for (kind, resource) in &self.resources {
            if !target.of(*kind).contains_key(&resource.name) {
                target.insert(*kind, resource.clone());
            }
        }
    }

    /// Time at which nothing uses the resources any more; `None` while that is not known.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Starts to wait once the proxy has the listeners with the new names.
    pub(super) fn look(&mut self, statuses: &[xds::Status]) {
        let pending = |status: &xds::Status| status.kind == Type::Listener && status.pending > 0;
        if self.until.is_none() && !statuses.iter().any(pending) {
            self.until = Some(Instant::now() + self.drain_time + MARGIN);
        }
    }
}
