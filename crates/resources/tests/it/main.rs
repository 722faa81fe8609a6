#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod descriptions;
mod every_kind;
mod naming;
mod nulls;
mod policy;
mod round_trip;
mod schema_first;
mod unknown_fields;
mod virtual_outbound;
