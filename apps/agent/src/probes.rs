//! Probes of applications whose ports the mesh protects: kubelet asks the agent, the agent probes the
//! application on this machine and passes on the result.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
};
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::{
    control_plane::unchecked_tls,
    failure::{Failure, Result},
    http_client::exchange,
};

/// Redirection lets through what comes from here, as it does what a proxy sends its application.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// As much of an application's answer as is passed on.
const MOST_BODY: usize = 10 * 1024;
/// Default and largest time for a probe.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(60);

/// Request to the application.
#[derive(Debug, PartialEq, Eq)]
enum Probe {
    /// Succeeds if the port accepts a connection.
    Tcp(u16),
    /// Succeeds if its health service says SERVING.
    Grpc(u16),
    /// A path and query of its HTTP server.
    Http(u16, String),
}

/// Answers probes at all addresses, because kubelet comes from outside.
pub async fn serve(port: u16, shutdown: &Shutdown) -> Result<()> {
    let listener = match Listener::bind((Ipv6Addr::UNSPECIFIED, port).into()).await {
        Ok(listener) => listener,
        // A machine without IPv6 has no such address.
        Err(_) => Listener::bind((Ipv4Addr::UNSPECIFIED, port).into()).await.map_err(|error| {
            Failure::failed(format!(
                "{error}; every proxy of a machine needs its own KUMA_APPLICATION_PROBE_PROXY_PORT"
            ))
        })?,
    };
    tracing::info!(address = %listener.addr(), "serving probes of the application");
    let router = Router::new().fallback(answer);
    listener.serve(router, None, Limits::default(), shutdown);
    Ok(())
}

impl FromStr for Probe {
    type Err = ();

    /// Reads `/tcp/PORT`, `/grpc/PORT` or `/PORT/…`.
    fn from_str(target: &str) -> std::result::Result<Probe, ()> {
        let target = target.strip_prefix('/').ok_or(())?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(());
        if let Some(rest) = target.strip_prefix("tcp/") {
            return Ok(Probe::Tcp(port(rest)?));
        }
        if let Some(rest) = target.strip_prefix("grpc/") {
            return Ok(Probe::Grpc(port(rest)?));
        }
        let at = target.find(['/', '?']).unwrap_or(target.len());
        let path = if target[at..].starts_with('/') {
            target[at..].to_owned()
        } else {
            format!("/{}", &target[at..])
        };
        Ok(Probe::Http(port(&target[..at])?, path))
    }
}

async fn answer(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let (Ok(probe), Method::GET) = (target.parse::<Probe>(), method) else {
        let usage = "expected GET /tcp/PORT, /grpc/PORT or /PORT/PATH\n";
        return (StatusCode::BAD_REQUEST, usage).into_response();
    };
    let seconds = header(&headers, "x-kuma-probes-timeout").and_then(|text| text.parse().ok());
    let patience = seconds.map_or(PATIENCE, Duration::from_secs).min(MOST_PATIENCE);
    let asked = async {
        match probe {
            Probe::Tcp(port) => connect(port).await.map(|_| (StatusCode::OK, "HEALTHY\n").into_response()),
            Probe::Grpc(port) => grpc(port, &headers).await,
            Probe::Http(port, path) => http(port, &path, &headers).await,
        }
    };
    let heard =
        tokio::time::timeout(patience, asked).await.context("no answer in time").and_then(|heard| heard);
    heard.unwrap_or_else(|error| {
        (StatusCode::SERVICE_UNAVAILABLE, format!("UNHEALTHY: {error:#}\n")).into_response()
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

async fn connect(port: u16) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((SOURCE, 0).into())?;
    Ok(socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?)
}

async fn http(port: u16, path: &str, headers: &HeaderMap) -> anyhow::Result<Response> {
    let host =
        header(headers, "x-kuma-probes-host").map_or_else(|| format!("localhost:{port}"), str::to_owned);
    let mut request = Request::get(path).header(header::HOST, &host);
    let is_ours = |name: &str| name.starts_with("x-kuma-probes-") || matches!(name, "host" | "connection");
    for (name, value) in headers.iter().filter(|(name, _)| !is_ours(name.as_str())) {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::new()))?;
    let stream = connect(port).await?;
    let is_https =
        header(headers, "x-kuma-probes-scheme").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let answer = if is_https {
        // As kubelet itself, which looks at no certificate either.
        let config = unchecked_tls().map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let name = host.split(':').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(name).unwrap_or(ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()));
        exchange(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, request).await?
    } else {
        exchange(stream, request).await?
    };
    let most = answer.body.len().min(MOST_BODY);
    Ok((answer.status, answer.body.slice(..most)).into_response())
}

/// Asks `grpc.health.v1.Health/Check`.
async fn grpc(port: u16, headers: &HeaderMap) -> anyhow::Result<Response> {
    let service = header(headers, "x-kuma-probes-grpc-service").unwrap_or_default();
    let stream = TokioIo::new(connect(port).await?);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
    let connection = tokio::spawn(connection);
    let asked = async {
        let request = Request::post(format!("http://localhost:{port}/grpc.health.v1.Health/Check"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Full::new(question(service)?))?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = trailers.get("grpc-status").or(head.headers.get("grpc-status")).cloned();
        anyhow::Ok((status, body.to_bytes()))
    };
    let asked = asked.await;
    connection.abort();
    let (status, message) = asked?;
    anyhow::ensure!(status.is_none_or(|status| status == "0"), "the health service refused to answer");
    Ok(if is_serving(&message) {
        (StatusCode::OK, "HEALTHY\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "UNHEALTHY\n").into_response()
    })
}

/// A `HealthCheckRequest` as a message of gRPC: its length, then the service's name as field 1.
fn question(service: &str) -> anyhow::Result<Bytes> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 0x80);
    let length = length.context("the name of the service is longer than 127 bytes")?;
    let message = match length {
        0 => Vec::new(),
        _ => [&[0x0a, length], service.as_bytes()].concat(),
    };
    let frame = [0, 0, 0, 0, u8::try_from(message.len())?];
    Ok([&frame[..], &message].concat().into())
}

/// True if a `HealthCheckResponse` has status 1, SERVING, in field 1.
fn is_serving(message: &[u8]) -> bool {
    message.get(5..) == Some(&[0x08, 0x01])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_to_ask() {
        let http = |port, path: &str| Ok(Probe::Http(port, path.to_owned()));
        assert_eq!("/tcp/6379".parse(), Ok(Probe::Tcp(6379)));
        assert_eq!("/grpc/9000".parse(), Ok(Probe::Grpc(9000)));
        assert_eq!("/8080/healthz?a=b".parse(), http(8080, "/healthz?a=b"));
        assert_eq!("/8080".parse(), http(8080, "/"));
        assert_eq!("/8080?a".parse(), http(8080, "/?a"));
        for wrong in ["/", "", "/0/x", "/70000/x", "/tcp/x", "/tcp/1/2", "/web/ready", "8080/x"] {
            assert_eq!(wrong.parse::<Probe>(), Err(()), "{wrong}");
        }
    }
}
