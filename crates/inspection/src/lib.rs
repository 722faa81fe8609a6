//! Answers questions about proxies and meshes: their configuration, the policies in effect, access and reachability,
//! consequences of changes, findings.
//!
//! Invariant: everything is computed by the functions that configure proxies, on the snapshot that they are configured
//! from; asking changes nothing, and no private key and no token is in an answer.

pub mod blame;
pub mod findings;
mod proxies;
pub mod what_if;

pub use proxies::StoredProxies;
