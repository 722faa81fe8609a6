//! Marks answers that may be outdated.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderName, HeaderValue, Method, header::WARNING};

use crate::Context;

/// Since when the control plane has no contact with its store.
const SINCE: HeaderName = HeaderName::from_static("x-kuma-stale-since");

/// While the store cannot be reached, reads are answered from the last snapshot. Their answers say so.
pub async fn mark_stale(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // Asked before the answer is made: an outage that ends meanwhile may have begun it.
    let outage = context.registrar.store().outage().filter(|_| reads);
    let mut response = next.run(request).await;
    if let Some(outage) = outage
        && response.status().is_success()
    {
        let warning = HeaderValue::from_static("110 - \"Response is Stale\"");
        response.headers_mut().append(WARNING, warning);
        if let Ok(since) = HeaderValue::try_from(outage.since.to_string()) {
            response.headers_mut().insert(SINCE, since);
        }
    }
    response
}
