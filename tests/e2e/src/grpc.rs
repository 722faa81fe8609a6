//! HTTP/2 from its first byte, and gRPC on it, as an application behind a proxy speaks them.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Version, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Answer of a server, trailers included.
#[derive(Debug)]
pub struct GrpcResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

/// One HTTP/2 request to where an outbound listens.
pub fn call(address: Ipv4Addr, port: u16, path: &str) -> anyhow::Result<GrpcResponse> {
    let request = Request::get(format!("http://{address}:{port}{path}")).body(Full::new(Bytes::new()))?;
    exchange((address, port).into(), request)
}

/// Calls a unary method with a message; the echo server returns the same message.
pub fn unary(address: Ipv4Addr, port: u16, method: &str, message: &[u8]) -> anyhow::Result<GrpcResponse> {
    let request = Request::post(format!("http://{address}:{port}{method}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(Full::new(frame(message)))?;
    exchange((address, port).into(), request)
}

/// A message as gRPC sends it: a flag that says "not compressed", its length, itself.
pub fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

fn exchange(address: SocketAddr, mut request: Request<Full<Bytes>>) -> anyhow::Result<GrpcResponse> {
    *request.version_mut() = Version::HTTP_2;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = TcpStream::connect(address).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.context("no HTTP/2 here")?;
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(GrpcResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.to_bytes(),
            trailers,
        })
    })
}
