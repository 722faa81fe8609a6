//! Writes what was seen into the store, mesh by mesh.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use runtime::Shutdown;
use store::{Committed, Error, Write};
use tokio::time::Instant;

use super::{Observations, known, record};
use crate::turns;

/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the write of another control plane may be on its way here.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How often a control plane that ends tries to write what is left.
const ATTEMPTS: usize = 5;

/// How long the store may lack what was reported; the first report of a mesh is written at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Edges that were never seen before.
    pub edges: Duration,
    /// How often known ones were seen.
    pub counts: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { edges: Duration::from_secs(10), counts: Duration::from_secs(60) }
    }
}

impl Observations {
    /// Writes what is due, until the shutdown begins. A write that has begun is waited for.
    pub(super) async fn keep(&self, shutdown: &Shutdown) {
        loop {
            let next = self.next();
            let mesh = tokio::select! {
                // It may be due earlier now.
                () = self.dirty.notified() => continue,
                () = shutdown.begun() => return,
                mesh = turns::at(next) => mesh,
            };
            if !self.write(&mesh).await {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn next(&self) -> Option<(Instant, Arc<str>)> {
        let meshes = self.meshes();
        meshes.iter().filter_map(|(mesh, ledger)| Some((ledger.due(self.pace)?, mesh.clone()))).min()
    }

    /// Writes what is left of every mesh.
    pub(super) async fn write_all(&self) {
        for _ in 0..ATTEMPTS {
            let left: Vec<Arc<str>> = {
                let meshes = self.meshes();
                let left = meshes.iter().filter(|(_, ledger)| ledger.due(self.pace).is_some());
                left.map(|(mesh, _)| mesh.clone()).collect()
            };
            for mesh in &left {
                self.write(mesh).await;
            }
            if left.is_empty() {
                return;
            }
        }
    }

    /// Says whether the store can be written.
    async fn write(&self, mesh: &str) -> bool {
        let Ok(snapshot) = self.store.snapshot() else { return false };
        let writes = match known(&mut self.meshes(), &snapshot, mesh) {
            Some(ledger) => ledger.take(&snapshot, Timestamp::now()),
            None => return true,
        };
        let (numbers, writes): (Vec<u8>, Vec<Write>) = writes.into_iter().unzip();
        let outcomes = self.store.write_each(writes).await;
        let (failure, outdated) = self.settle(mesh, &numbers, outcomes);
        if outdated {
            // The next attempt adds to what another control plane wrote.
            let _ = self.store.caught_up(CATCH_UP).await;
        }
        if let Some(error) = &failure {
            tracing::warn!(mesh, %error, "cannot write observed calls; retrying");
        }
        failure.is_none()
    }

    /// Notes which writes were made; returns why one could not be, and whether one came too late.
    fn settle(
        &self,
        mesh: &str,
        shards: &[u8],
        outcomes: Vec<Result<Committed, Error>>,
    ) -> (Option<Error>, bool) {
        let (mut failure, mut outdated) = (None, false);
        let mut meshes = self.meshes();
        for (number, outcome) in shards.iter().zip(outcomes) {
            let version = match outcome {
                Ok(committed) => committed.get(&record::key(mesh, *number)).map(|stored| stored.version),
                Err(error) => {
                    match error.is_outdated() {
                        true => outdated = true,
                        false => failure = Some(error),
                    }
                    None
                }
            };
            if let Some(ledger) = meshes.get_mut(mesh) {
                ledger.settle(*number, version);
            }
        }
        (failure, outdated)
    }
}
