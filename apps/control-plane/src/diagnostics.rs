//! How the control plane is doing, for load balancers and Prometheus.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header},
    routing::get,
};
use runtime::{Shutdown, metrics};
use store::Store;

/// `/healthy`: the process answers. `/ready`: it can serve, and is not about to end. `/metrics`.
pub fn router(store: Arc<dyn Store>, metrics: metrics::Metrics, shutdown: &Shutdown) -> Router {
    let token = shutdown.token().clone();
    let ready = move || async move {
        if token.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
        }
        match store.snapshot() {
            Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        }
    };
    let exposition =
        move || async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.encode()) };
    Router::new()
        .route("/healthy", get(|| async { "healthy\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(exposition))
}
