//! One cell: a control plane, its mesh, its proxies, and what each workload costs it.

pub mod floor;
pub mod row;
pub mod workloads;

use std::{
    fs,
    ops::RangeInclusive,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    callgrind::InstructionCounter,
    control_plane::{ControlPlane, Rest, Setup},
    fleet::{Behaviour, Fleet, Marker},
    procfs::{Meter, Usage},
    topology::{self, Calls, MESH, Size, Topology},
};
use row::{Row, Sums, milliseconds};

/// Interval at which the proxies are looked at while something is awaited. Their own clocks tell when it
/// came.
const POLL: Duration = Duration::from_millis(20);

/// Everything that can be chosen about a run.
#[derive(Debug, Clone)]
pub struct Options {
    pub setup: Setup,
    pub behaviour: Behaviour,
    pub calls: Calls,
    pub seed: u64,
    /// Duration of a workload that goes on for a while.
    pub lasting: Duration,
    /// Time after which a change counts as not arrived.
    pub patience: Duration,
    /// File for the log of the control plane.
    pub log: Option<PathBuf>,
}

/// Something written, and how a proxy that has it is recognised.
pub struct MeasuredChange {
    pub write: Write,
    pub marker: Marker,
}

#[derive(Clone)]
pub enum Write {
    Put(Value),
    Delete(Value),
}

impl Write {
    pub async fn send(self, rest: &Rest) -> anyhow::Result<()> {
        let rest = rest.clone();
        let sent = tokio::task::spawn_blocking(move || match self {
            Write::Put(resource) => rest.put(&resource),
            Write::Delete(resource) => rest.delete(&resource),
        });
        sent.await?
    }
}

/// Task of the floor for a row.
enum Script {
    /// Connect all proxies and send them this.
    Cold(Vec<Bytes>),
    /// Let all proxies come back with what they have, and send them this.
    Again(Vec<Bytes>),
    /// Send this to so many proxies.
    Push(usize, Vec<Bytes>),
}

pub struct Bench {
    pub topology: Topology,
    pub options: Options,
    pub fleet: Fleet,
    control_plane: ControlPlane,
    rest: Rest,
    meter: Meter,
    instructions: Option<InstructionCounter>,
    rows: Vec<Row>,
    /// By the row they belong to.
    scripts: Vec<(usize, Script)>,
    /// Counts up with every value that must not have been there before.
    generation: usize,
}

impl Bench {
    /// Starts a control plane and writes the mesh.
    pub async fn start(size: Size, options: Options) -> anyhow::Result<Bench> {
        let topology = Topology::new(size, options.calls, options.seed);
        let mut control_plane = ControlPlane::spawn(options.setup.clone())?;
        control_plane.ready().await?;
        let rest = control_plane.rest();
        let fleet = Fleet::new(control_plane.server()?, options.behaviour, &topology);
        let meter = Meter::new(control_plane.pid());
        let instructions = control_plane.instructions();
        let mut bench = Bench {
            topology,
            options,
            fleet,
            control_plane,
            rest,
            meter,
            instructions,
            rows: Vec::new(),
            scripts: Vec::new(),
            generation: 0,
        };
        bench.write_mesh().await?;
        Ok(bench)
    }

