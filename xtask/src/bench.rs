//! Benchmarks. Speed is measured here, as numbers and ratios, and never asserted by a test.

use crate::run;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum What {
    /// Reading and writing resources, against the machine's raw limits.
    Store,
}

pub fn run(what: What) -> anyhow::Result<()> {
    match what {
        What::Store => {
            run::step(
                "release build",
                run::cargo().args([
                    "build",
                    "--release",
                    "--locked",
                    "--package",
                    "kuma-cp",
                    "--package",
                    "e2e",
                ]),
            )?;
            run::step("criterion", run::cargo().args(["bench", "--locked", "--package", "store"]))?;
            run::step(
                "control plane",
                run::cargo().args([
                    "run",
                    "--release",
                    "--locked",
                    "--package",
                    "e2e",
                    "--bin",
                    "bench-store",
                ]),
            )
        }
    }
}
