//! Events: what happened in the last hour, and streams of it.
//!
//! ```text
//!   proxies, zones, findings, users ─▶ Events::record ─▶ History ◀── each subscriber's number
//!   store::Changes ──────────────────▶ ChangeLog ◀────────────────── each subscriber's number
//! ```
//!
//! A subscriber has no queue: it holds the number of the last event that it was sent and reads on from there. One that
//! is so slow that events are forgotten before it reads them learns that it has missed some.
//!
//! Invariants: recording an event takes the same with any number of events and subscribers, and waits for no reader
//! and no disk. Memory is bounded, and one peer cannot push out the events of others.

mod changes;
mod history;
mod id;
mod kept;
mod log;
mod occurrence;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::events::EventKind;
use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use runtime::{Shutdown, metrics::Metrics};
use store::{Changes, Dirty, Store};
use tokio::sync::{Notify, watch};

use self::{changes::ChangeLog, history::History, id::ProcessId};
pub use self::{
    changes::{Changed, ChangedKind, frame as change_frame},
    history::{Bounds, Extent},
    id::{EventId, InvalidEventId},
    kept::KeptEvent,
    log::EventLog,
    occurrence::Occurrence,
};

/// Records events. Clones share what is recorded.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    process: ProcessId,
    history: Mutex<History>,
    changes: Mutex<ChangeLog>,
    /// Wakes the task that wakes subscribers, so that who records wakes one task however many subscribers there are.
    recorded: Notify,
    arrived: watch::Sender<()>,
    log: EventLog,
    metrics: EventMetrics,
}

#[derive(Debug, Default)]
struct EventMetrics {
    recorded: Family<KindLabels, Counter>,
    evicted: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl EventMetrics {
    fn register(metrics: &Metrics) -> EventMetrics {
        let recorded = "Events that were recorded, by kind";
        let evicted = "Events that were forgotten within their hour, because there were too many";
        let recorded = metrics.register("events", recorded, Family::default());
        for kind in EventKind::ALL {
            drop(recorded.get_or_create(&KindLabels { kind: kind.name() }));
        }
        EventMetrics { recorded, evicted: metrics.register("events_evicted", evicted, Counter::default()) }
    }
}

/// Position of a reader among the events: everything up to a number was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPosition {
    after: u64,
    /// Events up to this number that were forgotten before the reader came are not missed.
    excused: u64,
}

/// Events that were forgotten before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed;

/// Position of a reader that was here before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// It has missed nothing.
    Complete(ReadPosition),
    /// Some events are not kept any more; it gets the others.
    Gap(ReadPosition),
    /// It was sent events by another process; it gets all of this one.
    OtherProcess(ReadPosition),
}

/// A part of the events that match.
#[derive(Debug)]
pub struct EventPage {
    pub total: usize,
    pub events: Vec<Arc<KeptEvent>>,
    /// True if there are more after these.
    pub more: bool,
}

/// Events that are looked at while others wait to record.
const AT_ONCE: usize = 256;

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Default for Events {
    /// In memory alone, and counted nowhere.
    fn default() -> Events {
        Events::with(EventLog::Off, EventMetrics::default(), Bounds::default())
    }
}

impl Events {
    pub fn new(log: EventLog, metrics: &Metrics) -> Events {
        Events::with(log, EventMetrics::register(metrics), Bounds::default())
    }

    /// In memory alone, within these bounds.
    pub fn bounded(bounds: Bounds) -> Events {
        Events::with(EventLog::Off, EventMetrics::default(), bounds)
    }

    fn with(log: EventLog, metrics: EventMetrics, bounds: Bounds) -> Events {
        let process = ProcessId::random();
        Events(Arc::new(Inner {
            process,
            history: Mutex::new(History::new(process, bounds)),
            changes: Mutex::default(),
            recorded: Notify::new(),
            arrived: watch::Sender::new(()),
            log,
            metrics,
        }))
    }

    /// Follows what changes in the store, and wakes subscribers, until the process ends.
    pub fn start(&self, store: &Arc<dyn Store>, shutdown: &Shutdown) {
        let events = self.clone();
        let changes = store.changes();
        let ending = shutdown.clone();
        shutdown.spawn(async move {
            tokio::select! {
                () = events.follow(changes) => {}
                () = ending.begun() => {}
            }
        });
    }

