//! The synchronisation from outside: what arrives, what is deleted, what is refused, and what is on the wire.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bytes;
mod codec;
mod foreign;
mod hostile;
mod messages;
mod naming;
mod producers;
mod providing;
mod quota;
mod receiving;
mod rights;
mod round_trip;
mod samples;
mod simulation;
mod strangers;
mod vectors;
mod world;
