//! Delays between attempts.

use std::time::Duration;

/// Doubles the delay with every failure up to a maximum, with jitter so that many clients that failed
/// together do not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub fn new(base: Duration, max: Duration) -> Self {
        Backoff { base, max, failures: 0 }
    }

    /// Counts a failure and says how long to wait: between half and all of the current delay.
    pub fn next_delay(&mut self) -> Duration {
        self.delay_with(rand::random::<f64>())
    }

    /// As [`Backoff::next_delay`] with the randomness (0 to 1) given.
    pub fn delay_with(&mut self, random: f64) -> Duration {
        let full = self.base.saturating_mul(2u32.saturating_pow(self.failures)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_maximum_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(SECOND, 5 * SECOND);
        let delays: Vec<u64> = (0..5).map(|_| backoff.delay_with(1.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.delay_with(1.0), SECOND);
    }

    #[test]
    fn jitter_takes_away_at_most_half() {
        assert_eq!(Backoff::new(SECOND, SECOND).delay_with(0.0), SECOND / 2);
        for _ in 0..100 {
            let delay = Backoff::new(SECOND, SECOND).next_delay();
            assert!(delay >= SECOND / 2 && delay <= SECOND, "{delay:?}");
        }
    }

    #[test]
    fn a_million_failures_do_not_overflow() {
        let mut backoff = Backoff::new(SECOND, 60 * SECOND);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.delay_with(1.0), 60 * SECOND);
    }
}
