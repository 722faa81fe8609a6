//! Fixtures for tests: a dev-dependency only.
//!
//! Resources need nothing but the crate of resources. Everything that runs is behind the feature `running`, so that
//! tests of pure crates do not build servers; hostile control planes are behind `peers`.

pub mod body;
pub mod build;
#[cfg(feature = "running")]
pub mod collector;
pub mod kuma;
#[cfg(feature = "running")]
pub mod netns;
#[cfg(feature = "peers")]
pub mod peers;
#[cfg(feature = "running")]
pub mod ports;
#[cfg(feature = "running")]
pub mod postgres;
pub mod resource;
pub mod skip;
pub mod spec;
pub mod zones;