    async fn write_mesh(&mut self) -> anyhow::Result<()> {
        let rest = self.rest.clone();
        let topology = self.topology.clone();
        let stored = if self.options.behaviour.brings_dataplane { topology.size.proxies } else { 0 };
        let started = Instant::now();
        let written = tokio::task::spawn_blocking(move || -> anyhow::Result<()> {
            rest.put(&topology::mesh())?;
            rest.put(&topology::permission("every-client", &json!({"kind": "Mesh"}), true))?;
            rest.put_all(topology.dataplanes() - stored, |index| topology.dataplane(stored + index))
        });
        written.await??;
        let services = self.topology.size.services;
        let rest = self.rest.clone();
        while stored == 0 && rest.total(&format!("/meshes/{MESH}/meshservices"))? < services {
            ensure!(
                started.elapsed() < Duration::from_secs(600),
                "there are not {services} MeshServices yet"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.rest_of_server().await?;
        let took = started.elapsed();
        self.say(&format!("{} Dataplanes written in {took:.1?}", self.topology.dataplanes()));
        Ok(())
    }

    /// Waits until the server has nothing left to do, or is never done.
    async fn rest_of_server(&mut self) -> anyhow::Result<()> {
        self.rest_within(Duration::from_secs(10)).await
    }

    async fn rest_within(&mut self, limit: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut before = self.meter.read()?;
        while start.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.meter.read()?;
            if now.cpu - before.cpu < Duration::from_millis(5) {
                break;
            }
            before = now;
        }
        Ok(())
    }

    #[allow(clippy::print_stderr, reason = "progress for who runs it")]
    pub fn say(&self, what: &str) {
        eprintln!("── {}: {what}", self.topology.size);
    }

    /// A number that no change has had.
    fn unused(&mut self) -> usize {
        self.generation += 1;
        self.generation
    }

    fn all_proxies(&self) -> Vec<bool> {
        vec![true; self.fleet.len()]
    }

    fn only(&self, proxies: &[usize]) -> Vec<bool> {
        let mut affected = vec![false; self.fleet.len()];
        for proxy in proxies {
            affected[*proxy] = true;
        }
        affected
    }

    /// Waits until `done`, and until nothing has come for a while; false when that takes too long.
    async fn settle(&self, quiet: Duration, done: impl Fn(&Fleet) -> bool) -> bool {
        let deadline = Instant::now() + self.options.patience;
        loop {
            tokio::time::sleep(POLL).await;
            if self.fleet.quiet_for() >= quiet && done(&self.fleet) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }

    /// Waits until what was written last has arrived, whatever it was.
    async fn calm(&mut self, quiet: Duration) -> anyhow::Result<()> {
        tokio::time::sleep(quiet).await;
        self.settle(quiet, |_| true).await;
        self.rest_of_server().await
    }

    /// Makes changes one after another, each when the one before has arrived everywhere.
    pub async fn changes(
        &mut self,
        name: (&str, &str),
        affected: &[usize],
        quiet: Duration,
        changes: Vec<MeasuredChange>,
    ) -> anyhow::Result<Row> {
        let count = changes.len();
        let concerned = self.only(affected);
        let mut sums = Sums::default();
        let mut recorded = Vec::new();
        let before = self.begin()?;
        for (index, change) in changes.into_iter().enumerate() {
            if let Some(sample) = affected.first().filter(|_| index == 0) {
                self.fleet.record(*sample);
            }
            let start = self.fleet.begin(Some(change.marker));
            change.write.send(&self.rest).await?;
            let has = |fleet: &Fleet| affected.iter().all(|proxy| fleet.tally(*proxy).marked.is_some());
            self.settle(quiet, has).await;
            sums.add(&self.fleet, &concerned, start, |tally| tally.marked);
            if index == 0 {
                recorded = self.fleet.take_recording();
            }
        }
        let mut row = sums.row(count);
        row.affected = affected.len();
        self.finish(name, &mut row, before, Script::Push(affected.len(), recorded))?;
        Ok(row)
    }

    fn begin(&mut self) -> anyhow::Result<Usage> {
        self.meter.reset_peak()?;
        self.fleet.take_ends();
        self.instructions.as_mut().map(InstructionCounter::take).transpose()?;
        self.meter.read().context("before the workload")
    }

    /// Completes a row with what the server used, and keeps it.
    fn finish(
        &mut self,
        (workload, what): (&str, &str),
        row: &mut Row,
        before: Usage,
        script: Script,
    ) -> anyhow::Result<()> {
        let after = self.meter.read().context("after the workload")?;
        let instructions = self.instructions.as_mut().map(InstructionCounter::take).transpose()?;
        row.instructions = instructions.map(|count| count / row.changes.max(1) as u64);
        row.cell = self.topology.size.to_string();
        (row.workload, row.what) = (workload.to_owned(), what.to_owned());
        row.cpu_ms = milliseconds(after.cpu.saturating_sub(before.cpu)) / row.changes.max(1) as f64;
        (row.memory, row.peak) = (after.memory, after.peak);
        let ends = self.fleet.take_ends();
        row.silent_ends = ends.silent;
        row.notes.extend(ends.reasons.iter().map(|(end, count)| format!("{count} streams ended {end}")));
        self.say(&describe(row));
        self.scripts.push((self.rows.len(), script));
        self.rows.push(row.clone());
        Ok(())
    }

    /// Ends the control plane, lets the floor do the same, and returns the rows.
    pub async fn conclude(self, with_floor: bool) -> anyhow::Result<Vec<Row>> {
        let everyone: Vec<usize> = (0..self.fleet.len()).collect();
        self.fleet.stop(everyone).await;
        let Bench { topology, options, fleet, control_plane, scripts, mut rows, .. } = self;
        if let Some(path) = &options.log {
            let writing = || format!("writing the control plane's log to {}", path.display());
            fs::write(path, control_plane.log()).with_context(writing)?;
        }
        drop((fleet, control_plane));
        if with_floor {
            floor::run(&topology, &options, scripts, &mut rows).await?;
        }
        Ok(rows)
    }

    /// Addresses and values no change has had yet.
    fn fresh(&mut self, count: usize) -> RangeInclusive<usize> {
        let first = self.generation + 1;
        self.generation += count;
        first..=self.generation
    }
}

fn describe(row: &Row) -> String {
    let instructions = row.instructions.map_or_else(String::new, |count| format!("{count} instructions, "));
    let missed = if row.missed > 0 { format!(", {} MISSED", row.missed) } else { String::new() };
    format!(
        "{} {}: p50 {:.1} ms, p99 {:.1} ms, {:.1} ms of CPU, {instructions}{:.0} bytes in {:.0} responses to {} proxies{missed}",
        row.workload, row.what, row.p50_ms, row.p99_ms, row.cpu_ms, row.bytes, row.responses, row.affected
    )
}
