//! Mutated inputs for everything a control plane reads from the network: REST bodies, discovery requests and
//! bootstrap requests.
//!
//! ```text
//! seed ──▶ mutate (JSON and bytes) ──▶ a control plane in this process, over real sockets ──▶ checks
//! ```
//!
//! Whatever comes, the control plane answers in time, with a reason when it refuses, never with an error of
//! its own; no task panics; what it accepts it can read back. A seed repeats a run exactly, so the seed and
//! the number of the input are all that a failure has to name. Tests send a bounded number of inputs;
//! `cargo xtask fuzz` goes on for as long as it is given.

pub mod bootstrap;
pub mod discovery;
pub mod mutate;
pub mod rest;
pub mod server;

use std::time::{Duration, Instant};

use anyhow::Context;
use rand::{SeedableRng, rngs::StdRng};
use server::Server;

/// How long one answer may take. Far more than any needs: a control plane that hangs is what this finds.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// Bodies of `PUT` on the REST API.
    Rest,
    /// Messages on discovery streams.
    Discovery,
    /// Bodies of `POST /bootstrap`.
    Bootstrap,
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Inputs(u64),
    Elapsed(Duration),
}

/// Sends inputs until it is time to stop; returns how many there were.
pub async fn attack(server: &Server, target: Target, seed: u64, until: Until) -> anyhow::Result<u64> {
    let began = Instant::now();
    let mut sent = 0;
    loop {
        let over = match until {
            Until::Inputs(inputs) => sent >= inputs,
            Until::Elapsed(time) => began.elapsed() >= time,
        };
        if over {
            return Ok(sent);
        }
        // Each input has a generator of its own, so that one of them can be repeated alone.
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(sent));
        let attempt = async {
            match target {
                Target::Rest => rest::input(server, &mut random).await,
                Target::Discovery => discovery::input(server, &mut random).await,
                Target::Bootstrap => bootstrap::input(server, &mut random).await,
            }
        };
        let done = tokio::time::timeout(DEADLINE, attempt).await.context("no answer in time");
        done.and_then(|done| done).and_then(|()| server.has_not_panicked()).with_context(|| {
            format!("input {} of {target:?}; repeat it with --seed {}", sent, seed + sent)
        })?;
        sent += 1;
    }
}
