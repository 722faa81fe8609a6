//! A collector of OpenTelemetry for a test: it takes metrics over gRPC and keeps them.
//!
//! It reads messages by their field numbers and shares no code with whoever sends them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpListener, runtime::Runtime};

const PORT: u16 = 4317;
const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// One point of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    pub scope: String,
    pub metric: String,
    /// The field of the metric's data: 5 for a gauge, 7 for a sum, 9 for a histogram.
    pub kind: u64,
    pub attributes: BTreeMap<String, String>,
}

/// A running collector; it ends with the test.
#[derive(Debug)]
pub struct Collector {
    pub address: SocketAddr,
    points: Arc<Mutex<Vec<Point>>>,
    _runtime: Runtime,
}

impl Collector {
    pub fn start(address: Ipv4Addr) -> anyhow::Result<Collector> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind((address, PORT)))?;
        let (address, points) = (listener.local_addr()?, Arc::<Mutex<Vec<Point>>>::default());
        let kept = points.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                let service = service_fn(move |request| take(request, kept.clone()));
                let served =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                tokio::spawn(served);
            }
        });
        Ok(Collector { address, points, _runtime: runtime })
    }

    /// Everything that has arrived.
    pub fn points(&self) -> Vec<Point> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Answer = Response<StreamBody<tokio_stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>>;

async fn take(request: Request<Incoming>, kept: Arc<Mutex<Vec<Point>>>) -> Result<Answer, Infallible> {
    let wanted = request.uri().path() == EXPORT;
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    // One byte says whether it is compressed, four how long it is.
    let taken = wanted.then(|| body.get(5..)).flatten().and_then(points);
    let status = if taken.is_some() { "0" } else { "3" };
    kept.lock().unwrap_or_else(PoisonError::into_inner).extend(taken.into_iter().flatten());
    let trailers = HeaderMap::from_iter(
        [("grpc-status".parse().ok(), status)]
            .into_iter()
            .filter_map(|(name, status)| Some((name?, HeaderValue::from_static(status)))),
    );
    let frames = vec![Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let mut answer = Response::new(StreamBody::new(tokio_stream::iter(frames)));
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(answer)
}

/// All points of a request; `None` if it cannot be read.
fn points(request: &[u8]) -> Option<Vec<Point>> {
    let mut all = Vec::new();
    for resource in inside(request, 1)? {
        for scope in inside(resource, 2)? {
            let name = inside(scope, 1)?.first().and_then(|scope| text(scope, 1)).unwrap_or_default();
            for metric in inside(scope, 2)? {
                let kind = fields(metric)?.into_iter().find(|(number, _)| (5..=11).contains(number))?;
                for point in inside(kind.1?, 1)? {
                    // Attributes of a histogram's point have another number.
                    let of = if kind.0 == 9 { 9 } else { 7 };
                    let pairs = inside(point, of)?
                        .into_iter()
                        .map(|pair| Some((text(pair, 1)?, text(inside(pair, 2)?.first()?, 1)?)));
                    let attributes = pairs.collect::<Option<_>>()?;
                    let (scope, metric) = (name.clone(), text(metric, 1)?);
                    all.push(Point { scope, metric, kind: kind.0, attributes });
                }
            }
        }
    }
    Some(all)
}

/// The number of a field, and what is in it if it has a length.
type Field<'a> = (u64, Option<&'a [u8]>);

fn fields(mut message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message)?;
        let inside = match tag & 7 {
            0 => {
                number(&mut message)?;
                None
            }
            1 => {
                message = message.get(8..)?;
                None
            }
            2 => {
                let length = usize::try_from(number(&mut message)?).ok()?;
                let inside = message.get(..length)?;
                message = &message[length..];
                Some(inside)
            }
            5 => {
                message = message.get(4..)?;
                None
            }
            _ => return None,
        };
        all.push((tag >> 3, inside));
    }
    Some(all)
}

fn inside(message: &[u8], field: u64) -> Option<Vec<&[u8]>> {
    Some(
        fields(message)?
            .into_iter()
            .filter(|(number, _)| *number == field)
            .filter_map(|(_, inside)| inside)
            .collect(),
    )
}

fn text(message: &[u8], field: u64) -> Option<String> {
    String::from_utf8(inside(message, field)?.first()?.to_vec()).ok()
}

fn number(message: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}
