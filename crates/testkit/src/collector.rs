//! A collector of telemetry, as far as is needed to see what arrives: OpenTelemetry over gRPC and HTTP, Zipkin and
//! Datadog for spans, OpenTelemetry for logs and metrics, and lines over TCP. It shares no code with those who send.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header::CONTENT_TYPE},
    response::Response,
};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

mod metrics;
mod msgpack;
mod otlp;

const PATIENCE: Duration = Duration::from_secs(30);

/// A span as it arrived, whatever the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The path it was sent to.
    pub path: String,
    pub service: String,
    pub name: String,
    pub tags: BTreeMap<String, String>,
}

/// A record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    pub path: String,
    pub resource: BTreeMap<String, String>,
    pub attributes: BTreeMap<String, String>,
    /// Text, or the JSON of anything else.
    pub body: String,
}

/// One point of one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    pub scope: String,
    pub metric: String,
    pub kind: MetricKind,
    pub attributes: BTreeMap<String, String>,
}

/// Kind of a metric that a point belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    Sum,
    Histogram,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<Span>,
    logs: Vec<LogRecord>,
    points: Vec<Point>,
    lines: Vec<String>,
}

/// A server that listens on loopback until the process ends.
#[derive(Debug, Clone)]
pub struct Collector {
    pub address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    /// Takes spans, logs and metrics of all protocols over HTTP/1.1 and HTTP/2.
    pub fn start() -> anyhow::Result<Collector> {
        let (listener, collector) = Collector::bind()?;
        let received = collector.received.clone();
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let router = Router::new().fallback(take).with_state(received);
                // All metrics of a proxy may come at once.
                let router = router.layer(DefaultBodyLimit::disable());
                axum::serve(listener, router).await
            })
        });
        Ok(collector)
    }

    /// Takes lines over TCP.
    pub fn of_lines() -> anyhow::Result<Collector> {
        let (listener, collector) = Collector::bind()?;
        let received = collector.received.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let received = received.clone();
                thread::spawn(move || {
                    for line in BufReader::new(connection).lines().map_while(Result::ok) {
                        lock(&received).lines.push(line);
                    }
                });
            }
        });
        Ok(collector)
    }

    fn bind() -> std::io::Result<(TcpListener, Collector)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok((listener, Collector { address, received: Arc::default() }))
    }

    pub fn spans(&self) -> Vec<Span> {
        lock(&self.received).spans.clone()
    }

    pub fn logs(&self) -> Vec<LogRecord> {
        lock(&self.received).logs.clone()
    }

    pub fn points(&self) -> Vec<Point> {
        lock(&self.received).points.clone()
    }

    pub fn lines(&self) -> Vec<String> {
        lock(&self.received).lines.clone()
    }

    /// Waits for something that arrives; `find` looks for it in what has arrived so far.
    pub fn wait<T>(&self, what: &str, mut find: impl FnMut(&Collector) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = find(self) {
                return Ok(found);
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{what} did not arrive in {PATIENCE:?}; this did: {:#?}",
                lock(&self.received)
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn take(
    State(received): State<Arc<Mutex<Received>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    // A message of gRPC comes after a flag and its length.
    let message = if grpc { body.slice(body.len().min(5)..) } else { body };
    let understood = match path {
        _ if path.ends_with("LogsService/Export") || path.ends_with("/v1/logs") => {
            otlp::logs(path, &message).map(|logs| lock(&received).logs.extend(logs))
        }
        _ if path.ends_with("TraceService/Export") || path.ends_with("/v1/traces") => {
            otlp::spans(path, &message).map(|spans| lock(&received).spans.extend(spans))
        }
        _ if path.ends_with("MetricsService/Export") || path.ends_with("/v1/metrics") => {
            metrics::points(&message).map(|points| lock(&received).points.extend(points))
        }
        _ if path.ends_with("/v2/spans") => {
            zipkin(path, &message).map(|spans| lock(&received).spans.extend(spans))
        }
        _ if path.ends_with("/v0.4/traces") => {
            datadog(path, &message).map(|spans| lock(&received).spans.extend(spans))
        }
        // What else agents of Datadog offer, they need not.
        _ => None,
    };
    answer(understood.is_some(), grpc)
}

fn answer(understood: bool, grpc: bool) -> Response {
    let mut response = if grpc {
        let mut trailers = HeaderMap::new();
        let status = if understood { "0" } else { "12" };
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        // An empty message.
        let body =
            Full::new(Bytes::from_static(&[0; 5])).with_trailers(std::future::ready(Some(Ok(trailers))));
        Response::new(Body::new(body))
    } else {
        Response::new(Body::from("{}"))
    };
    let kind = if grpc { "application/grpc" } else { "application/json" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if !understood && !grpc {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

fn zipkin(path: &str, body: &[u8]) -> Option<Vec<Span>> {
    let Ok(Value::Array(spans)) = serde_json::from_slice(body) else { return None };
    let span = |span: &Value| Span {
        path: path.to_owned(),
        service: text(&span["localEndpoint"]["serviceName"]),
        name: text(&span["name"]),
        tags: tags(&span["tags"]),
    };
    Some(spans.iter().map(span).collect())
}

fn datadog(path: &str, body: &[u8]) -> Option<Vec<Span>> {
    let Value::Array(traces) = msgpack::read(body)? else { return None };
    let span = |span: &Value| Span {
        path: path.to_owned(),
        service: text(&span["service"]),
        name: text(&span["name"]),
        tags: tags(&span["meta"]),
    };
    Some(traces.iter().filter_map(Value::as_array).flatten().map(span).collect())
}

fn tags(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
