//! Metrics for collectors of OpenTelemetry: the agent sends them to a socket at which Envoy listens, and
//! Envoy sends them on.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use resources::duration::GoDuration;
use runtime::Shutdown;
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};

use crate::{
    grpc,
    metrics::{View, otlp},
    readiness::ProxyHealth,
};

/// Shortest interval, whatever the control plane says.
const SHORTEST: Duration = Duration::from_secs(1);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// Time limit for one request to a collector.
const PATIENCE: Duration = Duration::from_secs(10);
const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// A collector as the control plane describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collector {
    name: String,
    socket: String,
    interval: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    backend: String,
}

/// State that all pushing shares.
#[derive(Clone)]
struct Pushing {
    health: ProxyHealth,
    /// `<mesh>.<name>`
    instance: Arc<str>,
    pushed: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
}

/// Follows what MeshMetrics say until the shutdown begins. Applications without an address are at `home`.
pub fn follow(
    health: &ProxyHealth,
    documents: mpsc::Receiver<Option<Bytes>>,
    instance: String,
    home: String,
    shutdown: &Shutdown,
) {
    let metrics = health.metrics();
    let pushing = Pushing {
        health: health.clone(),
        instance: instance.into(),
        pushed: metrics.register(
            "kuma_dp_metrics_pushes",
            "Requests with metrics that a collector of OpenTelemetry accepted",
            Family::default(),
        ),
        failed: metrics.register(
            "kuma_dp_metrics_push_failures",
            "Requests with metrics that could not be sent to a collector of OpenTelemetry",
            Family::default(),
        ),
    };
    let ends = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = ends.begun() => {}
            () = pushing.follow(documents, home) => {}
        }
    });
}

impl Pushing {
    async fn follow(&self, mut documents: mpsc::Receiver<Option<Bytes>>, home: String) {
        // Those of the last document; dropping them ends them.
        let mut pushers: JoinSet<()> = JoinSet::new();
        while let Some(document) = documents.recv().await {
            // Without a document nothing is to be sent any more, or Envoy is away, through which it is sent.
            let document = document.and_then(|document| serde_json::from_slice(&document).ok());
            pushers.abort_all();
            pushers = document.map_or_else(JoinSet::new, |document| self.start(&document, &home));
        }
    }

    fn start(&self, document: &Value, home: &str) -> JoinSet<()> {
        let mut pushers = JoinSet::new();
        let view = Arc::new(View::of_mesh_metric(document, home));
        for collector in collectors(document) {
            tracing::info!(
                backend = collector.name,
                interval_ms = collector.interval.as_millis(),
                "sending metrics to an OpenTelemetry collector"
            );
            let pushing = self.clone();
            let view = view.clone();
            pushers.spawn(async move { pushing.push_to(&collector, &view).await });
        }
        pushers
    }

    async fn push_to(&self, collector: &Collector, view: &View) {
        let labels = Labels { backend: collector.name.clone() };
        let started = otlp::now();
        let mut ticks = tokio::time::interval(collector.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut said = false;
        loop {
            ticks.tick().await;
            let families = self.health.gather(view).await;
            let origin = otlp::Origin { instance: &self.instance, labels: &view.labels, started };
            match send(collector, otlp::requests(families, &origin)).await {
                Ok(()) => {
                    self.pushed.get_or_create(&labels).inc();
                    said = false;
                }
                Err(error) => {
                    self.failed.get_or_create(&labels).inc();
                    // A collector may be away for hours; once is enough.
                    if !said {
                        let backend = &collector.name;
                        tracing::warn!(backend, error = format!("{error:#}"), "cannot send metrics");
                    }
                    said = true;
                }
            }
        }
    }
}

async fn send(collector: &Collector, requests: Vec<Vec<u8>>) -> anyhow::Result<()> {
    for request in requests {
        grpc::call(&collector.socket, EXPORT, &request, PATIENCE).await?;
    }
    Ok(())
}

fn collectors(document: &Value) -> Vec<Collector> {
    let backends = document["observability"]["metrics"]["backends"].as_array().into_iter().flatten();
    let read = |backend: &Value| {
        let to = backend.get("openTelemetry")?;
        let interval = to["refreshInterval"].as_str().and_then(|text| text.parse::<GoDuration>().ok());
        let interval = interval.and_then(|every| u64::try_from(every.nanoseconds()).ok());
        Some(Collector {
            name: backend["name"].as_str().unwrap_or_default().to_owned(),
            socket: to["endpoint"].as_str()?.to_owned(),
            interval: interval.map_or(DEFAULT_INTERVAL, Duration::from_nanos).max(SHORTEST),
        })
    };
    backends.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn collectors_are_read_and_no_interval_is_too_short() {
        let backend = |to: Value| json!({"type": "OpenTelemetry", "name": "otel", "openTelemetry": to});
        let document = json!({"observability": {"metrics": {"backends": [
            {"type": "Prometheus", "name": null},
            backend(json!({"endpoint": "/w/a.sock", "refreshInterval": "1m30s"})),
            backend(json!({"endpoint": "/w/b.sock", "refreshInterval": "1ms"})),
            backend(json!({"endpoint": "/w/c.sock"})),
            backend(json!({})),
        ]}}});
        let of = |socket: &str, seconds| Collector {
            name: "otel".to_owned(),
            socket: socket.to_owned(),
            interval: Duration::from_secs(seconds),
        };
        assert_eq!(collectors(&document), [of("/w/a.sock", 90), of("/w/b.sock", 1), of("/w/c.sock", 60)]);
    }
}
