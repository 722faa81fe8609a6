//! One call of gRPC at a socket on disk.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

/// Answers say little; what they say is not read.
const MAX_ANSWER: usize = 1024 * 1024;

/// Calls `method`; the answer itself is of no interest, only that there is one.
pub async fn call(socket: &str, method: &str, message: &[u8], patience: Duration) -> anyhow::Result<()> {
    let called = async {
        let stream = UnixStream::connect(socket).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        let connection = tokio::spawn(connection);
        let answered = async {
            let response = sender.send_request(request(method, message)?).await?;
            anyhow::ensure!(response.status() == StatusCode::OK, "the answer was {}", response.status());
            let headers = response.headers().clone();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow!(error))?;
            judge(body.trailers().unwrap_or(&headers))
        };
        let answered = answered.await;
        connection.abort();
        answered
    };
    tokio::time::timeout(patience, called).await.context("no answer in time")?
}

fn request(method: &str, message: &[u8]) -> anyhow::Result<Request<Full<Bytes>>> {
    let length = u32::try_from(message.len()).context("the message is too long")?;
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    // Not compressed.
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put_slice(message);
    Ok(Request::post(format!("http://envoy{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(framed.freeze()))?)
}

fn judge(trailers: &HeaderMap) -> anyhow::Result<()> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(status) => {
            Err(anyhow!("status {status} of gRPC: {}", text("grpc-message").unwrap_or("without a reason")))
        }
        None => Err(anyhow!("the answer has no status of gRPC")),
    }
}
