//! When it is a mesh's turn to be looked at, for loops that write for one mesh after the other.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

/// When to look at a mesh again, but not before it has rested; `None` when nothing is to be done.
pub fn due(is_dirty: bool, deadline: Option<Timestamp>, rested: Instant) -> Option<Instant> {
    let now = Instant::now();
    let deadline = deadline.map(|deadline| {
        now + Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default()
    });
    let due = if is_dirty { Some(now) } else { deadline };
    due.map(|due| due.max(rested))
}

/// Waits for a mesh's turn; forever without one.
pub async fn at(next: Option<(Instant, Arc<str>)>) -> Arc<str> {
    match next {
        Some((at, mesh)) => {
            tokio::time::sleep_until(at).await;
            mesh
        }
        None => std::future::pending().await,
    }
}
