//! The synchronisation from outside: what arrives, what is deleted, what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod codec;
mod messages;
mod naming;
mod receiving;
mod simulation;
mod world;
