//! Plans as seen from outside: what a proxy does in a mesh written as users write it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access;
mod changes;
mod checks_and_balance;
mod classes;
mod clients;
mod effective;
mod egress_policies;
mod external;
mod foreign_policies;
mod identities;
mod inbounds;
mod locality;
mod meanings;
mod metrics;
mod names;
mod of_global;
mod oracle;
mod outbounds;
mod patches;
mod permitted;
mod plain_clients;
mod policies;
mod problems;
mod random_inbounds;
#[path = "../../../policy/tests/it/reference.rs"]
mod reference;
mod routes;
mod routes_by_tags;
mod stubs;
mod support;
mod timeouts;
mod tls;
mod transparent;
mod trimming;
mod virtual_hosts;
mod zone_proxies;
