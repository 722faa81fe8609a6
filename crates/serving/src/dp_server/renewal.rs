//! Waiting for a moment of the wall clock.
//!
//! Certificates expire by the wall clock. The clock of timers stands still while a machine is suspended, and
//! does not follow when the time is set, so a timer alone would wake up hours after the expiry. A clock that is set back
//! makes certificates too young, so that also ends a wait.

use std::time::Duration;

use jiff::Timestamp;
pub use reconcile::CORRECTION;

/// Largest delay of a wait after the machine was suspended.
const LOOK: Duration = Duration::from_secs(30);

/// Waits until the wall clock shows `at`, or a time before `since`, to which it can only be set; forever without `at`.
pub async fn due(at: Option<Timestamp>, since: Option<Timestamp>) {
    match at {
        Some(at) => due_by(at, since, Timestamp::now).await,
        None => std::future::pending().await,
    }
}

async fn due_by(at: Timestamp, since: Option<Timestamp>, clock: impl Fn() -> Timestamp) {
    loop {
        let now = clock();
        // No time is left when the moment is in the past.
        let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        if left.is_zero() || since.is_some_and(|since| since.duration_since(now) > CORRECTION) {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// A moment in the future.
pub fn after(pause: Duration) -> Timestamp {
    Timestamp::now().saturating_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };

    use tokio::time::Instant;

    use super::*;

    const DAY: i64 = 24 * 3600;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_soon_after_a_suspend_that_its_timer_did_not_see() {
        let second = Arc::new(AtomicI64::new(0));
        let wall = second.clone();
        let clock = move || Timestamp::from_second(wall.load(Ordering::Relaxed)).unwrap();
        let begun = Instant::now();
        let waiting = tokio::spawn(due_by(Timestamp::from_second(DAY).unwrap(), None, clock));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "by the wall clock no time has passed");
        second.store(DAY + 7200, Ordering::Relaxed);
        waiting.await.unwrap();
        assert!(begun.elapsed() <= Duration::from_secs(3600) + LOOK, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_soon_after_the_clock_was_set_back() {
        let second = Arc::new(AtomicI64::new(DAY));
        let wall = second.clone();
        let clock = move || Timestamp::from_second(wall.load(Ordering::Relaxed)).unwrap();
        let instant = |second: i64| Timestamp::from_second(second).unwrap();
        let waiting = tokio::spawn(due_by(instant(3 * DAY), Some(instant(DAY)), clock));
        second.store(DAY - 2, Ordering::Relaxed);
        tokio::time::sleep(LOOK * 2).await;
        assert!(!waiting.is_finished(), "clocks are corrected by seconds");
        second.store(DAY / 2, Ordering::Relaxed);
        tokio::time::timeout(LOOK * 2, waiting).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_in_the_past_is_due_at_once() {
        let begun = Instant::now();
        due_by(Timestamp::UNIX_EPOCH, None, Timestamp::now).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
