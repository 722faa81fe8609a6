//! One HTTP/1.1 request on a connection of its own: all an agent needs, to the control plane over TLS
//! and to Envoy over a socket on disk.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// No answer this agent asks for is larger.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// An answer, complete.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

pub async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<HttpResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    exchange_within(MAX_BODY, stream, request).await
}

/// As [`exchange`], for an answer whose body has at most `limit` bytes.
pub async fn exchange_within<S>(
    limit: usize,
    stream: S,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<HttpResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        Ok(HttpResponse { status, headers, body })
    }
    .await;
    connection.abort();
    answer
}
