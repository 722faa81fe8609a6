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
mod findings;
mod foreign_policies;
mod identities;
mod inbounds;
mod ipv6;
mod locality;
mod meanings;
mod metrics;
mod names;
mod of_global;
mod oracle;
mod outbounds;
mod patches;
mod permitted;
mod pipeline;
mod plain_clients;
mod planned;
mod policies;
mod random_inbounds;
#[path = "../../../policy/tests/it/reference.rs"]
mod reference;
mod routes;
mod routes_by_tags;
mod shop;
mod stubs;
mod support;
mod switched;
mod timeouts;
mod tls;
mod transparent;
mod trimming;
mod virtual_hosts;
mod zone_proxies;
