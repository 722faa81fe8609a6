//! Bodies as Kuma prints them: JSON indented by one space, with a newline at the end.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

/// An answer with a JSON body.
pub fn respond<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match pretty(value) {
        Ok(bytes) => with_type(status, bytes.into()),
        Err(error) => {
            tracing::error!(%error, "encoding an answer failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// An answer that is JSON already.
pub fn encoded(bytes: Bytes) -> Response {
    with_type(StatusCode::OK, bytes)
}

fn with_type(status: StatusCode, bytes: Bytes) -> Response {
    let mut response = (status, Body::from(bytes)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn ok<T: Serialize>(value: &T) -> Response {
    respond(StatusCode::OK, value)
}

/// The bytes of an indented JSON document.
pub fn pretty<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(512);
    value.serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b" ")))?;
    bytes.push(b'\n');
    Ok(bytes)
}
