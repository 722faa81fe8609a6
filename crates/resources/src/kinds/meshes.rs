//! A mesh, and who its proxies are to each other.

pub mod mesh;
pub mod mesh_identity;
pub mod mesh_trust;
