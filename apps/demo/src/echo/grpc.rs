//! A gRPC server for any unary method: the message comes back as it came.
//!
//! gRPC over HTTP/2 is a POST whose body is a flag, a length and a message, answered by the same and
//! a status in the trailers. Nothing needs to know what is in the message.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};

use crate::faults;

/// The header in which the server says who it is.
const NAME: &str = "x-echo-name";
const PREFIX: usize = 5;
const LONGEST_MESSAGE: usize = 4 * 1024 * 1024;

/// Statuses of gRPC that are used here.
#[derive(Clone, Copy)]
enum Status {
    Ok = 0,
    InvalidArgument = 3,
    ResourceExhausted = 8,
}

pub fn echo(name: String) -> Router {
    Router::new()
        .fallback(async move |request: Request| answer(&name, request).await)
        .layer(axum::middleware::from_fn(faults::obey))
}

async fn answer(name: &str, request: Request) -> Response {
    let is_grpc = request.method() == Method::POST
        && request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        return respond(name, Err((Status::InvalidArgument, "this is no gRPC request")));
    }
    let body = Limited::new(request.into_body(), PREFIX + LONGEST_MESSAGE).collect().await;
    let echoed = match body.map(http_body_util::Collected::to_bytes) {
        Err(_) => Err((Status::ResourceExhausted, "the message did not arrive whole or is too long")),
        Ok(frame) if is_one_message(&frame) => Ok(frame),
        Ok(_) => Err((Status::InvalidArgument, "a unary request carries exactly one message")),
    };
    respond(name, echoed)
}

fn is_one_message(frame: &[u8]) -> bool {
    let Some((prefix, message)) = frame.split_first_chunk::<PREFIX>() else { return false };
    let [_compressed, length @ ..] = *prefix;
    usize::try_from(u32::from_be_bytes(length)).is_ok_and(|length| length == message.len())
}

fn respond(name: &str, echoed: Result<Bytes, (Status, &'static str)>) -> Response {
    let mut trailers = HeaderMap::new();
    let (frame, status) = match echoed {
        Ok(frame) => (frame, Status::Ok),
        Err((status, message)) => {
            trailers.insert("grpc-message", HeaderValue::from_static(message));
            (Bytes::new(), status)
        }
    };
    trailers.insert("grpc-status", HeaderValue::from(status as u16));
    let body = Full::new(frame).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Ok(name) = HeaderValue::from_str(name) {
        headers.insert(NAME, name);
    }
    response
}
