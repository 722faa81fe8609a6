//! Real programs in real processes, as a user runs them.
//!
//! Tests start the `kuma-cp` and `kumactl` that `cargo build --bins` made and talk to them over
//! HTTP or as commands. A program that is missing is an error, never a skipped test.

mod client;
mod control_plane;
pub mod discovery;
mod envoy;
pub mod grpc;
mod programs;
pub mod prometheus;
pub mod proxy;
pub mod service;

pub use client::{Answer, Client};
pub use control_plane::{ControlPlane, OutputReader, Setup};
pub use envoy::envoy;
pub use programs::{Kumactl, Profile, kumactl, program};
pub use testkit::ports::own_port;

use std::time::{Duration, Instant};

/// Time after which a test gives up on anything.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Lines of a program's log that a failed test shows.
const SHOWN: usize = 40;

/// Prints the end of a program's log if the test that used it has failed. For `Drop` of programs.
#[allow(clippy::print_stderr, reason = "the runner of tests shows what a failed test printed")]
fn show_if_failed(program: &str, log: &str) {
    if std::thread::panicking() {
        let lines: Vec<&str> = log.lines().collect();
        let end = &lines[lines.len().saturating_sub(SHOWN)..];
        eprintln!("── the last {} lines of the log of {program}:\n{}", end.len(), end.join("\n"));
    }
}

/// Waits until `condition` holds; says what it waited for when it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        anyhow::ensure!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
