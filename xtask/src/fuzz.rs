//! The tests of almost valid inputs, optimised and for a given time.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::run;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Minutes for each kind of input.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// The first input; a failure names the one that repeats it. Another one every time if not given.
    #[arg(long)]
    seed: Option<u64>,
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Seeds count up, one per input: two runs should not meet.
    let seed = options.seed.unwrap_or_else(|| now().wrapping_mul(1_000_000_000));
    run::step(
        "almost valid inputs",
        run::cargo()
            .args(["test", "--release", "--locked", "--package", "fuzz"])
            .env("FUZZ_MINUTES", options.minutes.to_string())
            .env("FUZZ_SEED", seed.to_string()),
    )
}
