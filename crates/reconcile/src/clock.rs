//! Time as it is given to a driver.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// One moment on both clocks: rests are measured by the one that only goes forward, deadlines are on the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub instant: Instant,
    pub wall: Timestamp,
}

impl Moment {
    pub fn now() -> Moment {
        // Follows the paused time of tests.
        Moment { instant: tokio::time::Instant::now().into_std(), wall: Timestamp::now() }
    }

    /// A moment later, on both.
    #[must_use]
    pub fn after(self, pause: Duration) -> Moment {
        Moment {
            instant: self.instant + pause,
            wall: self.wall.saturating_add(pause).unwrap_or(Timestamp::MAX),
        }
    }

    /// The instant at which the wall clock will show `wall`, as far as can be said now.
    pub fn instant_of(self, wall: Timestamp) -> Instant {
        // Nothing is left of what is over.
        let left = Duration::try_from(wall.duration_since(self.wall)).unwrap_or_default();
        self.instant.checked_add(left).unwrap_or(self.instant + FAR)
    }

    /// The wall clock shows an earlier time than before, by more than clocks are corrected.
    pub fn is_set_back_since(self, before: Moment) -> bool {
        before.wall.duration_since(self.wall) > CORRECTION
    }
}

/// Later than any process runs.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Largest correction of a clock that does no harm: certificates are valid from a moment before they are made.
pub const CORRECTION: SignedDuration = SignedDuration::from_secs(10);
