//! `kuma-cp`, the control plane: reads its configuration, starts every part, stops them in order.
//!
//! [`boot`] is the one function that knows all parts; [`config`] declares every setting once. The
//! parts themselves are crates.

pub mod boot;
pub mod certificates;
pub mod cli;
pub mod config;
mod defaults;
mod diagnostics;
mod files;
mod storage;
