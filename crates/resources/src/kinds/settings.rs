//! What a control plane keeps for itself and for its meshes: settings and secrets.

pub mod config;
pub mod secret;
