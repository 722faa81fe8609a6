//! Small services to see a mesh at work: a web page that counts, and the store it counts in.
//!
//! Request headers force delays and errors, so that timeouts, retries and the like have something to
//! do (`faults.rs`). `load` makes bounded traffic; `echo` says who answered, in every protocol the
//! mesh knows, which the end-to-end tests ask.
//!
//! Invariant: they know nothing of the mesh.

mod client;
mod echo;
mod faults;
mod kv;
mod load;
mod serve;
mod web;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use runtime::logs;

#[derive(Parser)]
#[command(name = "kuma-demo", version = version::SHOWN, about = "Small services to see a mesh at work")]
struct Cli {
    /// Started by root, become the user and group of this number first, as the firewall lets root's calls past the proxy.
    #[arg(long, global = true, value_name = "UID")]
    user: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A web page that counts.
    Web(web::Options),
    /// A key-value store in memory, over HTTP.
    Kv(kv::Options),
    /// A server that says who answered.
    Echo(echo::Options),
    /// Traffic: so many requests per second, for so long.
    Load(load::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => {
            logs::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            logs::last_words(&format!("kuma-demo: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    logs::init(logs::Level::Info, logs::LogFormat::Text)?;
    if let Some(user) = cli.user {
        become_user(user).with_context(|| format!("cannot become the user {user}; --user is for root"))?;
    }
    match cli.command {
        Command::Web(options) => web::run(options).await,
        Command::Kv(options) => kv::run(options).await,
        Command::Echo(options) => echo::run(options).await,
        Command::Load(options) => load::run(options).await,
    }
}

/// Sockets that are opened from here on are this user's.
fn become_user(user: u32) -> nix::Result<()> {
    setgroups(&[])?;
    setgid(Gid::from_raw(user))?;
    setuid(Uid::from_raw(user))
}
