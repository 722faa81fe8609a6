//! The command line: global flags, the tree of commands, and the way from one to the other.

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::{
    access, analyze, apply, check, client, completion, config, control_planes, delete, describe, diff, edit,
    events, examples, explain, export, failure,
    failure::{CommandResult, Result},
    generate, get, graph, inspect, install, kri, migrate, proxy, reference, sni, stat, suggest, version,
    wait,
};

/// Manages the resources of a mesh on a Kuma-compatible control plane.
///
/// Data goes to stdout, everything else to stderr. Without a configuration the control plane at
/// http://localhost:5681 is used.
#[derive(Debug, Parser)]
#[command(name = "kumactl", version = ::version::SHOWN, after_help = failure::EXIT_CODES, propagate_version = false)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Heading under which `--help` lists the flags every command understands.
const GLOBAL: &str = "Global flags";

/// Flags every command understands.
#[derive(Debug, Args)]
pub struct Global {
    /// Configuration file [default: ~/.kumactl/config]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub config_file: Option<std::path::PathBuf>,
    /// Neither read nor write a configuration file; use http://localhost:5681
    #[arg(long, global = true, conflicts_with = "config_file", help_heading = GLOBAL)]
    pub no_config: bool,
    /// Use this context instead of the current one
    #[arg(long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub context: Option<String>,
    /// Longest time for one request to the control plane; 0s means forever
    #[arg(long, global = true, value_name = "DURATION", default_value = "60s", value_parser = client::parse_timeout, help_heading = GLOBAL)]
    pub api_timeout: std::time::Duration,
    /// Amount of output to stderr: debug reports every request
    #[arg(long, global = true, value_name = "LEVEL", default_value = "off", help_heading = GLOBAL)]
    pub log_level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Off,
    Info,
    Debug,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Apply(apply::Apply),
    Diff(diff::Diff),
    Get(get::Get),
    Describe(describe::Describe),
    Edit(edit::Edit),
    Delete(delete::Delete),
    Wait(wait::Wait),
    Explain(explain::Explain),
    Check(check::CheckCommand),
    Export(export::Export),
    /// Show how proxies, meshes, services and zones are doing, and what policies apply to
    Inspect {
        #[command(subcommand)]
        command: inspect::WithPolicies,
    },
    Access(access::AccessCommand),
    Graph(graph::Graph),
    Events(events::EventsCommand),
    Analyze(analyze::Analyze),
    Stat(stat::Stat),
    Top(stat::Top),
    /// Show whether proxies run what they were sent, and inspect one
    Proxy {
        #[command(subcommand)]
        command: proxy::ProxyCommand,
    },
    /// Show and change which control planes this client knows
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Make tokens, keys and certificates
    Generate {
        #[command(subcommand)]
        command: generate::Generate,
    },
    /// Parse and build resource identifiers
    Kri {
        #[command(subcommand)]
        command: kri::KriCommand,
    },
    /// Decode and encode the server names (SNI) of connections between zones
    Sni {
        #[command(subcommand)]
        command: sni::SniCommand,
    },
    /// Install what a machine needs beside its proxy
    Install {
        #[command(subcommand)]
        command: install::Install,
    },
    /// Remove what was installed
    Uninstall {
        #[command(subcommand)]
        command: install::Uninstall,
    },
    /// Suggest policies by what was observed
    Suggest {
        #[command(subcommand)]
        command: suggest::Suggest,
    },
    /// Translate legacy policies, and move a mesh to permissions
    Migrate {
        #[command(subcommand)]
        command: migrate::Migrate,
    },
    Version(version::Version),
    Completion(completion::Completion),
    /// Print the reference of all commands in Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    View(control_planes::View),
    /// Manage the control planes this client knows
    #[command(visible_alias = "control-plane")]
    ControlPlanes {
        #[command(subcommand)]
        command: control_planes::ControlPlanes,
    },
}

/// The tree of commands with the examples of each.
pub fn command() -> clap::Command {
    examples::add_to(Cli::command())
}

/// Reads the arguments of the process.
pub fn parse() -> std::result::Result<Cli, clap::Error> {
    let mut matches = command().try_get_matches()?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command()))
}

pub fn run(cli: &Cli) -> Result<CommandResult> {
    let settings = || config::ClientSettings::load(&cli.global);
    match &cli.command {
        Command::Access(access) => return access.run(&settings()?.client()?),
        Command::Analyze(analyze) => return analyze.run(&cli.global),
        Command::Proxy { command } => return command.run(&settings()?.client()?),
        Command::Diff(diff) => return diff.run(&cli.global),
        Command::Migrate { command } => return command.run(&cli.global),
        Command::Suggest { command } => command.run(&settings()?.client()?),
        Command::Apply(apply) => apply.run(&cli.global),
        Command::Get(get) => get.run(&settings()?.client()?),
        Command::Check(check) => check.run(&settings()?.client()?),
        Command::Describe(describe) => describe.run(&settings()?.client()?),
        Command::Edit(edit) => edit.run(&settings()?.client()?),
        Command::Wait(wait) => wait.run(&settings()?.client()?),
        Command::Explain(explain) => explain.run(&settings()?.client()?),
        Command::Delete(delete) => delete.run(&cli.global),
        Command::Graph(graph) => graph.run(&settings()?.client()?),
        Command::Stat(stat) => stat.run(&settings()?.client()?),
        Command::Top(top) => top.run(&settings()?.client()?),
        Command::Events(events) => events.run(&settings()?.client()?),
        Command::Export(export) => export.run(&settings()?.client()?),
        Command::Inspect { command } => command.0.run(&settings()?.client()?),
        Command::Config { command: ConfigCommand::View(view) } => view.run(&settings()?),
        Command::Config { command: ConfigCommand::ControlPlanes { command } } => command.run(settings()?),
        Command::Generate { command } => command.run(&cli.global),
        Command::Kri { command } => command.run(),
        Command::Sni { command } => command.run(&cli.global),
        Command::Install { command } => command.run(),
        Command::Uninstall { command } => command.run(),
        Command::Version(version) => version.run(&cli.global),
        Command::Completion(completion) => completion.run(),
        Command::Reference => reference::run(),
    }?;
    Ok(CommandResult::Done)
}
