//! Writing through REST, and what SQLite reaches without a control plane around it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use e2e::Client;
use rusqlite::Connection;
use serde_json::json;

use crate::{COLLECTION, WINDOW, name, resource};

/// Commits until SQLite's log is as long as it gets, after which a commit is cheaper.
const WARM_UP: u64 = 2_000;

/// So many writers through REST, and bare SQLite right before and after them, per second.
pub struct Puts {
    pub writers: usize,
    pub rate: f64,
    pub raw: f64,
}

impl Puts {
    pub fn of_raw(&self) -> f64 {
        self.rate / self.raw
    }
}

/// In turns with bare commits, as a disk is not the same all the time.
pub fn measure(dir: &Path, client: &Client) -> anyhow::Result<Vec<Puts>> {
    let mut sqlite = Raw::open(&dir.join("raw.db"))?;
    let mut before = sqlite.commits_per_second()?;
    let mut puts = Vec::new();
    for writers in [1, 8, 32] {
        let rate = puts_per_second(client, writers);
        let after = sqlite.commits_per_second()?;
        puts.push(Puts { writers, rate, raw: f64::midpoint(before, after) });
        before = after;
    }
    Ok(puts)
}

/// SQLite without anything around it: one row per transaction, synced like ours.
struct Raw {
    connection: Connection,
    commits: u64,
}

impl Raw {
    fn open(path: &Path) -> anyhow::Result<Raw> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT NOT NULL)")?;
        let mut raw = Raw { connection, commits: 0 };
        while raw.commits < WARM_UP {
            raw.commit()?;
        }
        Ok(raw)
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        let body = resource("raw", self.commits).to_string();
        self.connection.execute(
            "INSERT OR REPLACE INTO t VALUES (?1, ?2)",
            rusqlite::params![(self.commits % 1000).to_string(), body],
        )?;
        self.commits += 1;
        Ok(())
    }

    fn commits_per_second(&mut self) -> anyhow::Result<f64> {
        let started = Instant::now();
        let before = self.commits;
        while started.elapsed() < WINDOW {
            self.commit()?;
        }
        Ok(rate(self.commits - before, started))
    }
}

fn puts_per_second(client: &Client, writers: usize) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let client = client.clone();
            let done = done.clone();
            let stop = stop.clone();
            thread::spawn(move || {
                let mut turn = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("put-{writers}-{writer}-{}", turn % 50);
                    let path = format!("{COLLECTION}/{name}");
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

/// A mesh with nothing in it, so that what is measured is what was put there.
pub fn make_mesh(client: &Client) -> anyhow::Result<()> {
    let mesh = json!({ "type": "Mesh", "name": "bench", "skipCreatingInitialPolicies": ["*"] });
    let answer = client.put("/meshes/bench", &mesh)?;
    anyhow::ensure!(answer.status < 300, "{}", answer.body);
    Ok(())
}

/// Makes the mesh and puts this many resources into it.
pub fn fill(client: &Client, size: usize) -> anyhow::Result<()> {
    make_mesh(client)?;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..32)
            .map(|writer| {
                scope.spawn(move || -> anyhow::Result<()> {
                    for i in (writer..size).step_by(32) {
                        let answer =
                            client.put(&format!("{COLLECTION}/{}", name(i)), &resource(&name(i), 0))?;
                        anyhow::ensure!(answer.status < 300, "{}", answer.body);
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?)
    })
}

fn rate(count: u64, started: Instant) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a count of a benchmark fits")]
    let count = count as f64;
    count / started.elapsed().as_secs_f64()
}
