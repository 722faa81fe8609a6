//! Counts of all reconcilers, by their names.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, family::Family, histogram::Histogram},
};

use crate::Moment;

/// Most looks take less than a millisecond; the others wait for a store.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reconciler: &'static str,
}

/// The metrics of all reconcilers of a process.
#[derive(Debug, Clone)]
pub struct Metrics {
    runs: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    durations: Family<Labels, Histogram>,
    queues: Queues,
}

/// The metrics of one reconciler.
#[derive(Debug)]
pub(crate) struct ReconcilerMetrics {
    runs: Counter,
    errors: Counter,
    durations: Histogram,
    queue: Arc<Mutex<Queue>>,
}

/// The units of a reconciler that wait.
#[derive(Debug, Default)]
struct Queue {
    waiting: usize,
    oldest: Option<Instant>,
}

/// The queues of all reconcilers; two of one name count together.
#[derive(Debug, Clone, Default)]
struct Queues(Arc<Mutex<Vec<NamedQueue>>>);

#[derive(Debug)]
struct NamedQueue {
    reconciler: &'static str,
    queue: Arc<Mutex<Queue>>,
}

impl Metrics {
    pub fn register(metrics: &runtime::metrics::Metrics) -> Metrics {
        let queues = Queues::default();
        let help = "Units, such as meshes, that wait for a reconciler";
        metrics.register("reconciler_backlog", help, Backlog(queues.clone()));
        let help = "Age of the oldest change that a reconciler has not handled; 0 without any";
        metrics.register("reconciler_lag_seconds", help, QueueLag(queues.clone()));
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        Metrics {
            runs: metrics.register("reconciler_runs", "Reconciliations of units", Family::default()),
            errors: metrics.register(
                "reconciler_errors",
                "Failed reconciliations, which are retried; conflicts with another writer do not count",
                Family::default(),
            ),
            durations: metrics.register(
                "reconciler_duration_seconds",
                "Duration of the reconciliation of a unit, writes included",
                durations,
            ),
            queues,
        }
    }

    pub(crate) fn of(&self, reconciler: &'static str) -> ReconcilerMetrics {
        let labels = Labels { reconciler };
        let queue = Arc::<Mutex<Queue>>::default();
        lock(&self.queues.0).push(NamedQueue { reconciler, queue: queue.clone() });
        ReconcilerMetrics {
            runs: self.runs.get_or_create(&labels).clone(),
            // A first failure is an increase only where there was a value before.
            errors: self.errors.get_or_create(&labels).clone(),
            durations: self.durations.get_or_create(&labels).clone(),
            queue,
        }
    }
}

impl ReconcilerMetrics {
    pub(crate) fn ran(&self, took: Duration) {
        self.runs.inc();
        self.durations.observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.errors.inc();
    }

    pub(crate) fn waiting(&self, waiting: usize, oldest: Option<Instant>) {
        *lock(&self.queue) = Queue { waiting, oldest };
    }
}

impl Queues {
    /// The value of a gauge for each name.
    fn encode(
        &self,
        mut encoder: MetricEncoder<'_>,
        value: fn(&Queue) -> f64,
        add: fn(f64, f64) -> f64,
    ) -> Result<(), fmt::Error> {
        let mut values: BTreeMap<&'static str, f64> = BTreeMap::new();
        for NamedQueue { reconciler, queue } in lock(&self.0).iter() {
            let known = values.entry(reconciler).or_default();
            *known = add(*known, value(&lock(queue)));
        }
        for (reconciler, value) in values {
            encoder.encode_family(&Labels { reconciler })?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
struct Backlog(Queues);

impl EncodeMetric for Backlog {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let waiting = |queue: &Queue| f64::from(u32::try_from(queue.waiting).unwrap_or(u32::MAX));
        self.0.encode(encoder, waiting, |one, other| one + other)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// Computed when it is read: a reconciler that hangs notes nothing.
#[derive(Debug, Clone)]
struct QueueLag(Queues);

impl EncodeMetric for QueueLag {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let age = |queue: &Queue| {
            let now = Moment::now().instant;
            queue.oldest.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64())
        };
        self.0.encode(encoder, age, f64::max)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
