//! Time of replacing a certificate: after 80 % of its life, a tenth of it earlier or later.
//!
//! The tenth keeps the proxies of a mesh from all rotating at once. It is given, not drawn: from
//! [`jitter`] it is the same for a proxy everywhere, and so is the time [`start`] says.

use std::time::Duration;

use aws_lc_rs::digest;
use jiff::{SignedDuration, Timestamp};
use resources::Key;

const SHARE: f64 = 0.8;
const SPREAD: f64 = 0.1;

/// Time to replace a certificate; `now` when that is overdue. `jitter` is between -1 and 1.
pub fn next(issued_at: Timestamp, expires: Timestamp, now: Timestamp, jitter: f64) -> Timestamp {
    let lifetime = expires.as_second().saturating_sub(issued_at.as_second());
    issued_at.saturating_add(SignedDuration::from_secs(period(lifetime, jitter))).unwrap_or(now).max(now)
}

/// Time at which the current certificate was, or would have been, issued: time is cut into windows, from one
/// replacement to the next.
pub fn start(now: Timestamp, lifetime: Duration, jitter: f64) -> Timestamp {
    let period = period(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX), jitter);
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(period)).unwrap_or(now)
}

/// A proxy's own place between -1 and 1.
pub fn jitter(proxy: &Key) -> f64 {
    let digest = digest::digest(&digest::SHA256, format!("{}/{}", proxy.mesh, proxy.name).as_bytes());
    let number = digest.as_ref().iter().take(4).fold(0u32, |number, byte| number << 8 | u32::from(*byte));
    f64::from(number) / f64::from(u32::MAX) * 2.0 - 1.0
}

/// Whole seconds, because certificates know no others.
fn period(lifetime: i64, jitter: f64) -> i64 {
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(-1.0, 1.0) };
    let seconds = lifetime as f64 * (SHARE + SPREAD * jitter);
    (seconds as i64).max(1)
}
