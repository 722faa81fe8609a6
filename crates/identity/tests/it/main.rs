#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Tokens, certificates and authorities as their readers see them.

mod admin;
mod bundled;
mod ca;
mod certificate;
mod issuer;
mod leaf_keys;
mod signing_key;
mod tls;
mod token;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use resources::{Draft, Resource};
use store::Snapshot;

/// A moment all tests agree on.
fn noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

/// A store with just these resources in it.
fn snapshot(drafts: impl IntoIterator<Item = Draft>) -> Snapshot {
    let resources = drafts.into_iter().map(|draft| {
        let resource = testkit::resource::of_draft(draft);
        Arc::new(Resource { created: noon(), modified: noon(), ..resource })
    });
    Snapshot::load(1, resources)
}
