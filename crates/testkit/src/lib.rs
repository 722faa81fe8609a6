//! Fixtures for tests: a dev-dependency only.

pub mod collector;
pub mod kuma;
pub mod netns;
pub mod ports;
pub mod postgres;
pub mod skip;
