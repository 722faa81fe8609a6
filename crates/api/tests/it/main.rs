//! The API seen from outside: requests in, answers out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access_rules;
mod audit;
mod authn;
mod backup;
mod coverage;
mod documents;
mod events;
mod faults;
mod hosts;
mod inspect;
mod last_write;
mod lists;
mod log;
mod meshes;
mod questions;
mod samples;
mod sni_usage;
mod snis;
mod special;
mod tokens;
mod typed_answers;
mod versions;
mod watch;
mod what_if;
mod world;
mod writes;
