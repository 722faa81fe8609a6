//! Measures a store: how long its writes take, and which fail.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, family::Family, histogram::Histogram},
};
use runtime::metrics::Metrics;
use store::{Bookmark, Changes, Committed, Error, Outage, Snapshot, Store, Write};
use tokio::time::Instant;

/// The alert `KumaStoreSlow` compares with 1.
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
    resource_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    operation: &'static str,
    reason: &'static str,
}

/// A store whose writes are measured.
struct MeteredStore {
    inner: Arc<dyn Store>,
    durations: Family<Operation, Histogram>,
    errors: Family<Failure, Counter>,
}

/// The same store, measured.
pub fn metered(inner: Arc<dyn Store>, metrics: &Metrics) -> Arc<dyn Store> {
    let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
    // Named as in Kuma.
    let help = "Duration of writes to the store in seconds, by operation and type of resource";
    let durations = metrics.register("store", help, durations);
    let help = "Writes that the store refused, by operation and reason";
    let errors: Family<Failure, Counter> = metrics.register("store_errors", help, Family::default());
    // A first failure is an increase only where there was a value before.
    for operation in ["create", "update", "delete"] {
        for reason in ["unavailable", "damaged"] {
            drop(errors.get_or_create(&Failure { operation, reason }));
        }
    }
    let help =
        "Reads of the store: 1 while answers may be outdated because it cannot be reached, 0 otherwise";
    metrics.register("store_stale", help, Stale(inner.clone()));
    Arc::new(MeteredStore { inner, durations, errors })
}

impl MeteredStore {
    fn observe(&self, first: Option<Operation>, took: Duration) {
        if let Some(labels) = first {
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    fn count(&self, operation: &'static str, error: &Error) {
        self.errors.get_or_create(&Failure { operation, reason: reason(error) }).inc();
    }
}

/// Operation that a write counts as.
fn operation(write: &Write) -> Operation {
    let operation = match write {
        Write::Create(_) | Write::Restore(_) => "create",
        Write::Update { .. } | Write::Status { .. } => "update",
        Write::Delete { .. } | Write::DeleteUnlessOwner { .. } => "delete",
    };
    Operation { operation, resource_type: write.key().kind.name() }
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::NotFound(_) => "not_found",
        Error::AlreadyExists(_) => "already_exists",
        Error::Conflict { .. } => "conflict",
        Error::InUse { .. } => "in_use",
        Error::OwnerMissing { .. } => "owner_missing",
        Error::Unavailable(_) => "unavailable",
        Error::Damaged(_) => "damaged",
    }
}

#[async_trait]
impl Store for MeteredStore {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.inner.snapshot()
    }

    fn outage(&self) -> Option<Outage> {
        self.inner.outage()
    }

    /// A batch is one write to the disk or the database, so it is observed once, as its first part.
    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        let first = batch.first().map(operation);
        let began = Instant::now();
        let outcome = self.inner.write(batch).await;
        let name = first.as_ref().map_or("create", |first| first.operation);
        self.observe(first, began.elapsed());
        outcome.inspect_err(|error| self.count(name, error))
    }

    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        let first = writes.first().map(operation);
        let began = Instant::now();
        let operations: Vec<&'static str> = writes.iter().map(|write| operation(write).operation).collect();
        let outcomes = self.inner.write_each(writes).await;
        self.observe(first, began.elapsed());
        for (operation, outcome) in operations.into_iter().zip(&outcomes) {
            if let Err(error) = outcome {
                self.count(operation, error);
            }
        }
        outcomes
    }

    async fn probe(&self) -> Result<(), Error> {
        self.inner.probe().await
    }

    async fn ended(&self) -> Error {
        self.inner.ended().await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }

    async fn latest(&self) -> Result<Bookmark, Error> {
        self.inner.latest().await
    }

    async fn reached(&self, bookmark: &Bookmark, patience: Duration) -> Result<(), Error> {
        self.inner.reached(bookmark, patience).await
    }

    async fn caught_up(&self, patience: Duration) -> Result<Arc<Snapshot>, Error> {
        self.inner.caught_up(patience).await
    }
}

/// Looked up when it is read.
#[derive(Clone)]
struct Stale(Arc<dyn Store>);

impl fmt::Debug for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("store_stale")
    }
}

impl EncodeMetric for Stale {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&u32::from(self.0.outage().is_some()))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
