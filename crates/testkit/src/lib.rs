//! Fixtures for tests: a dev-dependency only.

pub mod postgres;
