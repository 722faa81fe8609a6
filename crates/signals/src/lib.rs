//! Signals: rates and latencies of calls, over the last quarter of an hour.
//!
//! ```text
//!   report of an agent ─▶ Sample ─▶ Windows ─▶ Window of an edge      bytes, at most 400
//!                                      └─▶ Sample of the last N ticks  added up by whatever is asked for
//! ```
//!
//! A [`Sample`] has counts and a histogram of latencies. Samples add up: the sum of any split of the same calls is
//! the same. A [`Window`] keeps those of an edge by tick of ten seconds; where there is no room left, ticks that lie
//! longer back are added to their neighbours.
//!
//! Invariants: pure; time is an argument, as a number of ticks. A window never has more bytes than
//! [`Window::MAX_BYTES`], and no count gets lost before it is a quarter of an hour old.

mod counter;
mod encoding;
pub mod envoy;
mod histogram;
mod interner;
mod sample;
mod window;
mod windows;

pub use counter::Counter;
pub use histogram::Histogram;
pub use interner::Interner;
pub use sample::Sample;
pub use window::Window;
pub use windows::{Entry, Windows};

/// A number of ticks since the epoch.
pub type Tick = u32;

/// Seconds of a tick.
pub const TICK_SECONDS: u32 = 10;
/// Ticks that a window reaches back: a quarter of an hour.
pub const KEPT_TICKS: Tick = 90;

/// The tick that a second belongs to.
pub fn tick_of(unix_seconds: i64) -> Tick {
    let tick = unix_seconds.max(0) / i64::from(TICK_SECONDS);
    Tick::try_from(tick).unwrap_or(Tick::MAX)
}
