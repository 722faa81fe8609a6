//! Settings and secrets that a control plane keeps for itself and for its meshes.

pub mod config;
pub mod secret;
