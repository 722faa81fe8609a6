#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bytes;
mod hostile;
mod messages;
mod round_trip;
mod samples;
mod vectors;
