//! Keeps clients from filling the log.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How often at most one reason is logged.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Lets the first line of a reason through at once, and then one every ten seconds.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<&'static str, ThrottleEntry>>);

#[derive(Debug)]
struct ThrottleEntry {
    at: Instant,
    unsaid: u64,
}

impl Throttle {
    /// How many were held back since the last line, if there may be one now.
    pub fn admit(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = said.get_mut(reason) else {
            said.insert(reason, ThrottleEntry { at: now, unsaid: 0 });
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
        let (throttle, start) = (Throttle::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let admitted = [0, 1, 9, 10, 11, 25].map(|second| throttle.admit("idle", after(second)));
        assert_eq!(admitted, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!(throttle.admit("reset", after(11)), Some(0), "every reason for itself");
    }
}
