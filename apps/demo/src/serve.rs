//! Listening until a signal arrives.

use std::{io::Write, net::SocketAddr, time::Duration};

use axum::{Router, response::IntoResponse, routing::get};
use http::StatusCode;
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
};

/// Time for open requests to finish when the process is asked to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves a router over HTTP/1.1 and HTTP/2, without TLS: that is the mesh's business.
pub async fn http(name: &str, addr: SocketAddr, router: Router) -> anyhow::Result<()> {
    let listener = Listener::bind(addr).await?;
    let shutdown = Shutdown::default();
    shutdown.on_signals()?;
    announce(name, listener.addr());
    // Forced delays may be longer than what a real server would put up with.
    let limits = Limits { request: Duration::from_secs(600), ..Limits::default() };
    listener.serve(router, None, limits, &shutdown);
    shutdown.begun().await;
    shutdown.finish(DRAIN).await;
    Ok(())
}

/// Says where the service listens; with port 0 there is no other way to know.
pub fn announce(name: &str, addr: SocketAddr) {
    // A closed standard output is no reason not to serve.
    let _ = writeln!(std::io::stdout(), "{name} listens on {addr}");
}

/// Answers requests that every service of the demo has beside its own paths.
pub fn about(name: String) -> Router {
    let version = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "name": name });
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/version", get(async move || axum::Json(version)))
        .fallback(async || (StatusCode::NOT_FOUND, "no such path\n").into_response())
}
