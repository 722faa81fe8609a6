//! Costs of reading and writing, beside what the disk allows.
//!
//! Reads: one resource and a page of 100, with 100 to 100,000 resources stored; the cost should not
//! depend on that number. Stores of all sizes are read in turns. The same 64 places, spread over the whole
//! store, are read again and again, so that what is measured is the store and not how much of it fits into
//! the processor's cache; that is measured apart.
//! Writes: commits per second of bare `rusqlite` with the same table and durability, of the store with
//! one writer, and with 32 at a time. Prints a table of medians at the end.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not the product")]

use std::{
    hint::black_box,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::Criterion;
use resources::{Key, Kind};
use serde_json::{Value, json};
use store::{Memory, Record, Store, Write, conformance::resource};
use store_sqlite::Sqlite;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SIZES: [usize; 3] = [100, 10_000, 100_000];
const PLACES: usize = 64;
const WRITERS: usize = 32;

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    let runtime = Runtime::new().unwrap();
    let mut table = Table::default();
    reads(&mut criterion, &runtime, &mut table);
    writes(&mut criterion, &runtime, &mut table);
    criterion.final_summary();
    table.print();
}

/// Medians by row, for the summary.
#[derive(Default)]
struct Table(Vec<(String, Vec<(String, f64)>)>);

impl Table {
    fn row(&mut self, name: String, cells: Vec<(String, f64)>) {
        self.0.push((name, cells));
    }

    /// Leaves them for `cargo xtask bench store`; not when a filter on the command line left some out.
    fn save(&self) {
        if self.0.iter().flat_map(|(_, cells)| cells).any(|(_, time)| time.is_nan()) {
            return;
        }
        let rows = self.0.iter().map(|(what, cells)| {
            let medians: Vec<_> =
                cells.iter().map(|(size, time)| json!([size.parse::<u64>().unwrap(), time])).collect();
            json!({ "what": what, "medians": medians })
        });
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-reads.json");
        std::fs::write(path, Value::Array(rows.collect()).to_string()).unwrap();
    }

    /// Nanoseconds of each cell, and their ratio to the first of the row.
    fn print(&self) {
        println!("\nmedians (ratio to the first of the row)");
        for (name, cells) in &self.0 {
            // A filter on the command line leaves some unmeasured.
            let Some(first) = cells.first().map(|(_, median)| *median).filter(|median| median.is_finite())
            else {
                continue;
            };
            let cells = cells.iter().map(|(label, median)| {
                format!("{label}: {:.1} ns, {:.0}/s ({:.2}x)", median, 1e9 / median, median / first)
            });
            println!("  {name:<24}{}", cells.collect::<Vec<_>>().join(" | "));
        }
    }
}

/// Runs `timed`, which takes a number of rounds and says how long they took; returns the median of
/// one round in nanoseconds.
fn measure(criterion: &mut Criterion, name: &str, mut timed: impl FnMut(u64) -> Duration) -> f64 {
    let mut samples = Vec::new();
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let took = timed(rounds);
            samples.push(took.as_secs_f64() * 1e9 / rounds as f64);
            took
        });
    });
    median(samples)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn name(n: usize) -> String {
    format!("backend-{n:06}")
}

fn filled(runtime: &Runtime, store: Arc<dyn Store>, size: usize) -> Arc<dyn Store> {
    let all = (0..size).map(|n| Write::Create(resource(Kind::MeshService, "default", &name(n), "one")));
    runtime.block_on(store.write(all.collect())).unwrap();
    store
}

/// On the disk the build is on: the temporary directory may be memory, where flushing costs nothing.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A store of some size, and what is asked of it.
struct Filled {
    size: usize,
    store: Arc<dyn Store>,
    /// Evenly spread over the stored resources, as many at every size.
    places: Vec<Key>,
    /// Every stored resource once, in random order.
    all: Vec<Key>,
    _directory: TempDir,
}

impl Filled {
    fn new(runtime: &Runtime, kind: &str, size: usize) -> Filled {
        let directory = directory();
        let store: Arc<dyn Store> = match kind {
            "memory" => Arc::new(Memory::default()),
            _ => Arc::new(Sqlite::open(directory.path().join("store.db")).unwrap()),
        };
        let key = |n: usize| Key::new(Kind::MeshService, "default", &name(n));
        // A step that shares no factor with the size visits every place once.
        let step = (size * 618 / 1000..).find(|step| gcd(*step, size) == 1).unwrap();
        Filled {
            size,
            store: filled(runtime, store, size),
            places: (0..PLACES).map(|i| key(i * size / PLACES)).collect(),
            all: (0..size).map(|i| key(i * step % size)).collect(),
            _directory: directory,
        }
    }

