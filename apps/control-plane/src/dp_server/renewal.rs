//! Waiting for a moment of the wall clock.
//!
//! Certificates expire by the wall clock. The clock of timers stands still while a machine is suspended, and
//! does not follow when the time is set, so a timer alone would wake up hours after the expiry.

use std::time::Duration;

use jiff::Timestamp;

/// How much later than wanted a wait may end after the machine was suspended.
const LOOK: Duration = Duration::from_secs(30);

/// Waits until the wall clock shows `at`; forever without one.
pub async fn due(at: Option<Timestamp>) {
    match at {
        Some(at) => due_by(at, Timestamp::now).await,
        None => std::future::pending().await,
    }
}

async fn due_by(at: Timestamp, clock: impl Fn() -> Timestamp) {
    // No time is left when the moment is in the past.
    while let Ok(left) = Duration::try_from(at.duration_since(clock()))
        && !left.is_zero()
    {
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
        let waiting = tokio::spawn(due_by(Timestamp::from_second(DAY).unwrap(), clock));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "by the wall clock no time has passed");
        second.store(DAY + 7200, Ordering::Relaxed);
        waiting.await.unwrap();
        assert!(begun.elapsed() <= Duration::from_secs(3600) + LOOK, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_in_the_past_is_due_at_once() {
        let begun = Instant::now();
        due_by(Timestamp::UNIX_EPOCH, Timestamp::now).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
