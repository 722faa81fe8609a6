//! Inspection on a global control plane, whose proxies are in zones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../synchronisation/src/admin/tests/echo.rs"]
mod echo;
mod on_global;
