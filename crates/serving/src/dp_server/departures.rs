//! Proxies whose streams have ended, and when that means that the proxy is gone rather than that the control
//! plane lost its network.
//!
//! A proxy that is gone should soon no longer be called. A stream that was only interrupted should have no
//! effect. So there is a grace period in which it may come back; and when most proxies are gone at once the
//! reason is on our side of the network, or in between, and no proxy counts as gone.
//!
//! A proxy that stops in order says so before its stream ends, which tells it from one that is lost.

use std::{
    collections::{HashSet, VecDeque},
    sync::Mutex,
    time::Duration,
};

use resources::Key;
use tokio::time::Instant;

use crate::push::lock;

/// Consequences of a proxy's absence.
#[derive(Debug)]
pub struct Absence {
    /// Time after which the Dataplane that the proxy brought along is deleted.
    pub deregistration_delay: Duration,
    pub departures: Departures,
}

/// Streams that ended lately. One for all proxies.
#[derive(Debug)]
pub struct Departures {
    grace: Duration,
    /// End of each, oldest first.
    ended: Mutex<VecDeque<Instant>>,
    /// Connected proxies that said that they would stop.
    leaving: Mutex<HashSet<Key>>,
}

impl Departures {
    /// `grace` is how long a proxy may be away before it is taken out of service.
    pub fn new(grace: Duration) -> Departures {
        Departures { grace, ended: Mutex::default(), leaving: Mutex::default() }
    }

    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Notes the end of a stream.
    pub fn note(&self, now: Instant) {
        self.lately(now, |ended| ended.push_back(now));
    }

    /// Notes that a proxy is about to stop, if it is connected: its stream will end.
    pub fn announce(&self, proxy: &Key, is_connected: impl Fn() -> bool) {
        lock(&self.leaving).insert(proxy.clone());
        // A stream that ended meanwhile has looked before it was noted.
        if !is_connected() {
            lock(&self.leaving).remove(proxy);
        }
    }

    /// True if the proxy whose stream has ended had said that it would stop.
    pub fn was_announced(&self, proxy: &Key) -> bool {
        lock(&self.leaving).remove(proxy)
    }

    /// True if more than half of all proxies left together with one whose grace ends now. A single one is always
    /// judged: it may be the only one there is.
    pub fn are_most(&self, still_connected: usize, now: Instant) -> bool {
        let left = self.lately(now, |ended| ended.len());
        left > 1 && left > still_connected
    }

    /// Passes on the ends of streams during the grace of a proxy that leaves or is judged now, or just before
    /// it.
    fn lately<T>(&self, now: Instant, then: impl FnOnce(&mut VecDeque<Instant>) -> T) -> T {
        let mut ended = lock(&self.ended);
        let long_ago = |oldest: &Instant| now.duration_since(*oldest) > 2 * self.grace;
        while ended.front().is_some_and(long_ago) {
            ended.pop_front();
        }
        then(&mut ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    #[test]
    fn a_farewell_is_for_one_end_of_a_connected_proxy() {
        let departures = Departures::new(GRACE);
        let web = Key::new(resources::Kind::Dataplane, "default", "web");
        assert!(!departures.was_announced(&web));
        departures.announce(&web, || true);
        assert!(departures.was_announced(&web));
        assert!(!departures.was_announced(&web), "the next end is another one");
        departures.announce(&web, || false);
        assert!(!departures.was_announced(&web), "nothing is kept for those who are not connected");
    }

    #[test]
    fn proxies_are_judged_unless_most_leave_together() {
        let departures = Departures::new(GRACE);
        let now = Instant::now();
        departures.note(now);
        assert!(!departures.are_most(0, now), "a single one");
        departures.note(now);
        assert!(!departures.are_most(2, now), "half of them");
        assert!(departures.are_most(1, now + GRACE));
        let later = now + 3 * GRACE;
        departures.note(later);
        assert!(!departures.are_most(1, later), "the others left long before");
    }
}
