//! Keeps clients from filling the log.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Shortest time between two lines of one reason.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Limit of the peers that have lines of their own. Those beyond share one for each reason, so neither the
/// log nor the memory of it grows with the number of peers.
const MOST_PEERS: usize = 100;

/// Lets the first line of a reason through at once, and then one every ten seconds.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<(&'static str, Option<IpAddr>), ThrottleEntry>>);

#[derive(Debug)]
struct ThrottleEntry {
    at: Instant,
    unsaid: u64,
}

impl Throttle {
    /// Returns the number of lines held back since the last one, or `None` if this line is held back, too.
    pub fn admit(&self, reason: &'static str, now: Instant) -> Option<u64> {
        self.admit_from(reason, None, now)
    }

    /// The same for each peer by itself: one that tries again and again does not hide the others.
    pub fn admit_from(&self, reason: &'static str, peer: Option<IpAddr>, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (reason, peer);
        if peer.is_some() && !said.contains_key(&key) && said.len() >= MOST_PEERS {
            said.retain(|(_, peer), last| peer.is_none() || now.duration_since(last.at) < LOG_EVERY);
            if said.len() >= MOST_PEERS {
                key = (reason, None);
            }
        }
        let Some(last) = said.get_mut(&key) else {
            said.insert(key, ThrottleEntry { at: now, unsaid: 0 });
            return Some(0);
        };
        if now.duration_since(last.at) < LOG_EVERY {
            last.unsaid += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_at_once_and_then_now_and_then_with_a_count() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let admitted = [0, 1, 9, 10, 11, 25].map(|second| throttle.admit("idle", after(second)));
        assert_eq!(admitted, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!(throttle.admit("reset", after(11)), Some(0), "every reason for itself");
    }

    #[test]
    fn peers_have_lines_of_their_own_up_to_a_number() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let peer = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        let admitted = |number, seconds| {
            throttle.admit_from("expired", peer(number), start + Duration::from_secs(seconds))
        };
        assert_eq!([admitted(1, 0), admitted(1, 1), admitted(2, 1)], [Some(0), None, Some(0)]);
        let lines = (0..1000).filter(|number| admitted(*number, 2).is_some()).count();
        assert!(lines <= MOST_PEERS + 1, "{lines}");
        assert!(throttle.0.lock().unwrap().len() <= MOST_PEERS + 1);
        assert_eq!(admitted(5000, 30), Some(0), "what is old makes room");
    }
}
