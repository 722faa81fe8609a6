//! Content of `google.protobuf.Any`, as a message.

use bytes::Bytes;
use prost_reflect::{DynamicMessage, ReflectMessage, Value};

use crate::json;

const ANY: &str = "google.protobuf.Any";

/// The message inside; `None` where `message` is no such place, or where the type is none of Envoy's.
pub(super) fn content(message: &DynamicMessage) -> Option<DynamicMessage> {
    if message.descriptor().full_name() != ANY {
        return None;
    }
    let url = message.get_field_by_name("type_url")?;
    let value = message.get_field_by_name("value")?;
    json::decode(url.as_str()?, value.as_bytes()?).ok()
}

/// The name of the type inside.
pub(super) fn type_url(message: &DynamicMessage) -> String {
    let url = message.get_field_by_name("type_url");
    url.and_then(|url| url.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Puts another content of the same type inside.
pub(super) fn replace(message: &mut DynamicMessage, content: Vec<u8>) {
    message.set_field_by_name("value", Value::Bytes(Bytes::from(content)));
}
