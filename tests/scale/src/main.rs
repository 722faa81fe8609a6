//! `meshbench`: measures a control plane with thousands of simulated proxies.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use scale::{
    bench::{Bench, Options, row::Row, workloads::BenchWorkload},
    control_plane::Setup,
    envoy::Variant,
    fleet::Behaviour,
    floor,
    plan::{self, Cell},
    remote, report,
    topology::{Calls, Size},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// Write the page of the documentation from the JSON of a run.
    Page { json: PathBuf, page: PathBuf },
    /// Serve recorded bytes and nothing else; started by `run`.
    #[command(hide = true)]
    Floor { folder: PathBuf },
    /// Run simulated proxies as standard input says; started by tests.
    #[command(hide = true)]
    Proxies {
        #[arg(long)]
        address: SocketAddr,
        /// The certificate to trust.
        #[arg(long)]
        authority: PathBuf,
        #[arg(long)]
        cell: Size,
    },
}

#[derive(Args)]
struct Run {
    /// PROXIESxSERVICES, or PROXIESxSERVICESdDEGREE; may be repeated. Without it, all that are planned.
    #[arg(long = "cell", value_delimiter = ',')]
    cells: Vec<Size>,
    /// Without it, those that are planned for the cell, or W1, W2 and W3.
    #[arg(long = "workload", value_delimiter = ',', ignore_case = true)]
    workloads: Vec<BenchWorkload>,
    /// The control plane's program; any that is configured as Kuma is.
    #[arg(long, default_value = "target/release/kuma-cp")]
    cp_bin: PathBuf,
    /// One more variable of its environment, as NAME=VALUE; may be repeated.
    #[arg(long = "cp-env")]
    cp_env: Vec<String>,
    /// File for the log of the last cell's control plane.
    #[arg(long)]
    cp_log: Option<PathBuf>,
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
    /// Milliseconds that those pause before each response.
    #[arg(long, default_value_t = 1000)]
    pause: u64,
    /// Proxies bring their Dataplanes along instead of finding them stored.
    #[arg(long)]
    bring_dataplanes: bool,
    /// Seconds that a workload goes on that goes on for a while.
    #[arg(long, default_value_t = 5)]
    lasting: u64,
    /// Seconds that a change may take to arrive.
    #[arg(long, default_value_t = 180)]
    patience: u64,
    /// Leave the floor out.
    #[arg(long)]
    no_floor: bool,
    /// Run the control plane under callgrind and count instructions; times mean nothing then.
    #[arg(long, requires = "no_floor")]
    callgrind: bool,
    /// File for the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// File for the page of the documentation, with a plot next to it.
    #[arg(long)]
    page: Option<PathBuf>,
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
        Command::Page { json, page } => {
            let text =
                std::fs::read_to_string(&json).with_context(|| format!("reading {}", json.display()))?;
            write_page(&page, &serde_json::from_str::<Vec<Row>>(&text)?)
        }
        Command::Proxies { address, authority, cell } => remote::serve(address, &authority, cell),
        Command::Run(run) => {
            // One thread for all proxies, so that the server has the other processor.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let done = runtime.block_on(async {
                // Before anything is started: a signal that comes earlier would end this process alone.
                let mut signals = Signals::listen()?;
                tokio::select! {
                    done = measure(&run) => done,
                    () = signals.interrupted() => Err(anyhow::anyhow!("interrupted")),
                }
            });
            // A request that is still open must not hold up the end.
            runtime.shutdown_background();
            done
        }
    }
}

/// The signals that end a run.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> io::Result<Signals> {
        let [interrupt, end, hang_up] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Signals([interrupt?, end?, hang_up?]))
    }

    /// Waits for one of them. The caller drops everything that was started then, which ends it.
    async fn interrupted(&mut self) {
        let [interrupt, end, hang_up] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = end.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}

async fn measure(run: &Run) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for Cell { size, workloads } in cells(run)? {
        let mut bench = Bench::start(size, options(run, &workloads)?).await?;
        for workload in workloads {
            bench.run(workload).await.with_context(|| format!("{size} {workload:?}"))?;
        }
        rows.extend(bench.conclude(!run.no_floor).await?);
        // A run that is interrupted leaves what it has measured.
        report(run, &rows)?;
    }
    print(&rows);
    Ok(())
}

/// Those that were asked for, or all that are planned.
fn cells(run: &Run) -> anyhow::Result<Vec<Cell>> {
    let mut cells = plan::cells()?;
    if !run.cells.is_empty() {
        let planned = |size: &Size| cells.iter().find(|cell| cell.size == *size).cloned();
        let usual = |size: Size| Cell {
            size,
            workloads: vec![BenchWorkload::W1, BenchWorkload::W2, BenchWorkload::W3],
        };
        cells = run.cells.iter().map(|size| planned(size).unwrap_or_else(|| usual(*size))).collect();
    }
    if !run.workloads.is_empty() {
        cells.iter_mut().for_each(|cell| cell.workloads.clone_from(&run.workloads));
    }
    Ok(cells)
}

fn report(run: &Run, rows: &[Row]) -> anyhow::Result<()> {
    if let Some(path) = &run.json {
        write(path, &serde_json::to_string_pretty(rows)?)?;
    }
    run.page.as_ref().map_or(Ok(()), |page| write_page(page, rows))
}

/// Writes the page, and the plot next to it.
fn write_page(page: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let plot = page.with_extension("svg");
    let name = plot.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write(&plot, &report::plot::svg(rows)?)?;
    write(page, &report::page::write(rows, &machine(), &name)?)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Describes the machine: model and number of processors, and their load, whatever with.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown", |(_, model)| model.trim());
    let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(2).unwrap_or("unknown").to_owned();
    format!("{count} processors ({model}); load average of the last 15 minutes of the run: {load}")
}

fn options(run: &Run, workloads: &[BenchWorkload]) -> anyhow::Result<Options> {
    let lasts = workloads.contains(&BenchWorkload::W8);
    let store = run.store.clone().unwrap_or_else(|| if lasts { "sqlite" } else { "memory" }.to_owned());
    let variable = |text: &String| {
        let (name, value) =
            text.split_once('=').with_context(|| format!("--cp-env {text:?} has no \"=\""))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let environment = run.cp_env.iter().map(variable).collect::<anyhow::Result<_>>()?;
    Ok(Options {
        setup: Setup { program: run.cp_bin.clone(), store, environment, callgrind: run.callgrind },
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
        log: run.cp_log.clone(),
    })
}

#[allow(clippy::print_stdout, reason = "the result of the command")]
fn print(rows: &[Row]) {
    println!("{}", report::table(rows));
    for row in rows.iter().filter(|row| !row.notes.is_empty()) {
        println!("{} {} {}: {}", row.cell, row.workload, row.what, row.notes.join("; "));
    }
}
