//! The events of the last hour, within bounds.
//!
//! ```text
//!   history ── mesh ── source (a proxy, a zone, a user, a code of findings) ── its events, oldest first
//! ```
//!
//! When a mesh has too many, its largest source loses its oldest event; when all have, the largest mesh does so. So a
//! peer that causes many events pushes out its own, and others keep theirs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    id::{EventId, ProcessId},
    kept::KeptEvent,
    occurrence::Occurrence,
};

/// Bounds of a history.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub age: Duration,
    pub all: Extent,
    pub of_mesh: Extent,
}

/// Number of events, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            age: Duration::from_secs(3600),
            all: Extent { events: 20_000, bytes: 16 << 20 },
            of_mesh: Extent { events: 8_000, bytes: 6 << 20 },
        }
    }
}

impl Extent {
    fn exceeds(self, most: Extent) -> bool {
        self.events > most.events || self.bytes > most.bytes
    }

    fn add(&mut self, event: &KeptEvent) {
        self.events += 1;
        self.bytes += event.size();
    }

    fn remove(&mut self, event: &KeptEvent) {
        self.events -= 1;
        self.bytes -= event.size();
    }
}

/// Events by number.
#[derive(Debug)]
pub struct History {
    process: ProcessId,
    bounds: Bounds,
    last: u64,
    events: BTreeMap<u64, Arc<KeptEvent>>,
    extent: Extent,
    meshes: HashMap<Arc<str>, OfMesh>,
    /// The largest is the last.
    by_size: BTreeSet<(usize, Arc<str>)>,
    /// Highest number that was forgotten of meshes that have no events now.
    forgotten_meshes: u64,
    /// Highest number that was forgotten.
    forgotten: u64,
    evicted: u64,
}

#[derive(Debug, Default)]
struct OfMesh {
    extent: Extent,
    sources: HashMap<Arc<str>, OfSource>,
    /// The largest is the last; of equal ones, the one with the oldest event.
    by_size: BTreeSet<SourceSize>,
    /// Highest number that was forgotten.
    forgotten: u64,
}

type SourceSize = (usize, Reverse<u64>, Arc<str>);

#[derive(Debug, Default)]
struct OfSource {
    bytes: usize,
    numbers: VecDeque<u64>,
}

impl OfSource {
    fn size(&self, source: &Arc<str>) -> SourceSize {
        (self.bytes, Reverse(self.numbers.front().copied().unwrap_or_default()), source.clone())
    }
}

impl OfMesh {
    fn change(&mut self, source: &Arc<str>, change: impl FnOnce(&mut OfSource)) {
        let of_source = self.sources.entry(source.clone()).or_default();
        self.by_size.remove(&of_source.size(source));
        change(of_source);
        if of_source.numbers.is_empty() {
            self.sources.remove(source);
        } else {
            self.by_size.insert(of_source.size(source));
        }
    }

    /// The oldest event of the largest source.
    fn first_to_go(&self) -> Option<u64> {
        self.by_size.last().map(|(_, Reverse(oldest), _)| *oldest)
    }
}

impl History {
    pub fn new(process: ProcessId, bounds: Bounds) -> History {
        History {
            process,
            bounds,
            last: 0,
            events: BTreeMap::new(),
            extent: Extent::default(),
            meshes: HashMap::new(),
            by_size: BTreeSet::new(),
            forgotten_meshes: 0,
            forgotten: 0,
            evicted: 0,
        }
    }

    /// Adds an event, and forgets others as far as there is no room.
    pub fn record(&mut self, occurrence: Occurrence, now: Timestamp) -> Arc<KeptEvent> {
        self.expire(now);
        self.last += 1;
        let id = EventId { process: self.process, number: self.last };
        let event = Arc::new(KeptEvent::new(occurrence, id, now));
        self.add(&event);
        while let Some(number) = self.first_over(&event.mesh) {
            self.evicted += 1;
            self.forget(number);
        }
        event
    }

    fn add(&mut self, event: &Arc<KeptEvent>) {
        self.extent.add(event);
        let of_mesh = self.meshes.entry(event.mesh.clone()).or_default();
        self.by_size.remove(&(of_mesh.extent.bytes, event.mesh.clone()));
        of_mesh.extent.add(event);
        of_mesh.change(&event.source, |of_source| {
            of_source.bytes += event.size();
            of_source.numbers.push_back(event.number);
        });
        self.by_size.insert((of_mesh.extent.bytes, event.mesh.clone()));
        self.events.insert(event.number, event.clone());
    }

    /// The event that must go, because a mesh or the whole is beyond its bounds.
    fn first_over(&self, mesh: &Arc<str>) -> Option<u64> {
        let over = self.meshes.get(mesh).filter(|of_mesh| of_mesh.extent.exceeds(self.bounds.of_mesh));
        let largest = || {
            let (_, largest) = self.by_size.last().filter(|_| self.extent.exceeds(self.bounds.all))?;
            self.meshes.get(largest)
        };
        over.or_else(largest)?.first_to_go()
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Timestamp) {
        let oldest = now.saturating_sub(self.bounds.age).unwrap_or(Timestamp::MIN);
        while let Some((&number, _)) = self.events.first_key_value().filter(|(_, event)| event.at < oldest) {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(event) = self.events.remove(&number) else { return };
        self.extent.remove(&event);
        self.forgotten = self.forgotten.max(number);
        let Some(of_mesh) = self.meshes.get_mut(&event.mesh) else { return };
        self.by_size.remove(&(of_mesh.extent.bytes, event.mesh.clone()));
        of_mesh.extent.remove(&event);
        of_mesh.forgotten = of_mesh.forgotten.max(number);
        of_mesh.change(&event.source, |of_source| {
            of_source.bytes -= event.size();
            // Whatever goes is the oldest of its source.
            of_source.numbers.pop_front();
        });
        if of_mesh.extent.events == 0 {
            self.forgotten_meshes = self.forgotten_meshes.max(of_mesh.forgotten);
            self.meshes.remove(&event.mesh);
        } else {
            self.by_size.insert((of_mesh.extent.bytes, event.mesh.clone()));
        }
    }

    /// Number of the last event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Highest number that was forgotten: of a mesh, or of all.
    pub fn forgotten(&self, mesh: Option<&str>) -> u64 {
        let Some(mesh) = mesh else { return self.forgotten };
        let of_mesh = self.meshes.get(mesh).map_or(0, |of_mesh| of_mesh.forgotten);
        of_mesh.max(self.forgotten_meshes)
    }

    /// Events after a number, at most so many.
    pub fn after(&self, number: u64, most: usize) -> Vec<Arc<KeptEvent>> {
        self.events.range(number.saturating_add(1)..).take(most).map(|(_, event)| event.clone()).collect()
    }

    /// Events that were forgotten before their time.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests;
