//! Protobuf's JSON reading of `null`: the default of the field.

use serde_json::{Map, Value};

use super::{
    check,
    node::{Node, Type},
};
use crate::kind::ShapeError;

/// Fields with `null` are left out; in a map the key stays, with the empty value. A list where an object is
/// meant, and the other way round, is refused: the decoder would take a list for the fields in their order.
pub(super) fn without_nulls(node: &Node, value: Value, path: &str) -> Result<Value, ShapeError> {
    match (only_type(node), value) {
        (Some(Type::Object), Value::Object(fields)) => object(node, fields, path).map(Value::Object),
        (Some(Type::Array), Value::Array(items)) => list(node, items, path).map(Value::Array),
        (Some(wanted @ (Type::Object | Type::Array)), value) => Err(mismatch(path, wanted, &value)),
        (Some(wanted), value @ (Value::Object(_) | Value::Array(_))) => Err(mismatch(path, wanted, &value)),
        (_, scalar) => Ok(scalar),
    }
}

fn only_type(node: &Node) -> Option<Type> {
    match node.types.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

fn object(node: &Node, fields: Map<String, Value>, path: &str) -> Result<Map<String, Value>, ShapeError> {
    let mut out = Map::new();
    for (field, value) in fields {
        let inner = field_of(node, &field);
        let place = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        match (inner, &node.values) {
            (Some(_), _) if value.is_null() => {}
            (Some(inner), _) => {
                out.insert(field, without_nulls(inner, value, &place)?);
            }
            (None, Some(values)) => {
                let value = if value.is_null() { empty(values) } else { value };
                out.insert(field, without_nulls(values, value, &place)?);
            }
            // Free-form settings, in which a `null` is a value, and fields that mean nothing to us.
            (None, None) => {
                out.insert(field, value);
            }
        }
    }
    Ok(out)
}

fn list(node: &Node, items: Vec<Value>, path: &str) -> Result<Vec<Value>, ShapeError> {
    let Some(inner) = &node.items else { return Ok(items) };
    let items = items.into_iter().enumerate().map(|(i, item)| {
        let place = format!("{path}[{i}]");
        match item {
            Value::Null => {
                Err(ShapeError { path: place, message: "invalid type: null, expected an item".to_owned() })
            }
            item => without_nulls(inner, item, &place),
        }
    });
    items.collect()
}

/// Protobuf reads fields by their older names too: `redirect_port_inbound`.
pub(super) fn field_of<'n>(node: &'n Node, field: &str) -> Option<&'n Node> {
    node.fields.get(field).or_else(|| {
        let mut parts = field.split('_');
        let mut name = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let mut letters = part.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
        }
        node.fields.get(&name)
    })
}

fn empty(node: &Node) -> Value {
    match only_type(node) {
        Some(Type::String) => "".into(),
        Some(Type::Integer | Type::Number) => 0.into(),
        Some(Type::Boolean) => false.into(),
        Some(Type::Object) => Map::new().into(),
        Some(Type::Array) => Vec::<Value>::new().into(),
        None => Value::Null,
    }
}

fn mismatch(path: &str, wanted: Type, value: &Value) -> ShapeError {
    let path = if path.is_empty() { "." } else { path };
    let message = format!("invalid type: {}, expected {}", check::name(value), wanted.name());
    ShapeError { path: path.to_owned(), message }
}
