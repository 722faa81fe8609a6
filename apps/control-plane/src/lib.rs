//! `kuma-cp`, the control plane: reads its configuration, starts every part, stops them in order.
//!
//! [`boot`] is the one function that knows all parts; [`config`] declares every setting once. The
//! parts themselves live in the libraries below.

pub mod available_services;
pub mod boot;
pub mod certificates;
pub mod cli;
pub mod config;
mod defaults;
mod diagnostics;
pub mod dp_server;
mod early_roots;
mod files;
pub mod findings;
mod following;
pub mod insights;
pub mod inspect;
pub mod kds;
pub mod mesh_identities;
pub mod mesh_services;
pub mod observed;
pub mod push;
mod records;
pub mod snis;
mod storage;
pub mod telemetry_backends;
mod turns;
pub mod virtual_hosts;
pub mod what_if;
