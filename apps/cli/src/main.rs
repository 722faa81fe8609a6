//! `kumactl`: the command line client of the control plane.
//!
//! Every command is one module with its arguments and what it does. Data goes to stdout, messages to stderr,
//! and the exit code gives the result or the cause of a failure; see [`failure`].
//!
//! `kumactl` uses the crate `identity` to issue tokens without a control plane (`generate … --signing-key-path`) and to
//! read certificates (`check`, `proxy config … secrets`).

mod access;
mod analyze;
mod apply;
mod bounded;
mod cell;
mod check;
mod cli;
mod client;
mod completion;
mod config;
mod control_planes;
mod delete;
mod describe;
mod diff;
mod document;
mod edit;
mod events;
mod examples;
mod explain;
mod export;
mod failure;
mod generate;
mod get;
mod graph;
mod insight;
mod inspect;
mod install;
mod kri;
mod kuma_kinds;
mod migrate;
mod names;
mod output;
mod pages;
mod parallel;
mod proxy;
mod reachability;
mod reference;
mod selector;
mod sni;
mod stat;
mod suggest;
mod target;
mod terminal;
mod types;
mod version;
mod wait;
mod what_if;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only when a provider is installed already, which is then just as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = match cli::parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { failure::INVALID } else { failure::OK });
        }
    };
    match cli::run(&arguments) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(failure) if failure.is_closed_pipe() => ExitCode::from(failure::OK),
        Err(failure) => {
            terminal::talk(&format!("error: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}
