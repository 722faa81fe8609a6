//! Measures and logs requests.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};

use crate::{Context, metrics};

/// Times the request and says at debug level what came of it.
pub async fn observe(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let handler = matched.as_ref().map_or(metrics::NO_ROUTE, MatchedPath::as_str);

    let response = next.run(request).await;

    let took = started.elapsed();
    context.metrics.observe(handler, &method, response.status(), took);
    tracing::debug!(%method, path, status = response.status().as_u16(), took_ms = took.as_millis(), "request");
    response
}
