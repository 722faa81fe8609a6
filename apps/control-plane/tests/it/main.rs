#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! The control plane's configuration, and the control plane itself from the first start to a restart.

mod absence;
mod access;
mod boot;
mod bootstrap;
mod churn;
mod client;
mod command;
mod config;
mod findings;
mod health;
mod hostile_zones;
mod hostnames;
mod identities;
mod impostors;
mod insights;
mod inspect;
mod kds;
mod limits;
mod mesh_identities;
mod multi_zone;
mod patches;
mod proxies;
mod push;
mod rebuild;
mod routes;
mod secrets;
mod services;
mod snis;
mod streams;
mod telemetry;
mod virtual_hosts;
mod what_if;
mod world;
mod zone_proxies;
mod zone_rebuild;
