//! A mesh with a service that is known by its tags only.

use crate::support::{BACKEND, PLAIN};

/// A service that is known by its tags only.
pub const SHOP: &str = r#"
type: Dataplane
mesh: default
name: shop
networking:
  address: 127.0.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: shop, kuma.io/protocol: http, version: v2 } }]
"#;

/// Documents of a mesh with the services `backend` and `shop`, policies, and the proxy `web`.
pub fn beside_shop<'d>(policies: &[&'d str], web: &'d str) -> Vec<&'d str> {
    [PLAIN, BACKEND, SHOP].into_iter().chain(policies.iter().copied()).chain([web]).collect()
}
