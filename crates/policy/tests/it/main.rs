#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod inbounds;
mod merging;
mod ordering;
mod outbounds;
mod permissions;
mod random_permissions;
mod reference;
mod selection;
mod support;
