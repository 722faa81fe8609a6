//! Measures the whole control plane on SQLite against what SQLite itself reaches on this machine,
//! and writes docs/reference/benchmarks.md together with criterion's medians.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{Answer, Client, ControlPlane, Profile, Setup};
use rusqlite::Connection;
use serde_json::{Value, json};
use testkit::postgres::Postgres;

const WINDOW: Duration = Duration::from_secs(5);
/// How many resources are stored when reading is measured; idle cost is measured at `IDLE_AT`.
const SIZES: [usize; 3] = [100, 10_000, 100_000];
const IDLE_AT: usize = 10_000;
const READS: usize = 2_000;

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let raw = raw_commits_per_second(dir.path())?;
    let mut control_plane =
        ControlPlane::start(dir.path(), Setup { profile: Profile::Release, ..Setup::default() })?;
    let client = control_plane.client();
    let (mut reads, mut idle, mut filled) = (Vec::new(), None, 0);
    for size in SIZES {
        fill(&client, filled, size)?;
        filled = size;
        reads.push(Reads { size, one: median_get(&client, size)?, page: median_page(&client, size)? });
        if size == IDLE_AT {
            idle = Some(idle_cost(control_plane.pid())?);
        }
    }
    let puts: Vec<(usize, f64)> =
        [1, 8, 32].into_iter().map(|writers| (writers, puts_per_second(&client, writers))).collect();
    let idle = idle.context("idle cost was not measured")?;
    control_plane.stop()?;
    let seen = seen_by_another()?;
    let report = report(raw, &puts, &reads, &idle, &seen)?;
    println!("{report}");
    let path = repository().join("docs/reference/benchmarks.md");
    fs::write(&path, report).with_context(|| format!("writing {}", path.display()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One row per transaction, synced like ours.
fn raw_commits_per_second(dir: &Path) -> anyhow::Result<f64> {
    let connection = Connection::open(dir.join("raw.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT NOT NULL)")?;
    let body = resource("raw", 0).to_string();
    let started = Instant::now();
    let mut commits = 0_u64;
    while started.elapsed() < WINDOW {
        connection.execute(
            "INSERT OR REPLACE INTO t VALUES (?1, ?2)",
            rusqlite::params![(commits % 1000).to_string(), body],
        )?;
        commits += 1;
    }
    Ok(rate(commits, started))
}

fn puts_per_second(client: &Client, writers: usize) -> f64 {
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let started = Instant::now();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (client, done, stop) = (client.clone(), done.clone(), stop.clone());
            thread::spawn(move || {
                let mut turn = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("put-{writers}-{writer}-{}", turn % 50);
                    let path = format!("/meshes/default/meshtimeouts/{name}");
                    if client.put(&path, &resource(&name, turn)).is_ok_and(|a| a.status < 300) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    turn += 1;
                }
            })
        })
        .collect();
    thread::sleep(WINDOW);
    stop.store(true, Ordering::Relaxed);
    let rate = rate(done.load(Ordering::Relaxed), started);
    for thread in threads {
        // A writer that panicked has counted nothing.
        let _ = thread.join();
    }
    rate
}

