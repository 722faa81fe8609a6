//! The control plane's process; everything it does is in the library beside it.

use std::process::ExitCode;

use clap::Parser;
use control_plane::cli::Cli;
use runtime::logs;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(()) => {
            logs::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            logs::last_words(&format!("kuma-cp: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
