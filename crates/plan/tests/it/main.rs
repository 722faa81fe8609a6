//! Plans as seen from outside: what a proxy is told to do in a mesh written as users write it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod classes;
mod effective;
mod external;
mod inbounds;
mod known;
mod names;
mod outbounds;
mod policies;
mod problems;
mod routes;
mod routes_by_tags;
mod support;
mod timeouts;
mod transparent;
mod zone_proxies;
