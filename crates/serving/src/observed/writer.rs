//! Writes what was seen into the store, mesh by mesh.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Wake};
use resources::Kind;
use store::{Committed, Dirty, Error, Snapshot, Write};

use super::{Observations, known, record};

/// Longest times for which the store may lack what was reported; the first report of a mesh is written at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Edges that were never seen before.
    pub edges: Duration,
    /// Counts of edges that were seen before.
    pub counts: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { edges: Duration::from_secs(10), counts: Duration::from_secs(60) }
    }
}

/// Writes what is due, and when the process ends, what is left.
pub(super) struct Writer {
    observations: Arc<Observations>,
    ending: bool,
}

impl Writer {
    pub(super) fn of(observations: Arc<Observations>) -> Writer {
        Writer { observations, ending: false }
    }

    /// Notes which writes were made; returns why one was not.
    fn settle(&self, mesh: &str, shards: &[u8], outcomes: Vec<Result<Committed, Error>>) -> Option<Error> {
        let mut failure: Option<Error> = None;
        let mut meshes = self.observations.meshes();
        let mut ledger = meshes.get_mut(mesh);
        for (number, outcome) in shards.iter().zip(outcomes) {
            let version = match outcome {
                Ok(committed) => committed.get(&record::key(mesh, *number)).map(|stored| stored.version),
                Err(error) => {
                    if failure.as_ref().is_none_or(Error::is_outdated) {
                        failure = Some(error);
                    }
                    None
                }
            };
            if let Some(ledger) = &mut ledger {
                ledger.settle(*number, version);
            }
        }
        if let Some(ledger) = ledger.filter(|_| failure.as_ref().is_some_and(|error| !error.is_outdated())) {
            ledger.failed();
        }
        failure
    }

    /// Time that is left until a mesh is to be written; `None` while there is nothing to write.
    fn left_of(&self, mesh: &str, pass: &Pass) -> Option<Duration> {
        let meshes = self.observations.meshes();
        let due = meshes.get(mesh)?.due(self.observations.pace, pass.instant)?;
        Some(due.saturating_duration_since(pass.instant))
    }
}

impl Reconciler for Writer {
    const NAME: &'static str = "observed_calls";
    const WORK: &'static str = "write observed calls";
    const FOLLOWS: &'static [Kind] = &[];
    const FINISHES: bool = true;
    type Unit = Arc<str>;

    fn apply(&mut self, _snapshot: &Snapshot, _dirty: &Dirty) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn wake(&self) -> Wake {
        self.observations.wake.clone()
    }

    fn woken(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.observations.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        match self.left_of(mesh, pass) {
            None => return Ok(Next::on_change()),
            Some(left) if !left.is_zero() && !self.ending => return Ok(Next::on_change().within(Some(left))),
            Some(_) => {}
        }
        let writes = {
            let mut meshes = self.observations.meshes();
            let ledger = known(&mut meshes, &pass.snapshot, mesh);
            ledger.map(|ledger| ledger.take(&pass.snapshot, pass.now, pass.instant)).unwrap_or_default()
        };
        let (numbers, writes): (Vec<u8>, Vec<Write>) = writes.into_iter().unzip();
        let outcomes = pass.store.write_each(writes).await;
        match self.settle(mesh, &numbers, outcomes) {
            // The next attempt adds to what another control plane wrote.
            Some(error) => Err(error.into()),
            None => Ok(Next::on_change().within(self.left_of(mesh, pass))),
        }
    }

    fn left(&mut self) -> BTreeSet<Arc<str>> {
        self.ending = true;
        let meshes = self.observations.meshes();
        let left = meshes.iter().filter(|(_, ledger)| ledger.has_unwritten());
        left.map(|(mesh, _)| mesh.clone()).collect()
    }
}
