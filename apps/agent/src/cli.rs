//! The command line of `kuma-dp`.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use anyhow::Context;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    envoy::Envoy,
    exec::ExecEnvoy,
    failure::{EXIT_CODES, Result},
    reference, run,
    settings::Settings,
    wait::Wait,
};

/// Runs Envoy beside an application as a part of the mesh
#[derive(Debug, Parser)]
#[command(name = "kuma-dp", version = version::SHOWN, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a proxy: get its configuration from the control plane, and start and supervise Envoy
    #[command(args_override_self = true)]
    Run(Box<Settings>),
    Wait(Wait),
    Version(Version),
    #[command(hide = true)]
    ExecEnvoy(ExecEnvoy),
    /// Print the reference page of the documentation
    #[command(hide = true)]
    Reference,
}

/// Print the version
#[derive(Debug, Args)]
struct Version {
    /// Also look for Envoy and print its version
    #[arg(short = 'a', long)]
    detailed: bool,
}

impl Cli {
    /// Reads arguments and environment, or ends the process with what is wrong with them.
    pub fn read() -> Cli {
        let command = Cli::command().mut_subcommand("run", |run| {
            run.mut_args(|arg| {
                let value = arg.get_env().and_then(std::env::var_os);
                // Templates of pods and units often leave variables empty to say nothing.
                if value.is_some_and(|value| value.is_empty()) { arg.env(None::<&'static str>) } else { arg }
            })
        });
        let matches = command.get_matches_from(arguments(std::env::args_os()));
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Does what was asked for.
    pub fn execute(self) -> Result<()> {
        match self.command {
            Command::Run(settings) => block_on(run::run(*settings)),
            Command::Wait(wait) => block_on(wait.execute()),
            Command::Version(version) => block_on(version.execute()),
            Command::ExecEnvoy(exec) => exec.execute(),
            Command::Reference => print(&reference::page()),
        }
    }
}

impl Version {
    async fn execute(&self) -> Result<()> {
        print(&format!("kuma-dp {}\n", version::SHOWN))?;
        if self.detailed {
            let envoy = Envoy::find(None).await?;
            print(&format!("envoy {} ({})\n", envoy.version.number, envoy.path.display()))?;
        }
        Ok(())
    }
}

/// Kuma's agent takes settings of logs in front of the command too; here they come after it.
fn arguments(mut given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut ordered: Vec<OsString> = given.next().into_iter().collect();
    let mut moved = Vec::new();
    let mut rest = given.peekable();
    while let Some(flag) = rest.next_if(|next| next.to_string_lossy().starts_with("--log-")) {
        let has_value = flag.to_string_lossy().contains('=');
        moved.push(flag);
        if !has_value {
            moved.extend(rest.next());
        }
    }
    if let Some(command) = rest.next() {
        if command != "run" {
            moved.clear();
        }
        ordered.push(command);
    }
    ordered.into_iter().chain(moved).chain(rest).collect()
}

fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // `kuma-dp version | true` is not a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("cannot write to standard output")?),
    }
}

/// One thread is enough for an agent, and it must be the one that lives as long as the process: the
/// kernel kills Envoy when the thread that started it ends.
fn block_on(task: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the event loop")?.block_on(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_logs_may_stand_in_front_of_the_command() {
        let check = |given: &str, expect: &str| {
            let ordered = arguments(given.split(' ').map(OsString::from));
            assert_eq!(ordered.join(std::ffi::OsStr::new(" ")), OsString::from(expect));
        };
        check(
            "kuma-dp --log-level debug --log-max-size=5 run -d x",
            "kuma-dp run --log-level debug --log-max-size=5 -d x",
        );
        check("kuma-dp run --log-level debug", "kuma-dp run --log-level debug");
        check("kuma-dp --log-level=debug version", "kuma-dp version");
        check("kuma-dp --help", "kuma-dp --help");
    }
}
