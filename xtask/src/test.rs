//! The whole check, in the order that fails fastest.

use crate::{envoy, prerequisites, run, tidy};

pub fn all() -> anyhow::Result<()> {
    run::step("formatting", run::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check()?;
    prerequisites::install()?;
    let envoy = envoy::install()?;
    run::step(
        "lints",
        run::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    // The end-to-end tests start these programs.
    run::step("programs", run::cargo().args(["build", "--workspace", "--bins", "--locked", "--quiet"]))?;
    run::step(
        "tests",
        run::cargo().args(["test", "--workspace", "--locked", "--no-fail-fast"]).env("ENVOY_BIN", envoy),
    )
}

/// Each crate's tests compare the committed file with what the code says; `UPDATE=1` writes it.
pub fn generate() -> anyhow::Result<()> {
    // The page of names is written from what a running Envoy says.
    let envoy = envoy::install()?;
    let packages = ["api", "envoy", "kuma-cp", "kuma-dp", "kumactl"].map(|name| ["--package", name]);
    run::step(
        "generated files",
        run::cargo()
            .arg("test")
            .args(packages.as_flattened())
            .args(["--", "up_to_date"])
            .env("UPDATE", "1")
            .env("ENVOY_BIN", envoy),
    )
}
