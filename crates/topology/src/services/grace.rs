//! Grace periods of generated services that lost their last Dataplane.
//!
//! An outage must not take services away that clients know: each keeps its address for the grace period. Proxies that
//! come, bring many services and leave would fill memory that way. So a service that was there for less than a grace
//! period is *young*, and of those only [`MOST_YOUNG`] wait in a mesh; the others end at once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{Resource, labels};

use super::{ServiceContext, is_generated};

/// Young services of a mesh that may wait for a Dataplane at once.
pub const MOST_YOUNG: usize = 1_000;

/// Grace period of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracePeriod {
    pub ends: Timestamp,
    /// The service was there for less than a grace period before this one began.
    pub is_young: bool,
}

/// The young services of a mesh that wait, as they are stored.
#[derive(Debug, Clone, Default)]
pub struct YoungWaiting(BTreeSet<Arc<str>>);

impl GracePeriod {
    /// Reads the grace period that a stored service is in. `None` also for a label that is no time.
    pub fn stored(service: &Resource, length: Duration) -> Option<GracePeriod> {
        let started = service.labels.get(labels::DELETION_GRACE_PERIOD)?.parse().ok()?;
        Some(GracePeriod::of(service, started, length))
    }

    /// Begins now.
    pub fn begin(service: &Resource, around: &ServiceContext<'_>) -> GracePeriod {
        GracePeriod::of(service, around.now, around.deletion_grace_period)
    }

    fn of(service: &Resource, started: Timestamp, length: Duration) -> GracePeriod {
        let after = |begin: Timestamp| begin.checked_add(length).unwrap_or(Timestamp::MAX);
        GracePeriod { ends: after(started), is_young: after(service.created) > started }
    }
}

impl YoungWaiting {
    /// Follows a service of the store; `None` for one that is gone.
    pub fn apply(&mut self, name: &Arc<str>, service: Option<&Resource>, length: Duration) {
        let generated = service.filter(|service| is_generated(service));
        let grace = generated.and_then(|service| GracePeriod::stored(service, length));
        if grace.is_some_and(|grace| grace.is_young) {
            self.0.insert(name.clone());
        } else {
            self.0.remove(name);
        }
    }

    pub fn contains(&self, name: &Arc<str>) -> bool {
        self.0.contains(name)
    }

    /// Number of services that may begin to wait.
    pub fn room(&self) -> usize {
        MOST_YOUNG.saturating_sub(self.0.len())
    }
}
