//! Benchmarks. Speed is measured here, as numbers and ratios, and never asserted by a test.

mod dns;
mod kds;
mod permissions;
mod reach;

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{
    envoy,
    prerequisites::{self, Install},
    run,
};

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Benchmark {
    /// Reading and writing resources, against the machine's raw limits.
    Store,
    /// Delay until traffic follows a change, through a real Envoy.
    Endpoints,
    /// Resolving permissions of ever more rules.
    Permissions,
    /// Names of the mesh in the agent: looking one up, and taking over one that changed.
    Dns,
    /// Synchronisation of control planes: everything to all zones, and one change.
    Kds,
    /// Access between services: all permissions, and one change.
    Reach,
    /// Envoy's savings by trimming.
    Trim,
    /// Cost of the statistics of each profile for an Envoy that starts.
    Metrics,
    /// Thousands of simulated proxies, against a server that only pushes bytes.
    Scale,
}

/// Runs a benchmark; `arguments` are for the program that measures, where one takes any.
pub fn run(what: Benchmark, arguments: &[String]) -> anyhow::Result<()> {
    match what {
        Benchmark::Scale => {
            build(&["kuma-cp", "scale"])?;
            run::step("at scale", scale(arguments).args(arguments))
        }
        Benchmark::Kds => kds::run(arguments),
        Benchmark::Reach => reach::run(arguments),
        _ if !arguments.is_empty() => {
            bail!("only `bench scale`, `bench kds` and `bench reach` take arguments, not {arguments:?}")
        }
        Benchmark::Store => {
            prerequisites::install()?;
            build(&["kuma-cp", "e2e"])?;
            run::step(
                "in the process",
                run::cargo().args(["bench", "--locked", "--package", "store-sqlite"]),
            )?;
            run::step("through REST", &mut measure("bench-store"))
        }
        Benchmark::Endpoints => {
            let envoy = envoy::install(Install::Allowed)?;
            build(&["kuma-cp", "kuma-dp", "kuma-demo", "e2e"])?;
            run::step("through Envoy", measure("bench-endpoints").env("ENVOY_BIN", envoy))
        }
        Benchmark::Metrics => {
            let envoy = envoy::install(Install::Allowed)?;
            build(&["kuma-cp", "kuma-dp", "e2e"])?;
            run::step("starts of Envoy", measure("bench-metrics").env("ENVOY_BIN", envoy))
        }
        Benchmark::Trim => {
            let envoy = envoy::install(Install::Allowed)?;
            build(&["kuma-cp", "kuma-dp", "e2e"])?;
            run::step("trimmed and untrimmed", measure("bench-trim").env("ENVOY_BIN", envoy))
        }
        Benchmark::Permissions => {
            run::step("permissions", run::cargo().args(["bench", "--locked", "--package", "policy"]))?;
            permissions::write_page(&run::root())
        }
        Benchmark::Dns => {
            run::step(
                "names",
                run::cargo().args(["bench", "--locked", "--package", "kuma-dp", "--bench", "dns"]),
            )?;
            dns::write_page(&run::root())
        }
    }
}

fn build(packages: &[&str]) -> anyhow::Result<()> {
    let packages = packages.iter().flat_map(|name| ["--package", name]);
    run::step("release build", run::cargo().args(["build", "--release", "--locked"]).args(packages))
}

/// The program as it was built: `cargo run` would build it once more, without the others.
fn measure(program: &str) -> Command {
    Command::new(run::root().join("target/release").join(program))
}

/// Only a whole run is written to the documentation; a part of it is for who runs it.
fn scale(arguments: &[String]) -> Command {
    let root = run::root();
    let mut command = measure("meshbench");
    command.arg("run").arg("--cp-bin").arg(root.join("target/release/kuma-cp"));
    command.arg("--json").arg(root.join("target/meshbench.json"));
    if arguments.is_empty() {
        command.arg("--page").arg(root.join("docs/reference/benchmarks-scale.md"));
    }
    command
}

/// Median that criterion measured, in nanoseconds.
fn median(root: &Path, what: &str) -> anyhow::Result<f64> {
    let path = root.join(format!("target/criterion/{what}/new/estimates.json"));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let estimates: Value = serde_json::from_str(&text)?;
    estimates["median"]["point_estimate"].as_f64().with_context(|| format!("no median in {}", path.display()))
}
