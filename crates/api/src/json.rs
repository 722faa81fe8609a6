//! Bodies as Kuma prints them: JSON indented by one space, with a newline at the end.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

/// An answer with a JSON body.
pub fn respond<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match pretty(value) {
        Ok(bytes) => {
            let mut response = (status, Body::from(bytes)).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "encoding an answer failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
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
