//! Starts reconcilers, each in a task that ends with the process.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use runtime::Shutdown;
use store::Store;
use tokio::sync::Notify;

use crate::{Driver, Metrics, Moment, Reconciler};

/// Starts reconcilers on one store.
#[derive(Clone)]
pub struct Runner {
    store: Arc<dyn Store>,
    metrics: Metrics,
    shutdown: Shutdown,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl Runner {
    pub fn new(store: Arc<dyn Store>, metrics: Metrics, shutdown: &Shutdown) -> Runner {
        Runner { store, metrics, shutdown: shutdown.clone() }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts to follow. What is stored by now is looked at first, and nothing that is stored later is missed.
    pub fn run<R: Reconciler>(&self, reconciler: R) {
        let mut driver = Driver::new(reconciler, self.store.clone(), &self.metrics, Moment::now);
        let ending = self.shutdown.clone();
        self.shutdown.spawn(async move {
            if R::FINISHES {
                driver.run_until(ending.begun()).await;
                return driver.finish().await;
            }
            tokio::select! {
                () = driver.run_until(std::future::pending()) => {}
                () = ending.begun() => {}
            }
        });
    }
}

/// Tells a reconciler that something other than the store has changed. Clones wake the same one.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<Called>);

#[derive(Debug, Default)]
struct Called {
    called: AtomicBool,
    notify: Notify,
}

impl Wake {
    /// Asks for a look at what has come. Calls before that look are one.
    pub fn wake(&self) {
        self.0.called.store(true, Ordering::Release);
        self.0.notify.notify_one();
    }

    pub(crate) fn take(&self) -> bool {
        self.0.called.swap(false, Ordering::AcqRel)
    }

    /// Waits for that.
    pub async fn called(&self) {
        self.0.notify.notified().await;
    }
}