    /// Reads `block` times and says how long that took.
    fn timed(&self, what: Read, block: usize, turn: usize) -> Duration {
        let (places, all) =
            (self.places.iter().cycle(), self.all.iter().cycle().skip(turn * block % self.size));
        let get = |key: &Key| drop(black_box(self.store.snapshot().unwrap().get(key).cloned()));
        let page = |offset| {
            drop(black_box(self.store.snapshot().unwrap().page(
                Kind::MeshService,
                Some("default"),
                offset,
                100,
            )));
        };
        let start = Instant::now();
        match what {
            Read::One => places.take(block).for_each(get),
            Read::Any => all.take(block).for_each(get),
            Read::FirstPage => (0..block).for_each(|_| page(0)),
            Read::LastPage => (0..block).for_each(|_| page(self.size - 100)),
        }
        start.elapsed()
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[derive(Clone, Copy)]
enum Read {
    One,
    /// Of all stored ones, so that most are in no cache.
    Any,
    FirstPage,
    LastPage,
}

/// Stores of all sizes are read in turns, so that whatever else the machine does is done to all of them.
fn reads(criterion: &mut Criterion, runtime: &Runtime, table: &mut Table) {
    for kind in ["memory", "sqlite"] {
        let stores: Vec<Filled> = SIZES.iter().map(|&size| Filled::new(runtime, kind, size)).collect();
        for (what, read, block) in [
            ("one resource", Read::One, 4 * PLACES),
            ("one resource, in no order", Read::Any, 100),
            ("the first page of 100", Read::FirstPage, 16),
            ("the last page of 100", Read::LastPage, 16),
        ] {
            let mut samples: Vec<Vec<f64>> = vec![Vec::new(); stores.len()];
            let mut turn = 0;
            let _ = measure(criterion, &format!("{kind}/{what}"), |rounds| {
                let mut total = Duration::ZERO;
                for _ in 0..rounds {
                    turn += 1;
                    for i in 0..stores.len() {
                        // The store that comes first in one round comes later in the next.
                        let at = (turn + i) % stores.len();
                        if !matches!(read, Read::Any) {
                            // Not counted: the last turn belonged to another.
                            stores[at].timed(read, block / 4, turn);
                        }
                        let took = stores[at].timed(read, block, turn);
                        samples[at].push(took.as_secs_f64() * 1e9 / block as f64);
                        total += took;
                    }
                }
                total
            });
            let cells =
                stores.iter().zip(samples).map(|(store, samples)| (store.size.to_string(), median(samples)));
            table.row(format!("{what}, {kind}"), cells.collect());
        }
    }
    table.save();
}

fn writes(criterion: &mut Criterion, runtime: &Runtime, table: &mut Table) {
    let raw = raw_commits(criterion);
    let directory = directory();
    let store = Arc::new(Sqlite::open(directory.path().join("store.db")).unwrap());
    filled(runtime, store.clone(), WRITERS);
    let one = measure(criterion, "commit/one writer", |rounds| {
        let start = Instant::now();
        runtime.block_on(updates(store.as_ref(), 0, rounds));
        start.elapsed()
    });
    let many = measure(criterion, "commit/32 writers", |rounds| {
        let start = Instant::now();
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = store.clone();
                let writers = WRITERS as u64;
                let share = rounds / writers + u64::from((writer as u64) < rounds % writers);
                runtime.spawn(async move { updates(store.as_ref(), writer, share).await })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        start.elapsed()
    });
    let cells = [("bare rusqlite", raw), ("one writer", one), ("32 writers", many)];
    table.row("sqlite, one write".to_owned(), cells.map(|(label, median)| (label.to_owned(), median)).into());
}

/// Updates the writer's own resource again and again.
async fn updates(store: &dyn Store, writer: usize, rounds: u64) {
    let key = Key::new(Kind::MeshService, "default", &name(writer));
    let stored = store.snapshot().unwrap().get(&key).unwrap().clone();
    let mut expected = stored.version;
    for _ in 0..rounds {
        let update = Write::Update { resource: stored.as_ref().clone(), expected };
        expected = store.write(vec![update]).await.unwrap().get(&key).unwrap().version;
    }
}

/// One row per transaction with nothing around it: what the disk and SQLite allow.
fn raw_commits(criterion: &mut Criterion) -> f64 {
    let directory = directory();
    let connection = rusqlite::Connection::open(directory.path().join("raw.db")).unwrap();
    for (pragma, value) in [("locking_mode", "EXCLUSIVE"), ("journal_mode", "WAL"), ("synchronous", "FULL")] {
        connection.pragma_update(None, pragma, value).unwrap();
    }
    connection
        .execute_batch(
            "CREATE TABLE resources (name TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID",
        )
        .unwrap();
    let record = Record::from(&resource(Kind::MeshService, "default", &name(0), "one"));
    let text = serde_json::to_string(&record).unwrap();
    let mut replace = connection.prepare("INSERT OR REPLACE INTO resources VALUES (?1, ?2)").unwrap();
    let mut commits = 0;
    // Until its log is as long as it gets SQLite makes the file longer, which costs more.
    for _ in 0..2_000 {
        commits += 1;
        replace.execute([name(commits % WRITERS), format!("{text}{commits}")]).unwrap();
    }
    measure(criterion, "commit/bare rusqlite", |rounds| {
        let start = Instant::now();
        for _ in 0..rounds {
            // SQLite writes nothing for a row that is replaced by the same.
            commits += 1;
            replace.execute([name(commits % WRITERS), format!("{text}{commits}")]).unwrap();
        }
        start.elapsed()
    })
}
