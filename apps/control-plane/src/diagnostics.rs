//! How the control plane is doing, for load balancers and Prometheus.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
use runtime::{Shutdown, metrics};
use store::Store;
use tokio::{sync::Mutex, time::Instant};

/// How long an answer of the store counts. A probe costs a write, and anyone may ask.
const FRESH: Duration = Duration::from_secs(1);
/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// `/healthy`: the process answers. `/ready`: it can serve and write, and is not about to end. `/metrics`.
pub fn router(store: Arc<dyn Store>, metrics: metrics::Metrics, shutdown: &Shutdown) -> Router {
    let token = shutdown.token().clone();
    let probes = Arc::new(Probes { store, last: Mutex::default() });
    let ready = move || async move {
        if token.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
        }
        match probes.ask().await {
            Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    };
    let exposition =
        move || async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.encode()) };
    Router::new()
        .route("/healthy", get(|| async { "healthy\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(exposition))
}

/// Asks the store whether writes are durable: one question at a time, whatever the number of askers.
struct Probes {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Probes {
    async fn ask(&self) -> Result<(), String> {
        // What is known without asking.
        self.store.snapshot().map_err(|error| error.to_string())?;
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = match tokio::time::timeout(PATIENCE, self.store.probe()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the store has not written anything for {PATIENCE:?}: its disk may hang")),
        };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use store::{Changes, Committed, Error, Memory, Snapshot, Write};

    use super::*;

    /// A store whose disk is full, or hangs.
    #[derive(Default)]
    struct Sick {
        inner: Memory,
        hangs: bool,
        probed: AtomicUsize,
    }

    #[async_trait]
    impl Store for Sick {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            self.inner.snapshot()
        }
        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            self.inner.write(batch).await
        }
        fn changes(&self) -> Changes {
            self.inner.changes()
        }
        async fn probe(&self) -> Result<(), Error> {
            self.probed.fetch_add(1, Ordering::Relaxed);
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Err(Error::Unavailable("the disk is full".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_says_what_is_wrong_with_the_disk_and_asks_it_once_in_a_while() {
        let store = Arc::new(Sick::default());
        let probes = Probes { store: store.clone(), last: Mutex::default() };
        for _ in 0..10 {
            assert_eq!(probes.ask().await.unwrap_err(), "the store is unavailable: the disk is full");
        }
        assert_eq!(store.probed.load(Ordering::Relaxed), 1);
        tokio::time::advance(FRESH).await;
        assert!(probes.ask().await.is_err());
        assert_eq!(store.probed.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_is_a_reason_and_holds_up_no_answer() {
        let probes =
            Probes { store: Arc::new(Sick { hangs: true, ..Sick::default() }), last: Mutex::default() };
        assert!(probes.ask().await.unwrap_err().contains("its disk may hang"));
    }
}
