//! The control plane's process; everything it does is in the library beside it.

use std::{io::Write, process::ExitCode};

use clap::Parser;
use control_plane::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Logging may not have started yet, so this goes where logs go without being one.
            let _ = writeln!(std::io::stderr(), "kuma-cp: {error:#}");
            ExitCode::FAILURE
        }
    }
}
