//! Lets pages of configured origins call the API from a browser.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

use crate::Context;

/// Answers preflight requests and marks answers that an allowed origin may read.
pub async fn cors(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let allowed = request
        .headers()
        .get(ORIGIN)
        .filter(|origin| is_allowed(origin, &context.settings.cors_allowed_domains))
        .cloned();
    let Some(origin) = allowed else { return next.run(request).await };

    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        let mut response = StatusCode::OK.into_response();
        insert(response.headers_mut(), ACCESS_CONTROL_ALLOW_METHODS, "GET, PUT, POST, DELETE");
        insert(
            response.headers_mut(),
            ACCESS_CONTROL_ALLOW_HEADERS,
            "Content-Type, Accept, Authorization, If-Match",
        );
        response
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    insert(headers, ACCESS_CONTROL_EXPOSE_HEADERS, "X-Kuma-Revision, ETag");
    headers.append(VARY, HeaderValue::from_static("Origin"));
    response
}

/// Pages of this origin may call the API.
pub fn is_allowed(origin: &HeaderValue, domains: &[String]) -> bool {
    domains
        .iter()
        .any(|domain| matches!(domain.as_str(), "*" | ".*") || domain.as_bytes() == origin.as_bytes())
}

fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}
