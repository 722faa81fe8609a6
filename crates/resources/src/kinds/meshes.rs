//! Meshes, and the identities of their proxies.

pub mod mesh;
pub mod mesh_identity;
pub mod mesh_trust;
