//! `meshbench`: measures a control plane with thousands of simulated proxies.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use scale::{
    bench::{Bench, Options, row::Row, workloads::Workload},
    control_plane::Setup,
    envoy::Variant,
    fleet::Behaviour,
    floor,
    topology::{Calls, Size},
};

#[derive(Parser)]
#[command(name = "meshbench", about = "Measures a control plane with thousands of simulated proxies")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure cells one after another.
    Run(Run),
    /// Serve recorded bytes and nothing else; started by `run`.
    #[command(hide = true)]
    Floor { folder: PathBuf },
}

#[derive(Args)]
struct Run {
    /// PROXIESxSERVICES, or PROXIESxSERVICESdDEGREE; may be repeated.
    #[arg(long = "cell", value_delimiter = ',', default_value = "100x100")]
    cells: Vec<Size>,
    #[arg(long = "workload", value_delimiter = ',', default_value = "W1,W2,W3")]
    workloads: Vec<Workload>,
    /// The control plane's program; any that is configured as Kuma is.
    #[arg(long, default_value = "target/release/kuma-cp")]
    cp_bin: PathBuf,
    /// One more variable of its environment, as NAME=VALUE; may be repeated.
    #[arg(long = "cp-env")]
    cp_env: Vec<String>,
    /// memory, sqlite or postgres; without it, memory, or sqlite for what needs a store that lasts.
    #[arg(long)]
    store: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    #[arg(long, value_enum, default_value_t)]
    calls: Calls,
    /// The share of responses that proxies reject.
    #[arg(long, default_value_t = 0.0)]
    rejects: f64,
    /// The share of proxies that read slowly.
    #[arg(long, default_value_t = 0.0)]
    slow: f64,
    /// How many milliseconds those pause before each response.
    #[arg(long, default_value_t = 1000)]
    pause: u64,
    /// Proxies bring their Dataplanes along instead of finding them stored.
    #[arg(long)]
    bring_dataplanes: bool,
    /// How many seconds a workload goes on that goes on for a while.
    #[arg(long, default_value_t = 5)]
    lasting: u64,
    /// How many seconds a change may take to arrive.
    #[arg(long, default_value_t = 180)]
    patience: u64,
    /// Leave the floor out.
    #[arg(long)]
    no_floor: bool,
    /// Where to write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[allow(clippy::print_stderr, reason = "the last word of a command that failed")]
fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Floor { folder } => floor::run(&folder),
        Command::Run(run) => {
            // One thread for all proxies, so that the server has the other processor.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let done = runtime.block_on(async {
                tokio::select! {
                    done = measure(&run) => done,
                    interrupted = tokio::signal::ctrl_c() => {
                        interrupted?;
                        Err(anyhow::anyhow!("interrupted"))
                    }
                }
            });
            // A request that is still open must not hold up the end.
            runtime.shutdown_background();
            done
        }
    }
}

async fn measure(run: &Run) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for size in &run.cells {
        let mut bench = Bench::start(*size, options(run)?).await?;
        for workload in &run.workloads {
            bench.run(*workload).await.with_context(|| format!("{size} {workload:?}"))?;
        }
        rows.extend(bench.conclude(!run.no_floor).await?);
    }
    print(&rows);
    if let Some(path) = &run.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn options(run: &Run) -> anyhow::Result<Options> {
    let lasts = run.workloads.contains(&Workload::W8);
    let store = run.store.clone().unwrap_or_else(|| if lasts { "sqlite" } else { "memory" }.to_owned());
    let variable = |text: &String| {
        let (name, value) =
            text.split_once('=').with_context(|| format!("--cp-env {text:?} has no \"=\""))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let environment = run.cp_env.iter().map(variable).collect::<anyhow::Result<_>>()?;
    Ok(Options {
        setup: Setup { program: run.cp_bin.clone(), store, environment },
        behaviour: Behaviour {
            variant: run.variant,
            rejects: run.rejects,
            slow: run.slow,
            pause: Duration::from_millis(run.pause),
            brings_dataplane: run.bring_dataplanes,
        },
        calls: run.calls,
        seed: run.seed,
        lasting: Duration::from_secs(run.lasting),
        patience: Duration::from_secs(run.patience),
    })
}

#[allow(clippy::print_stdout, reason = "the result of the command")]
fn print(rows: &[Row]) {
    for row in rows {
        let times = |times: Option<f64>| times.map_or("-".to_owned(), |times| format!("{times:.1}"));
        println!(
            "{:14} {:4} {:30} p50 {:8.1} p99 {:8.1} ms  cpu {:9.2} ms  x floor {:>6}  rss {:5.0} peak {:5.0} MiB  bytes {:11.0} x needed {:>5}  responses {:7.0} bystanders {:4} missed {}  {}",
            row.cell,
            row.workload,
            row.what,
            row.p50_ms,
            row.p99_ms,
            row.cpu_ms,
            times(row.times_floor()),
            row.memory as f64 / 1048576.0,
            row.peak as f64 / 1048576.0,
            row.bytes,
            times(row.times_needed()),
            row.responses,
            row.bystanders,
            row.missed,
            row.notes.join("; ")
        );
    }
}
