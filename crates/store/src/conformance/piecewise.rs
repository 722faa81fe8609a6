//! A store without transactions across resources, as Kubernetes is one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;

use crate::{Changes, Committed, Error, Memory, Snapshot, Store, Write};

/// Writes one resource after the other and stops where it fails: what came before stays written.
#[derive(Debug, Default)]
pub struct Piecewise {
    inner: Memory,
    /// Number of writes still to come before one that fails; 0 when none is to.
    until_failure: AtomicUsize,
}

impl Piecewise {
    /// The `n`th write from now fails, as when the store goes away; those after it work again.
    pub fn fail_at(&self, n: usize) {
        self.until_failure.store(n, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for Piecewise {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.inner.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        let mut all = Committed { at: self.latest().await?, changed: Vec::new() };
        for write in batch {
            let left = self.until_failure.load(Ordering::Relaxed);
            self.until_failure.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 1 {
                return Err(Error::Unavailable("it went away".to_owned()));
            }
            let Committed { at, changed } = self.inner.write(vec![write]).await?;
            all.at = at;
            all.changed.extend(changed);
        }
        Ok(all)
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}