    async fn follow(&self, changes: Changes) {
        let mut changes = Some(changes);
        loop {
            let dirty = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.recorded.notified() => {}
                dirty = dirty => match dirty {
                    Some(dirty) => self.note(dirty),
                    // The store has ended, and the process is about to.
                    None => changes = None,
                }
            }
            self.0.arrived.send_replace(());
        }
    }

    fn note(&self, dirty: Dirty) {
        match dirty {
            Dirty::Keys(keys) => {
                // The keys are in order, so that those of a kind and mesh follow each other.
                let mut changed: Vec<ChangedKind> = keys.iter().map(ChangedKind::of).collect();
                changed.dedup();
                let mut log = lock(&self.0.changes);
                changed.into_iter().for_each(|changed| log.add(changed));
            }
            Dirty::Everything => lock(&self.0.changes).add_anything(),
        }
    }

    /// Records what just happened.
    pub fn record(&self, occurrence: Occurrence) {
        let Inner { history, recorded, log, metrics, .. } = &*self.0;
        let kind = occurrence.kind.name();
        log.begin(&occurrence);
        let (event, evicted) = {
            let mut history = lock(history);
            let before = history.evicted();
            (history.record(occurrence, Timestamp::now()), history.evicted() - before)
        };
        log.end(&event);
        metrics.recorded.get_or_create(&KindLabels { kind }).inc();
        metrics.evicted.inc_by(evicted);
        recorded.notify_one();
    }

    /// Completes when something was recorded or changed since the receiver last looked.
    pub fn arrivals(&self) -> watch::Receiver<()> {
        self.0.arrived.subscribe()
    }

    /// Identifier of an event of this process.
    pub fn id(&self, number: u64) -> EventId {
        EventId { process: self.0.process, number }
    }

    /// Identifier of the last event that was read.
    pub fn id_at(&self, position: ReadPosition) -> EventId {
        self.id(position.after)
    }

    /// Position of a reader of what is recorded from now on.
    pub fn at_end(&self) -> ReadPosition {
        let last = lock(&self.0.history).last();
        ReadPosition { after: last, excused: last }
    }

    /// Position of a reader of what is kept since a time.
    pub fn since(&self, time: Timestamp) -> ReadPosition {
        let excused = lock(&self.0.history).last();
        let mut after = excused;
        self.each(|event| {
            if event.at >= time {
                after = after.min(event.number - 1);
            }
        });
        ReadPosition { after, excused }
    }

    /// Position of a reader that was sent everything up to an event, of a mesh or of all.
    pub fn resume(&self, id: EventId, mesh: Option<&str>) -> Resumed {
        let mut history = lock(&self.0.history);
        history.expire(Timestamp::now());
        let last = history.last();
        if id.process != self.0.process {
            return Resumed::OtherProcess(ReadPosition { after: 0, excused: last });
        }
        let position = ReadPosition { after: id.number.min(last), excused: last };
        if id.number < history.forgotten(mesh) || id.number > last {
            return Resumed::Gap(position);
        }
        Resumed::Complete(position)
    }

    /// Reads on, some events at a time, for a reader that wants to miss none of a mesh, or of all.
    pub fn read(
        &self,
        position: &mut ReadPosition,
        mesh: Option<&str>,
    ) -> Result<Vec<Arc<KeptEvent>>, Missed> {
        let mut history = lock(&self.0.history);
        history.expire(Timestamp::now());
        if history.forgotten(mesh) > position.after.max(position.excused) {
            return Err(Missed);
        }
        let events = history.after(position.after, AT_ONCE);
        position.after = events.last().map_or(position.after, |event| event.number);
        Ok(events)
    }

    /// The first events after a number that are wanted, and the number of all that are.
    pub fn page(&self, after: u64, size: usize, wanted: impl Fn(&KeptEvent) -> bool) -> EventPage {
        let mut page = EventPage { total: 0, events: Vec::new(), more: false };
        self.each(|event| {
            if !wanted(event) {
                return;
            }
            page.total += 1;
            let begun = event.number > after;
            if begun && page.events.len() < size {
                page.events.push(event.clone());
            } else {
                page.more |= begun;
            }
        });
        page
    }

    /// Looks at all events, a few at a time, so that recording waits for a short time only.
    fn each(&self, mut look: impl FnMut(&Arc<KeptEvent>)) {
        lock(&self.0.history).expire(Timestamp::now());
        let mut number = 0;
        loop {
            let next = lock(&self.0.history).after(number, AT_ONCE);
            let Some(last) = next.last() else { return };
            number = last.number;
            next.iter().for_each(&mut look);
        }
    }

    /// Number of the last change.
    pub fn last_change(&self) -> u64 {
        lock(&self.0.changes).last()
    }

    /// Kinds that changed after a number.
    pub fn changed(&self, after: u64) -> Changed {
        lock(&self.0.changes).after(after)
    }
}

fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}
