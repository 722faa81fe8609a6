//! Measures the whole control plane on SQLite against what SQLite itself reaches on this machine, and
//! writes docs/reference/benchmarks.md, together with what `cargo bench -p store` measured in the process.
//!
//! Whether a cost depends on the size of the store is measured on three control planes that run at the
//! same time and are asked in turns: whatever else the machine does, it does to all of them.

mod idle;
mod in_process;
mod reads;
mod report;
mod writes;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{ControlPlane, Profile, Setup};
use serde_json::{Value, json};
use testkit::postgres::Postgres;

const WINDOW: Duration = Duration::from_secs(5);
/// Numbers of stored resources at which reading is measured; idle cost is measured at `IDLE_AT`.
const SIZES: [usize; 3] = [100, 10_000, 100_000];
const IDLE_AT: usize = 10_000;

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<()> {
    let in_process = in_process::read(&repository())?;
    // On the disk the build is on: the temporary directory may be memory, where flushing costs nothing.
    let scratch = repository().join("target/tmp");
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let dir = tempfile::tempdir_in(&scratch)?;
    let mut filled =
        SIZES.map(|size| Filled::start(dir.path(), size)).into_iter().collect::<Result<Vec<_>, _>>()?;
    idle::wait_for_rest(&filled)?;
    let resting =
        filled.iter().find(|filled| filled.size == IDLE_AT).context("no control plane of that size")?;
    let idle = idle::cost(resting.control_plane.pid())?;
    let reads = reads::measure(&filled)?;
    let largest = filled.pop().context("no control plane to write to")?;
    // The others would only be in the way of the disk.
    drop(filled);
    let puts = writes::measure(dir.path(), &largest.control_plane.client())?;
    drop(largest);
    let seen = seen_by_another()?;
    let report = report::Measured { puts, reads, idle, seen, in_process }.page()?;
    println!("{report}");
    let path = repository().join("docs/reference/benchmarks.md");
    fs::write(&path, report).with_context(|| format!("writing {}", path.display()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A control plane with so many policies in one mesh, and nothing else in it.
struct Filled {
    size: usize,
    control_plane: ControlPlane,
}

impl Filled {
    fn start(dir: &Path, size: usize) -> anyhow::Result<Filled> {
        let work_dir = dir.join(format!("with-{size}"));
        fs::create_dir(&work_dir)?;
        let setup = Setup { profile: Profile::Release, ..Setup::default() };
        let control_plane = ControlPlane::start(&work_dir, setup)?;
        writes::fill(&control_plane.client(), size)?;
        Ok(Filled { size, control_plane })
    }
}

const COLLECTION: &str = "/meshes/bench/meshtimeouts";

/// Names of one length, so that answers of all stores have the same size.
fn name(i: usize) -> String {
    format!("fill-{i:06}")
}

/// A policy of ordinary size; `turn` makes each version different.
fn resource(name: &str, turn: u64) -> Value {
    json!({
        "type": "MeshTimeout", "mesh": "bench", "name": name,
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

/// Delays until a write acknowledged by one control plane is visible at another.
fn seen_by_another() -> anyhow::Result<Vec<Duration>> {
    let postgres = Postgres::start()?;
    let database = postgres.create_database("bench")?;
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let setup = Setup { profile: Profile::Release, ..Setup::default() }.on_postgres(&database);
    let writer = ControlPlane::start(dirs[0].path(), setup.clone())?;
    let reader = ControlPlane::start(dirs[1].path(), setup)?;
    let writer = writer.client();
    let reader = reader.client();
    writes::make_mesh(&writer)?;
    let mut times = Vec::new();
    for i in 0..100 {
        let path = format!("{COLLECTION}/{}", name(i));
        let answer = writer.put(&path, &resource(&name(i), 0))?;
        anyhow::ensure!(answer.status == 201, "{}", answer.body);
        let answered = Instant::now();
        while reader.get(&path)?.status != 200 {
            anyhow::ensure!(
                answered.elapsed() < Duration::from_secs(30),
                "the other control plane never saw it"
            );
        }
        times.push(answered.elapsed());
    }
    Ok(times)
}

/// The middle one; nothing for nothing.
fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
