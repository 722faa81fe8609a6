//! Lets the floor do what the control plane did, row by row.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;

use super::{
    Options, POLL, Script,
    row::{Floor, Row, Sums, milliseconds},
};
use crate::{
    envoy::Variant,
    fleet::{Behaviour, Fleet, Tally},
    floor::process::Process,
    procfs::Meter,
    topology::Topology,
};

struct Run {
    process: Process,
    meter: Meter,
    fleet: Fleet,
    patience: Duration,
}

pub(super) async fn run(
    topology: &Topology,
    options: &Options,
    scripts: Vec<(usize, Script)>,
    rows: &mut [Row],
) -> anyhow::Result<()> {
    // Recorded responses are those of the variant the proxies spoke; the floor knows the delta variant.
    if options.behaviour.variant == Variant::World {
        return Ok(());
    }
    let program = std::env::current_exe().context("looking for the program of the floor")?;
    let process = Process::start(&program)?;
    let behaviour = Behaviour { variant: options.behaviour.variant, ..Behaviour::default() };
    let mut run = Run {
        meter: Meter::new(process.pid()),
        fleet: Fleet::new(process.server()?, behaviour, topology),
        process,
        patience: options.patience,
    };
    for (index, script) in scripts {
        let row = &mut rows[index];
        let floor = match script {
            Script::Cold(responses) => Some(run.connect(&responses, true).await?),
            Script::Again(responses) => Some(run.connect(&responses, false).await?),
            Script::Push(_, responses) if responses.is_empty() => None,
            Script::Push(streams, responses) => Some(run.push(streams, &responses, row.changes).await?),
        };
        row.floor = floor;
    }
    Ok(())
}

impl Run {
    /// All proxies connect at once; `fresh` ones have nothing.
    async fn connect(&mut self, responses: &[Bytes], fresh: bool) -> anyhow::Result<Floor> {
        let everyone: Vec<usize> = (0..self.fleet.len()).collect();
        self.fleet.stop(everyone.clone()).await;
        self.process.cold(responses)?;
        let before = self.meter.read()?;
        let start = self.fleet.begin(None);
        self.fleet.start(everyone.iter().copied(), fresh);
        let count = responses.len() as u64;
        let has = |tally: Tally| tally.connected.is_some() && tally.responses >= count;
        self.settle(|fleet| everyone.iter().all(|proxy| has(fleet.tally(*proxy)))).await;
        self.row(&vec![true; self.fleet.len()], start, before.cpu, 1)
    }

    async fn push(&mut self, streams: usize, responses: &[Bytes], repeats: usize) -> anyhow::Result<Floor> {
        anyhow::ensure!(self.fleet.connected() >= streams, "the floor has fewer streams than {streams}");
        let before = self.meter.read()?;
        let mut sums = Sums::default();
        let count = responses.len() as u64;
        for _ in 0..repeats {
            let start = self.fleet.begin(None);
            self.process.push(streams, responses)?;
            let has = |tally: &Tally| tally.responses >= count;
            let reached = |fleet: &Fleet| (0..fleet.len()).filter(|proxy| has(&fleet.tally(*proxy))).count();
            self.settle(|fleet| reached(fleet) >= streams).await;
            let affected: Vec<bool> =
                (0..self.fleet.len()).map(|proxy| has(&self.fleet.tally(proxy))).collect();
            sums.add(&self.fleet, &affected, start, |tally| tally.last);
        }
        self.floor(sums, before.cpu, repeats)
    }

    fn row(
        &mut self,
        affected: &[bool],
        start: Instant,
        before: Duration,
        repeats: usize,
    ) -> anyhow::Result<Floor> {
        let mut sums = Sums::default();
        sums.add(&self.fleet, affected, start, |tally| tally.last);
        self.floor(sums, before, repeats)
    }

    fn floor(&mut self, sums: Sums, before: Duration, repeats: usize) -> anyhow::Result<Floor> {
        let after = self.meter.read().context("what the floor costs")?;
        let row = sums.row(repeats);
        let cpu_ms = milliseconds(after.cpu - before) / repeats.max(1) as f64;
        Ok(Floor { cpu_ms, p50_ms: row.p50_ms, max_ms: row.max_ms, bytes: row.bytes, memory: after.memory })
    }

    async fn settle(&self, done: impl Fn(&Fleet) -> bool) {
        let deadline = Instant::now() + self.patience;
        let quiet = Duration::from_millis(100);
        while Instant::now() < deadline && !(self.fleet.quiet_for() >= quiet && done(&self.fleet)) {
            tokio::time::sleep(POLL).await;
        }
    }
}
