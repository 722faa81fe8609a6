//! Finds the commit for `--version`.
//!
//! A build for users (any profile with optimisation of `release`) reads it from the checkout, and again after every
//! commit. A development build does not: each commit would build every program anew. `KUMA_RS_COMMIT` wins over both.

#[path = "src/git.rs"]
mod git;

use std::{env, path::Path};

/// Set by builds outside of a checkout, and by `cargo xtask dist`.
const COMMIT: &str = "KUMA_RS_COMMIT";

#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn main() {
    println!("cargo:rerun-if-env-changed={COMMIT}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/git.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = env::var(COMMIT).ok().filter(|commit| !commit.is_empty());
    let for_users = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| if for_users { read() } else { None }).unwrap_or_default();
    let shown = match (commit.as_str(), for_users) {
        ("", true) => version,
        ("", false) => format!("{version} (development build)"),
        (commit, _) => format!("{version} (commit {commit})"),
    };
    println!("cargo:rustc-env=KUMA_RS_COMMIT_READ={commit}");
    println!("cargo:rustc-env=KUMA_RS_SHOWN_VERSION={shown}");
}

/// The commit of the checkout that this crate is part of, if there is one.
#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn read() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    let head = git::Head::of(root)?;
    for file in &head.changes_with {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    Some(head.commit)
}
