//! Every developer command of the project: `cargo xtask test`, `tidy`, `gen`, `demo`, `dist`, `envoy`, `bench`,
//! `fuzz`.
//!
//! A command installs what it needs or says what is missing; Rust is all that is assumed.

mod bench;
mod demo;
mod dist;
mod envoy;
mod fuzz;
mod prerequisites;
mod run;
mod test;
mod tidy;
mod typescript;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::prerequisites::Install;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of kuma-rs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check formatting, lints, layers and documents, then run all tests. What CI runs.
    Test(test::Options),
    /// Check layers, file lengths, links and words, without building anything.
    Tidy,
    /// Write the generated files again: reference pages, OpenAPI document and types made of it,
    /// configuration defaults, dashboards and rules about traffic.
    Gen,
    /// Show a mesh at work: a control plane, two services, real Envoys, mutual TLS.
    Demo(demo::Options),
    /// Build what users install: an archive, a Debian package, checksums.
    Dist(dist::Options),
    /// Print the path of the Envoy that tests and the demo run; install it first if there is none.
    Envoy {
        /// Fail instead of installing.
        #[arg(long)]
        no_install: bool,
    },
    /// Send almost valid inputs to a control plane, for longer than the tests do.
    Fuzz(fuzz::Options),
    /// Measure, and write the results to docs/reference.
    Bench {
        what: bench::Benchmark,
        /// For the program that measures: `bench scale --cell 100x100 --workload W1,W2`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[allow(clippy::print_stderr, reason = "the last word of a command that failed")]
fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(options) => test::all(&options),
        Command::Tidy => tidy::check(),
        Command::Gen => test::generate(),
        Command::Demo(options) => demo::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Envoy { no_install } => envoy::print(Install::unless(no_install)),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Bench { what, arguments } => bench::run(what, &arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
