#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod inbounds;
mod merging;
mod ordering;
mod outbound_reference;
mod outbounds;
mod permissions;
mod random_outbounds;
mod random_permissions;
mod reference;
mod selection;
mod support;
