//! The store in memory: everything is lost when the process ends.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use async_trait::async_trait;

use crate::{
    Changes, Committed, Error, Feed, Snapshot, Store, Write,
    staging::{Owners, Staging},
};

/// Keeps resources in memory only.
#[derive(Debug)]
pub struct Memory {
    snapshot: ArcSwap<Snapshot>,
    feed: Feed,
    /// Held by the one writer at a time.
    owners: Mutex<Owners>,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { snapshot: ArcSwap::default(), feed: Feed::new(0), owners: Mutex::default() }
    }
}

#[async_trait]
impl Store for Memory {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        Ok(self.snapshot.load_full())
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.make(|staging| staging.stage(batch)).map(Committed::from)
    }

    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        let outcomes = self.make(|staging| staging.stage_each(writes));
        outcomes.into_iter().map(|outcome| outcome.map(Committed::from)).collect()
    }

    fn changes(&self) -> Changes {
        self.feed.subscribe()
    }
}

impl Memory {
    /// Shows what `stage` works out, if that is anything.
    fn make<T>(&self, stage: impl FnOnce(&mut Staging<'_>) -> T) -> T {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot.load_full();
        let mut staging = Staging::new(&before, &owners);
        let outcome = stage(&mut staging);
        let made = staging.finish();
        if made.revision > before.revision() {
            owners.apply(&before, &made);
            self.snapshot.store(Arc::new(before.with(made.revision, &made.changed)));
            self.feed.publish(made.revision, made.changed.iter().map(|(k, r)| (k.clone(), r.is_some())));
        }
        outcome
    }
}
