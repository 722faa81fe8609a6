//! One look at a unit: the time, a snapshot, and the means to write.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use store::{Committed, Error, Snapshot, Store, Write};

/// The view of one look at a unit.
pub struct Pass {
    pub store: Arc<dyn Store>,
    /// Everything that is stored, as of the beginning.
    pub snapshot: Arc<Snapshot>,
    /// The wall clock.
    pub now: Timestamp,
    /// The clock that only goes forward.
    pub instant: Instant,
}

/// Reason that a unit was not brought in line.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileFailure {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("{0}")]
    Other(String),
}

impl ReconcileFailure {
    /// Another writer came first: the same on a newer snapshot may work.
    pub fn is_outdated(&self) -> bool {
        match self {
            ReconcileFailure::Store(error) => error.is_outdated(),
            ReconcileFailure::Other(_) => false,
        }
    }
}

impl Pass {
    /// Makes writes that stand for themselves in one batch, or each on its own when one of them is outdated: what
    /// another writer changed is on its way here, and leads to another look.
    pub async fn write_all(&self, writes: Vec<Write>) -> Result<(), ReconcileFailure> {
        if writes.is_empty() {
            return Ok(());
        }
        match self.store.write(writes.clone()).await {
            Err(error) if error.is_outdated() => {
                let outcomes = self.store.write_each(writes).await;
                let refused = outcomes.into_iter().filter_map(Result::err);
                refused
                    .into_iter()
                    .find(|error| !error.is_outdated())
                    .map_or(Ok(()), |error| Err(error.into()))
            }
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Makes one write.
    pub async fn write(&self, write: Write) -> Result<Committed, ReconcileFailure> {
        Ok(self.store.write(vec![write]).await?)
    }

    /// Computes something that takes a processor for a while, such as a key, in a thread of its own.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReconcileFailure> {
        tokio::task::spawn_blocking(work).await.map_err(|error| ReconcileFailure::Other(error.to_string()))
    }
}
