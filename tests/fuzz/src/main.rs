//! `cargo xtask fuzz`: attacks a control plane for as long as it is given.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use fuzz::{Target, Until, attack, server::Server};

#[derive(Parser)]
#[command(name = "fuzz", about = "Sends mutated inputs to a control plane in this process")]
struct Options {
    /// What to attack; everything in turn when left out.
    #[arg(long, value_enum)]
    target: Option<Target>,
    /// How long, for each target.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// Where the inputs start; a failure says which seed repeats it.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after so many inputs instead; 1 repeats a failure.
    #[arg(long)]
    inputs: Option<u64>,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "what the command is asked for")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let seed = options.seed.unwrap_or(now << 20);
    let until = match options.inputs {
        Some(inputs) => Until::Inputs(inputs),
        None => Until::Elapsed(Duration::from_secs(options.minutes * 60)),
    };
    let targets = options.target.map_or(Target::value_variants().to_vec(), |target| vec![target]);
    let server = Server::start().await?;
    for target in targets {
        let sent = attack(&server, target, seed, until).await?;
        println!("{target:?}: {sent} inputs from seed {seed}, no failure");
    }
    server.finish().await;
    Ok(())
}
