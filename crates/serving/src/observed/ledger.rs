//! Observed calls of one mesh: those that are stored, and those that are to be.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use store::{Snapshot, Write};
use topology::observed::{Edge, EdgeObservations, ObservedEdges};

use super::{
    record::{self, SHARDS},
    writer::Pace,
};

/// The shards of a mesh.
#[derive(Debug)]
pub struct Ledger {
    mesh: Arc<str>,
    /// Indexed by number.
    shards: Vec<Shard>,
    last_report: Option<Timestamp>,
    /// Time of the last write.
    written: Option<Instant>,
    waiting: UnwrittenChanges,
}

/// Changes that wait to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnwrittenChanges {
    #[default]
    Nothing,
    Counts,
    /// Something that is not stored in any form.
    News,
}

#[derive(Debug, Default)]
struct Shard {
    /// The version that was read; 0 when there is none.
    version: u64,
    stored: ObservedEdges,
    /// Calls on their way into the store.
    writing: Option<ObservedEdges>,
    /// Calls that came meanwhile.
    pending: ObservedEdges,
    /// Number of edges that are not stored yet.
    fresh: usize,
}

impl Shard {
    /// Reads what is stored, if it is another version. While a write is on its way it is not known whether what is
    /// stored contains it.
    fn refresh(&mut self, mesh: &str, number: u8, snapshot: &Snapshot) {
        if self.writing.is_some() {
            return;
        }
        let found = snapshot.get(&record::key(mesh, number));
        let version = found.map_or(0, |found| found.version);
        if version != self.version {
            self.stored = found.map(|found| record::read(found)).unwrap_or_default();
            self.version = version;
            self.recount();
        }
    }

    fn recount(&mut self) {
        let waiting = self.writing.iter().flat_map(|writing| writing.edges.keys());
        let waiting = waiting.filter(|edge| !self.pending.edges.contains_key(edge));
        let waiting = waiting.chain(self.pending.edges.keys());
        self.fresh = waiting.filter(|edge| !self.stored.edges.contains_key(edge)).count();
    }

    fn knows(&self, edge: &Edge) -> bool {
        let parts = [Some(&self.stored), self.writing.as_ref(), Some(&self.pending)];
        parts.into_iter().flatten().any(|part| part.edges.contains_key(edge))
    }

    fn add(&mut self, edge: Edge, count: u64, now: Timestamp) {
        let seen = EdgeObservations { first: now, last: now, count };
        self.pending.edges.entry(edge).and_modify(|known| known.add(&seen)).or_insert(seen);
    }

    fn since(&self) -> Option<Timestamp> {
        let parts = [Some(&self.stored), self.writing.as_ref(), Some(&self.pending)];
        parts.into_iter().flatten().filter_map(|part| part.since).min()
    }

    fn truncated(&self) -> bool {
        let parts = [Some(&self.stored), self.writing.as_ref(), Some(&self.pending)];
        parts.into_iter().flatten().any(|part| part.truncated)
    }

    fn waiting(&self) -> UnwrittenChanges {
        let news = self.fresh > 0 || self.pending.since.is_some() || self.pending.truncated;
        match self.pending.is_empty() {
            true => UnwrittenChanges::Nothing,
            false if news => UnwrittenChanges::News,
            false => UnwrittenChanges::Counts,
        }
    }
}

impl Ledger {
    /// Reads the stored calls of a mesh.
    pub fn read(mesh: &str, snapshot: &Snapshot) -> Ledger {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let mut ledger = Ledger {
            mesh: mesh.into(),
            shards,
            last_report: None,
            written: None,
            waiting: UnwrittenChanges::default(),
        };
        ledger.refresh(snapshot);
        ledger
    }

    fn refresh(&mut self, snapshot: &Snapshot) {
        for (number, shard) in (0..SHARDS).zip(&mut self.shards) {
            shard.refresh(&self.mesh, number, snapshot);
        }
    }

