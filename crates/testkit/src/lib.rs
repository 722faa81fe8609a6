//! Fixtures for tests: a dev-dependency only.

pub mod ports;
pub mod postgres;
