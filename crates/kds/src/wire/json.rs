//! JSON in an `Any` without a type.

use serde::Serialize;
use serde_json::{Map, Value};
use xds::message::Any;

use super::Fault;

pub(super) fn any(json: impl Into<bytes::Bytes>) -> Any {
    Any { type_url: String::new(), value: json.into() }
}

pub(super) fn encode(value: &impl Serialize) -> Result<Any, Fault> {
    let json = serde_json::to_vec(value).map_err(|why| Fault::new(why.to_string()))?;
    Ok(any(json))
}

/// An object; `null` is an empty one, as Go writes both. Spends what is `left` of values.
pub(super) fn decode(any: &Any, left: &mut usize) -> Result<Value, Fault> {
    // No value without a separator before it. Those in strings count, too: texts have fewer by far.
    let separators = any.value.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    *left = left.checked_sub(separators).ok_or_else(|| Fault::new(format!("has more than {left} values")))?;
    match serde_json::from_slice(&any.value) {
        Ok(Value::Null) => Ok(Value::Object(Map::new())),
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => Err(Fault::expected("an object", &other)),
        Err(why) => Err(Fault::new(format!("is no JSON: {why}"))),
    }
}