    /// Takes in how often edges were seen; says how many there was no room for.
    pub fn add(
        &mut self,
        snapshot: &Snapshot,
        edges: impl IntoIterator<Item = (Edge, u64)>,
        max_edges: usize,
        now: Timestamp,
    ) -> u64 {
        self.last_report = Some(now);
        if self.shards.iter().all(|shard| shard.since().is_none())
            && let Some(first) = self.shards.first_mut()
        {
            first.pending.since = Some(now);
            self.waiting = UnwrittenChanges::News;
        }
        let mut dropped = 0;
        for (edge, count) in edges {
            let number = record::shard_of(&edge);
            let Some(shard) = self.shards.get_mut(usize::from(number)) else { continue };
            shard.refresh(&self.mesh, number, snapshot);
            if shard.knows(&edge) {
                shard.add(edge, count, now);
                self.waiting = self.waiting.max(UnwrittenChanges::Counts);
            } else if self.len() < max_edges
                && let Some(shard) = self.shards.get_mut(usize::from(number))
            {
                shard.add(edge, count, now);
                shard.fresh += 1;
                self.waiting = UnwrittenChanges::News;
            } else {
                dropped += 1;
            }
        }
        if dropped > 0
            && let Some(first) = self.shards.first_mut().filter(|first| !first.truncated())
        {
            first.pending.truncated = true;
            self.waiting = UnwrittenChanges::News;
        }
        dropped
    }

    /// Number of edges that are kept.
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.stored.edges.len() + shard.fresh).sum()
    }

    /// Everything that is stored or is to be.
    pub fn all(&mut self, snapshot: &Snapshot) -> ObservedEdges {
        self.refresh(snapshot);
        let mut all = ObservedEdges::default();
        for shard in &self.shards {
            all.add(&shard.stored);
            shard.writing.iter().for_each(|writing| all.add(writing));
            all.add(&shard.pending);
        }
        all
    }

    pub fn last_report(&self) -> Option<Timestamp> {
        self.last_report
    }

    pub fn waiting(&self) -> UnwrittenChanges {
        self.waiting
    }

    pub fn has_unwritten(&self) -> bool {
        self.waiting != UnwrittenChanges::Nothing
    }

    /// The time to write; `None` while there is nothing to write. What is new waits less than what is counted again.
    pub fn due(&self, pace: Pace, now: Instant) -> Option<Instant> {
        let pause = match self.waiting {
            UnwrittenChanges::Nothing => return None,
            UnwrittenChanges::Counts => pace.counts,
            UnwrittenChanges::News => pace.edges,
        };
        Some(self.written.map_or(now, |written| written + pause))
    }

    /// Writes that are due, by shard. Each is on its way until [`Ledger::settle`] is called for it.
    pub fn take(&mut self, snapshot: &Snapshot, now: Timestamp, instant: Instant) -> Vec<(u8, Write)> {
        self.written = Some(instant);
        self.waiting = UnwrittenChanges::Nothing;
        let mut writes = Vec::new();
        for (number, shard) in (0..SHARDS).zip(&mut self.shards) {
            if shard.pending.is_empty() || shard.writing.is_some() {
                continue;
            }
            shard.refresh(&self.mesh, number, snapshot);
            let pending = std::mem::take(&mut shard.pending);
            let mut holds = shard.stored.clone();
            holds.add(&pending);
            shard.writing = Some(pending);
            writes.push((number, record::write(&self.mesh, number, &holds, snapshot, now)));
        }
        writes
    }

    /// A write failed: what is left is written as soon as the store can be written again.
    pub fn failed(&mut self) {
        self.written = None;
    }

    /// Notes whether a write was made: as this version, or not at all.
    pub fn settle(&mut self, number: u8, version: Option<u64>) {
        let Some(shard) = self.shards.get_mut(usize::from(number)) else { return };
        let Some(written) = shard.writing.take() else { return };
        match version {
            Some(version) => {
                shard.stored.add(&written);
                shard.version = version;
            }
            None => {
                let later = std::mem::replace(&mut shard.pending, written);
                shard.pending.add(&later);
            }
        }
        shard.recount();
        self.waiting = self.waiting.max(shard.waiting());
    }
}
