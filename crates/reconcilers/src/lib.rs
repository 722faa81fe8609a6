//! Reconcilers: they follow what is stored and write the resources that the control plane makes of it.
//!
//! Each is one file with an `impl reconcile::Reconciler`. The decisions are pure functions of `topology`.
//!
//! Invariant: what they write depends on the stored resources alone, so that control planes on one store may all run
//! them.

pub mod available_services;
pub mod config;
pub mod mesh_identities;
pub mod mesh_services;
pub mod snis;
pub mod telemetry_backends;
pub mod virtual_hosts;

pub use config::Config;
