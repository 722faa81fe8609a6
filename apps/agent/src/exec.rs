//! The step between the agent and Envoy: a process that asks the kernel to be killed when the agent
//! dies, then becomes Envoy.
//!
//! The agent cannot ask for its child, and code between fork and exec is unsafe in Rust, so the agent
//! starts itself with the hidden command `exec-envoy`, which does both in safe code.

use std::{
    ffi::OsString,
    os::unix::process::{CommandExt, parent_id},
    process::Command,
};

use clap::Args;
use nix::sys::{prctl, signal::Signal};

use crate::failure::{Failure, Result};

/// Become Envoy, bound to the life of the agent
#[derive(Debug, Args)]
pub struct ExecEnvoy {
    /// The process that must be the parent
    #[arg(long)]
    parent: u32,
    /// Envoy and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl ExecEnvoy {
    /// The arguments that make the agent's own binary run `command` this way.
    pub fn arguments(parent: u32, command: Vec<OsString>) -> Vec<OsString> {
        let own = ["exec-envoy".into(), "--parent".into(), parent.to_string().into(), "--".into()];
        own.into_iter().chain(command).collect()
    }

    pub fn execute(self) -> Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| {
            Failure::failed(format!("cannot make Envoy end together with the agent: {error}"))
        })?;
        // The agent may have died before the kernel was asked; then nothing would ever kill this process.
        if parent_id() != self.parent {
            return Err(Failure::failed("the agent ended before Envoy could start"));
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::invalid("no program to run"));
        };
        let error = Command::new(program).args(arguments).exec();
        Err(Failure::failed(format!("cannot run {}: {error}", program.display())))
    }
}
