//! Answers for rejected clients: a reason, and when to try again.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};

/// The status of gRPC that says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grpc {
    ResourceExhausted = 8,
    Unavailable = 14,
}

/// Name of the header that retrying gRPC clients look for.
pub const RETRY_AFTER_MS: &str = "grpc-retry-pushback-ms";

/// A gRPC client gets a status with a message, any other 503 and `Retry-After`.
pub(super) fn answer(request: &HeaderMap, code: Grpc, why: &str, retry_after: Duration) -> Response<Body> {
    LateAnswer { grpc: is_grpc(request) }.answer(code, why, retry_after)
}

/// Facts needed to answer a request after the request itself was given away.
pub(super) struct LateAnswer {
    grpc: bool,
}

impl LateAnswer {
    pub(super) fn to<B>(request: &Request<B>) -> LateAnswer {
        LateAnswer { grpc: is_grpc(request.headers()) }
    }

    pub(super) fn answer(&self, code: Grpc, why: &str, retry_after: Duration) -> Response<Body> {
        if !self.grpc {
            let mut answer = Response::new(format!("{why}\n").into());
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            let seconds = retry_after.as_secs().max(1);
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            return answer;
        }
        let mut answer = Response::new(Body::empty());
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(code as u16));
        // Text with other characters would need escaping; ours has none.
        if let Ok(why) = HeaderValue::from_str(why) {
            headers.insert("grpc-message", why);
        }
        let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        answer
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}
