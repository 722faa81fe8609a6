//! Access as clients see it: the graph made of MeshTrafficPermissions.

mod bad_input;
mod cost;
mod diagrams;
mod kinds;
mod vectors;
pub mod world;
