//! Listeners that serve an axum router over HTTP/1.1 and HTTP/2, plain or with TLS.
//!
//! Every request carries a [`Peer`] extension: who is on the other side of the connection. A client
//! gets a limited time for its TLS handshake and for each request's head, whatever else it does; when
//! the shutdown begins, open requests are finished and idle connections closed.

mod patience;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use self::patience::{Patience, Patient};
use crate::{Backoff, Error, Shutdown};

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The verified certificate the client showed, if it did.
    pub client_certificate: Option<CertificateDer<'static>>,
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request's head to its last.
    pub header_read: Duration,
    /// Between two requests on one connection.
    pub idle: Duration,
    /// From the end of a request's head to the beginning of its answer.
    pub request: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(10),
            header_read: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            request: Duration::from_secs(40),
        }
    }
}

/// A bound port that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
}

impl Listener {
    /// Port 0 binds any free port; [`Listener::addr`] says which.
    pub async fn bind(addr: SocketAddr) -> Result<Listener, Error> {
        let failed = |source| Error::Bind { addr, source };
        let socket = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Listener { socket, addr })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until the shutdown begins and every open request is answered.
    pub fn serve(self, router: Router, tls: Option<Arc<ServerConfig>>, limits: Limits, shutdown: &Shutdown) {
        let server = Server { router, tls: tls.map(TlsAcceptor::from), limits, shutdown: shutdown.clone() };
        shutdown.spawn(server.accept(self.socket));
    }
}

#[derive(Clone)]
struct Server {
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    shutdown: Shutdown,
}

impl Server {
    async fn accept(self, socket: TcpListener) {
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = self.shutdown.begun() => return,
            };
            match accepted {
                Ok((stream, addr)) => {
                    backoff.reset();
                    self.shutdown.spawn(self.clone().connection(stream, addr));
                }
                // Out of file descriptors, usually: closing connections will free some.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, addr: SocketAddr) {
        // Answers are small and complete; waiting for more bytes to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = self.tls.clone() else {
            return self.http(stream, Peer { addr, tls: false, client_certificate: None }).await;
        };
        let handshake = tokio::time::timeout(self.limits.handshake, acceptor.accept(stream));
        let accepted = tokio::select! {
            accepted = handshake => accepted,
            () = self.shutdown.begun() => return,
        };
        match accepted {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let client_certificate = shown.map(|certificate| certificate.clone().into_owned());
                self.http(stream, Peer { addr, tls: true, client_certificate }).await;
            }
            Ok(Err(error)) => tracing::debug!(%addr, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%addr, "TLS handshake took too long"),
        }
    }

    async fn http<S>(self, stream: S, peer: Peer)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let addr = peer.addr;
        let patience = Arc::new(Patience::default());
        let stream = Patient::new(stream, patience.clone(), self.limits.header_read);
        let (router, limit) = (self.router, self.limits.request);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            respond(router.clone(), request, peer.clone(), patience.clone(), limit)
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // hyper's timeout for a head also runs while a connection is idle, so it is given the idle
        // time here; how long a head that has begun may take is Patient's business.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.idle);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(self.limits.idle);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.shutdown.begun() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%addr, %error, "connection ended early");
        }
    }
}

async fn respond(
    router: Router,
    mut request: Request<Incoming>,
    peer: Peer,
    patience: Arc<Patience>,
    limit: Duration,
) -> Result<Response<axum::body::Body>, std::convert::Infallible> {
    patience.head_complete(request.version());
    request.extensions_mut().insert(peer);
    let answer = tokio::time::timeout(limit, router.oneshot(request.map(axum::body::Body::new))).await;
    patience.answered();
    Ok(match answer {
        Ok(Ok(response)) => response,
        Err(_) => {
            let mut late = Response::new(format!("the request took longer than {limit:?}\n").into());
            *late.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            late
        }
    })
}
