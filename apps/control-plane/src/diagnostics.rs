//! Health and metrics of the control plane, for load balancers and Prometheus.

mod metered;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
use insights::BASED_ON_KUMA;
use prometheus_client::metrics::gauge::Gauge;
use runtime::{
    Shutdown,
    metrics::{self, Metrics},
    process,
};
use store::Store;
use tokio::{sync::Mutex, time::Instant};

use crate::config::{Config, setting::Setting};

pub use metered::metered;

/// Time for which an answer of the store counts. A probe costs a write, and anyone may ask.
const FRESH: Duration = Duration::from_secs(1);
/// Time limit for the store to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// `/healthy`: the process answers. `/ready`: it can serve and write, and is not about to end. `/ready/read`: it can
/// serve, maybe what is outdated. `/metrics`.
pub fn router(store: Arc<dyn Store>, metrics: Metrics, shutdown: &Shutdown) -> Router {
    let probes = Arc::new(Probes::new(store, &metrics));
    let asked = probes.clone();
    let token = shutdown.token().clone();
    let ready = move || async move {
        if token.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
        }
        match asked.ask().await {
            Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    };
    let reads = probes.clone();
    let token = shutdown.token().clone();
    let ready_to_read = move || async move {
        if token.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
        }
        match reads.can_read() {
            Ok(text) => (StatusCode::OK, text),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    };
    let exposition = move || async move {
        // A gauge of whether the store can be written is only true if it was asked.
        let _ = probes.ask().await;
        ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.encode())
    };
    Router::new()
        .route("/healthy", get(|| async { "healthy\n" }))
        .route("/ready", get(ready))
        .route("/ready/read", get(ready_to_read))
        .route("/metrics", get(exposition))
}

/// Registers what is true of the whole process: which program it is, and what it uses of its machine.
pub fn register(metrics: &Metrics, config: &Config) {
    let text = |setting: &dyn Setting| setting.to_json().as_str().unwrap_or_default().to_owned();
    process::register(metrics);
    let version = version::VERSION.to_owned();
    let labels = vec![
        ("version", version.clone()),
        ("commit", version::COMMIT.to_owned()),
        ("based_on_kuma", BASED_ON_KUMA.to_owned()),
    ];
    metrics.register_info("build", "Version of kuma-rs and the commit it was built from", labels);
    // Named as in Kuma.
    let labels = vec![
        ("product", "kuma-rs".to_owned()),
        ("version", version),
        ("mode", text(&config.mode)),
        ("zone", config.synchronisation.multizone.zone.name.clone()),
        ("store", text(&config.store.kind)),
    ];
    metrics.register_info("cp", "Version, mode, zone and store of this control plane", labels);
}

/// Asks the store whether writes are durable: one question at a time, whatever the number of askers.
struct Probes {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
    writable: Gauge,
}

impl Probes {
    fn new(store: Arc<dyn Store>, metrics: &Metrics) -> Probes {
        let help = "Writes to the store: 1 if it could make one durable when last asked, 0 if not";
        let writable = metrics.register("store_writable", help, Gauge::default());
        Probes { store, last: Mutex::default(), writable }
    }

    async fn ask(&self) -> Result<(), String> {
        // What is known without asking.
        if let Some(outage) = self.store.outage() {
            self.writable.set(0);
            return Err(format!("the store is unavailable since {}: {}", outage.since, outage.reason));
        }
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            self.writable.set(i64::from(answer.is_ok()));
            return answer.clone();
        }
        let answer = self.probe().await;
        self.writable.set(i64::from(answer.is_ok()));
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn probe(&self) -> Result<(), String> {
        match tokio::time::timeout(PATIENCE, self.store.probe()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the store has not written anything for {PATIENCE:?}: its disk may hang")),
        }
    }

    fn can_read(&self) -> Result<String, String> {
        self.store.snapshot().map_err(|error| error.to_string())?;
        Ok(match self.store.outage() {
            Some(outage) => format!("ready to read, stale since {}: {}\n", outage.since, outage.reason),
            None => "ready to read\n".to_owned(),
        })
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
        let probes = Probes::new(store.clone(), &Metrics::default());
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
        let store = Arc::new(Sick { hangs: true, ..Sick::default() });
        let probes = Probes::new(store, &Metrics::default());
        assert!(probes.ask().await.unwrap_err().contains("its disk may hang"));
    }
}
