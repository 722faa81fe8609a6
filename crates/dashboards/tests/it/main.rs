#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod files;
mod names;
mod queries;
mod schema;
