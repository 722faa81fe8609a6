//! Writes DataplaneInsights and those of zone proxies: the one place that does.
//!
//! Connections with new facts wait here until the next write, which takes all of them in one batch. Connects
//! and disconnects are written at once; the state of a proxy, at most once in an interval. Nothing runs
//! while no connection has new facts, and a control plane that ends writes what is left.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use resources::{Key, kinds::dataplane_insight::DataplaneInsight};
use runtime::Shutdown;
use store::{Error, Snapshot, Store, Write};
use tokio::{sync::Notify, time::Instant};

use super::{
    connection::{ProxyConnection, WrittenFacts},
    kinds, write,
};

/// Largest number of records written in one batch.
const BATCH: usize = 256;
/// Delay before a store that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes what connections have to tell.
pub struct Writer {
    store: Arc<dyn Store>,
    interval: Duration,
    shutdown: Shutdown,
    pending: Mutex<PendingWrites>,
    urgent: Notify,
}

#[derive(Default)]
struct PendingWrites {
    urgent: Queue,
    /// Writes that may wait for the next interval.
    patient: Queue,
    /// End of patience.
    due: Option<Instant>,
    /// A task is writing, or is about to.
    running: bool,
}

/// Connections in the order they came, each once.
#[derive(Default)]
struct Queue {
    order: Vec<Arc<ProxyConnection>>,
    known: HashSet<String>,
}

impl Queue {
    fn add(&mut self, connection: &Arc<ProxyConnection>) {
        if self.known.insert(connection.id().to_owned()) {
            self.order.push(connection.clone());
        }
    }

    fn take(&mut self) -> Vec<Arc<ProxyConnection>> {
        self.known.clear();
        std::mem::take(&mut self.order)
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Next thing to do.
enum Next {
    Write(Vec<Arc<ProxyConnection>>),
    Wait(Instant),
    Done,
}

/// A batch, and who is in it.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    taken: Vec<(Arc<ProxyConnection>, WrittenFacts)>,
}

impl Writer {
    /// `interval` is how long it may take until the store knows how a proxy fares.
    pub fn new(store: Arc<dyn Store>, interval: Duration, shutdown: Shutdown) -> Arc<Writer> {
        let pending = Mutex::default();
        let urgent = Notify::new();
        Arc::new(Writer { store, interval, shutdown, pending, urgent })
    }

    /// Writes what is known about the connection with the next batch.
    pub fn soon(self: &Arc<Self>, connection: &Arc<ProxyConnection>) {
        let mut pending = self.pending();
        pending.patient.add(connection);
        pending.due.get_or_insert_with(|| Instant::now() + self.interval);
        self.run(pending);
    }

    /// As [`Writer::soon`], without waiting for others.
    pub fn at_once(self: &Arc<Self>, connection: &Arc<ProxyConnection>) {
        let mut pending = self.pending();
        pending.urgent.add(connection);
        self.urgent.notify_one();
        self.run(pending);
    }

    /// As [`Writer::at_once`], and waits until it is done or cannot be.
    pub async fn now(self: &Arc<Self>, connection: &Arc<ProxyConnection>) {
        self.at_once(connection);
        connection.settled().await;
    }

    fn run(self: &Arc<Self>, mut pending: MutexGuard<'_, PendingWrites>) {
        if std::mem::replace(&mut pending.running, true) {
            return;
        }
        let writer = self.clone();
        self.shutdown.spawn(async move {
            loop {
                match writer.next() {
                    Next::Write(connections) => writer.write_all(connections).await,
                    Next::Wait(due) => tokio::select! {
                        () = tokio::time::sleep_until(due) => {}
                        () = writer.urgent.notified() => {}
                        () = writer.shutdown.begun() => {}
                    },
                    Next::Done => return,
                }
            }
        });
    }

    fn next(&self) -> Next {
        let mut pending = self.pending();
        if !pending.urgent.is_empty() {
            return Next::Write(pending.urgent.take());
        }
        match pending.due {
            Some(due) if due > Instant::now() && !self.shutdown.token().is_cancelled() => Next::Wait(due),
            Some(_) => {
                pending.due = None;
                Next::Write(pending.patient.take())
            }
            None => {
                pending.running = false;
                Next::Done
            }
        }
    }

    async fn write_all(self: &Arc<Self>, connections: Vec<Arc<ProxyConnection>>) {
        for connections in connections.chunks(BATCH) {
            let Err(error) = self.write(connections).await else { continue };
            let proxies = connections.len();
            if self.shutdown.token().is_cancelled() {
                tracing::warn!(%error, proxies, "cannot write insights before the shutdown");
                continue;
            }
            tracing::warn!(%error, proxies, "cannot write insights; retrying");
            let mut pending = self.pending();
            connections.iter().for_each(|connection| pending.patient.add(connection));
            pending.due = Some(Instant::now() + PAUSE.max(self.interval));
        }
    }

    /// Writes what is known about these connections, whatever others write meanwhile. Callers that
    /// wait for that are woken, also when it cannot be done.
    async fn write(&self, connections: &[Arc<ProxyConnection>]) -> Result<(), Error> {
        let mut taken = Vec::new();
        let mut is_newest = false;
        let written = store::update_with::<Error>(self.store.as_ref(), |snapshot| {
            // There is nothing to write about a proxy without a Dataplane.
            let lacks = |connection: &&Arc<ProxyConnection>| snapshot.get(connection.dataplane()).is_none();
            let without = connections.iter().filter(|connection| is_newest && lacks(connection));
            let without: HashSet<Key> = without.map(|connection| connection.insight().clone()).collect();
            is_newest = true;
            let batch = batch(snapshot, connections, &without);
            taken = batch.taken;
            Ok(batch.writes)
        });
        let written = written.await;
        if taken.is_empty() {
            // The store could not be read: it is not known what is on record.
            taken = unknown(connections);
        }
        match &written {
            Ok(_) => taken.into_iter().for_each(|(connection, facts)| connection.recorded(facts)),
            Err(_) => taken.into_iter().for_each(|(connection, facts)| connection.settle(facts)),
        }
        written.map(drop)
    }

    fn pending(&self) -> MutexGuard<'_, PendingWrites> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes after which the records say what is known; records `without` are left alone.
fn batch(snapshot: &Snapshot, connections: &[Arc<ProxyConnection>], without: &HashSet<Key>) -> Batch {
    let mut batch = Batch::default();
    let mut records: BTreeMap<&Key, (&Key, Option<DataplaneInsight>)> = BTreeMap::new();
    for connection in connections {
        let (_, insight) = records.entry(connection.insight()).or_insert_with(|| {
            let stored = snapshot.get(connection.insight());
            (connection.dataplane(), stored.and_then(|stored| kinds::read(&stored.spec)))
        });
        // Described all the same, so that no caller waits for it; what is left alone is not on record.
        let mut aside = None;
        let left_alone = without.contains(connection.insight());
        let taken = connection.describe(if left_alone { &mut aside } else { insight });
        batch.taken.push((connection.clone(), if left_alone { taken.not_recorded() } else { taken }));
    }
    let written = records.into_iter().filter_map(|(key, (dataplane, insight))| {
        write(snapshot, key, dataplane, kinds::spec(key.kind, insight?))
    });
    batch.writes.extend(written);
    batch
}

/// All connections, for when it is not known what is on record.
fn unknown(connections: &[Arc<ProxyConnection>]) -> Vec<(Arc<ProxyConnection>, WrittenFacts)> {
    connections.iter().map(|connection| (connection.clone(), connection.describe(&mut None))).collect()
}