/// Brings the number of filling resources from `from` to `to`.
fn fill(client: &Client, from: usize, to: usize) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let writers: Vec<_> = (0..32)
            .map(|writer| {
                scope.spawn(move || -> anyhow::Result<()> {
                    for i in (from + writer..to).step_by(32) {
                        let answer = client.put(&filling(i), &resource(&format!("fill-{i}"), 0))?;
                        anyhow::ensure!(answer.status < 300, "{}", answer.body);
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?)
    })
}

fn filling(i: usize) -> String {
    format!("/meshes/default/meshtimeouts/fill-{i}")
}

/// Medians of requests one after the other, with this many resources stored.
struct Reads {
    size: usize,
    one: Duration,
    page: Duration,
}

fn median_get(client: &Client, size: usize) -> anyhow::Result<Duration> {
    // The same 64 names, spread over the store: what grows with its size, not what falls out of a cache.
    median(READS, |i| client.get(&filling(i % 64 * (size / 64))))
}

fn median_page(client: &Client, size: usize) -> anyhow::Result<Duration> {
    let middle = size / 2 / 100 * 100;
    median(READS / 4, |_| client.get(&format!("/meshes/default/meshtimeouts?size=100&offset={middle}")))
}

fn median(count: usize, request: impl Fn(usize) -> anyhow::Result<Answer>) -> anyhow::Result<Duration> {
    let mut times = Vec::with_capacity(count);
    for i in 0..count {
        let started = Instant::now();
        let answer = request(i)?;
        anyhow::ensure!(answer.status == 200, "{}", answer.body);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(count / 2).copied().context("nothing was measured")
}

/// A policy of ordinary size; `turn` makes each version different.
fn resource(name: &str, turn: u64) -> Value {
    json!({
        "type": "MeshTimeout", "mesh": "default", "name": name,
        "labels": {"team": "payments", "stage": "production"},
        "spec": {
            "targetRef": {"kind": "Mesh"},
            "to": [{
                "targetRef": {"kind": "Mesh"},
                "default": {
                    "connectionTimeout": "5s",
                    "idleTimeout": format!("{}s", 10 + turn % 1000),
                    "http": {"requestTimeout": "15s", "streamIdleTimeout": "30m"}
                }
            }]
        }
    })
}

/// How long a write acknowledged by one control plane takes to be visible at another, sorted.
fn seen_by_another() -> anyhow::Result<Vec<Duration>> {
    let postgres = Postgres::start()?;
    let database = postgres.create_database("bench")?;
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let setup = Setup { profile: Profile::Release, ..Setup::default() }.on_postgres(&database);
    let writer = ControlPlane::start(dirs[0].path(), setup.clone())?;
    let reader = ControlPlane::start(dirs[1].path(), setup)?;
    let (writer, reader) = (writer.client(), reader.client());
    let mut times = Vec::new();
    for i in 0..100 {
        let answer = writer.put(&filling(i), &resource(&format!("fill-{i}"), 0))?;
        anyhow::ensure!(answer.status == 201, "{}", answer.body);
        let answered = Instant::now();
        while reader.get(&filling(i))?.status != 200 {
            anyhow::ensure!(
                answered.elapsed() < Duration::from_secs(30),
                "the other control plane never saw it"
            );
        }
        times.push(answered.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

struct Idle {
    cpu_seconds: f64,
    resident_mib: f64,
}

/// What the process uses while nothing happens.
fn idle_cost(pid: u32) -> anyhow::Result<Idle> {
    // Connections of the clients above close in their own time.
    thread::sleep(Duration::from_secs(3));
    let before = cpu_seconds(pid)?;
    thread::sleep(2 * WINDOW);
    let cpu_seconds = cpu_seconds(pid)? - before;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = resident.trim().trim_end_matches(" kB").parse()?;
    Ok(Idle { cpu_seconds, resident_mib: kib / 1024.0 })
}

fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after_name.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    // Linux counts these in hundredths of a second on every machine it runs on.
    Ok(fields.iter().sum::<f64>() / 100.0)
}

fn rate(count: u64, started: Instant) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a count of a benchmark fits")]
    let count = count as f64;
    count / started.elapsed().as_secs_f64()
}

fn report(
    raw: f64,
    puts: &[(usize, f64)],
    reads: &[Reads],
    idle: &Idle,
    seen: &[Duration],
) -> anyhow::Result<String> {
    let mut out = String::from(
        "# Benchmarks\n\nWritten by `cargo xtask bench store`. Absolute numbers belong to the machine they were taken on; \
         compare the ratios.\n\n## Writing through REST on SQLite\n\nRaw SQLite: one row per transaction, WAL, `synchronous=FULL`, \
         one thread. The control plane commits with the same durability before it answers.\n\n\
         | | per second | of raw |\n|---|---|---|\n",
    );
    writeln!(out, "| raw SQLite commits | {raw:.0} | 100 % |")?;
    for (writers, rate) in puts {
        writeln!(out, "| `PUT`, {writers} writer(s) | {rate:.0} | {:.0} % |", 100.0 * rate / raw)?;
    }
    out.push_str(
        "\n## Reading through REST\n\nMedian time of one request after the other, the client included.\n\n\
         | resources stored | get one | of the first | a page of 100 | of the first |\n|---|---|---|---|---|\n",
    );
    for read in reads {
        let of_first = |time: fn(&Reads) -> Duration| {
            reads.first().map_or(1.0, |first| time(read).as_secs_f64() / time(first).as_secs_f64())
        };
        writeln!(
            out,
            "| {} | {:.2?} | {:.2} | {:.2?} | {:.2} |",
            read.size,
            read.one,
            of_first(|r| r.one),
            read.page,
            of_first(|r| r.page)
        )?;
    }
    write!(
        out,
        "\n## Doing nothing\n\nWith {IDLE_AT} resources, over {} seconds: {:.2} s of CPU, {:.0} MiB resident.\n",
        (2 * WINDOW).as_secs(),
        idle.cpu_seconds,
        idle.resident_mib
    )?;
    let [middle, last] =
        [seen.len() / 2, seen.len().saturating_sub(1)].map(|i| seen.get(i).copied().unwrap_or_default());
    write!(
        out,
        "\n## Two control planes on one PostgreSQL\n\nFrom the answer to a `PUT` at one until the other shows it, {} times: \
         median {middle:.1?}, longest {last:.1?}.\n",
        seen.len()
    )?;
    out.push_str("\n## Reading and writing in the process\n\nMedians by criterion. Reading is a walk over a few pointers; what is left of its growth with the number of resources is the processor's cache.\n\n| benchmark | median |\n|---|---|\n");
    for (name, nanoseconds) in criterion_medians(&repository().join("target/criterion"))? {
        writeln!(out, "| {name} | {} |", human(nanoseconds))?;
    }
    Ok(out)
}

/// Every benchmark criterion has results for, sorted by name.
fn criterion_medians(dir: &Path) -> anyhow::Result<Vec<(String, f64)>> {
    let mut found = Vec::new();
    collect_medians(dir, dir, &mut found)?;
    anyhow::ensure!(
        !found.is_empty(),
        "no results of criterion in {}: run `cargo bench -p store`",
        dir.display()
    );
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn collect_medians(root: &Path, dir: &Path, found: &mut Vec<(String, f64)>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let estimates = path.join("new/estimates.json");
        if estimates.is_file() {
            let json: Value = serde_json::from_str(&fs::read_to_string(estimates)?)?;
            let median = json["median"]["point_estimate"].as_f64().context("no median")?;
            found.push((path.strip_prefix(root).unwrap_or(&path).display().to_string(), median));
        } else {
            collect_medians(root, &path, found)?;
        }
    }
    Ok(())
}

fn human(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}
