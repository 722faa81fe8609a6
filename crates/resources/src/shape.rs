//! Checks that a user's JSON has the shape of a kind: for kinds in spec form types, required fields, words and
//! ranges, for the older kinds the types.
//!
//! The shape is the JSON Schema that also describes the kind in the OpenAPI document. Kinds in spec form are
//! refused with every violation at once, in the words of the schema validator that Kuma uses, before any
//! rule of the kind is looked at. The older kinds follow protobuf: a `null` is the default of its field. A
//! `null` is never dropped from a map, because a selector that lost a tag selects more than its author
//! meant.

use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

use crate::{Kind, Violations, kind::ShapeError};

mod check;
mod node;
mod proto;
#[cfg(test)]
mod tests;
mod unknown;

use node::Node;
pub(crate) use node::{ATTRIBUTE_NAME, HEADER_NAME, HOSTNAME, is_header_name_byte};
pub use unknown::UnknownField;

static SHAPES: LazyLock<Vec<OnceLock<Node>>> =
    LazyLock::new(|| Kind::ALL.iter().map(|_| OnceLock::new()).collect());

fn of(kind: Kind) -> Option<&'static Node> {
    SHAPES.get(kind as usize).map(|shape| shape.get_or_init(|| Node::of(kind)))
}

/// The violations of a document in Universal form, of a kind in spec form.
pub(crate) fn check_document(kind: Kind, fields: &Map<String, Value>) -> Violations {
    let Some(node) = of(kind) else { return Violations::default() };
    check::document(kind, node, fields)
}

/// The violations of what stands in the field `spec`.
pub(crate) fn check_spec(kind: Kind, spec: &Value) -> Violations {
    let Some(node) = of(kind) else { return Violations::default() };
    check::spec(node, spec)
}

/// The fields of an older kind with the `null`s in them replaced by what protobuf reads them as.
pub(crate) fn without_nulls(kind: Kind, fields: Value) -> Result<Value, ShapeError> {
    match of(kind) {
        Some(node) => proto::without_nulls(node, fields, ""),
        None => Ok(fields),
    }
}

/// The fields of a document, in either form, that nothing reads.
pub(crate) fn unknown_fields(kind: Kind, fields: &Map<String, Value>) -> Vec<UnknownField> {
    let Some(node) = of(kind) else { return Vec::new() };
    unknown::in_document(kind.descriptor().form, node, fields)
}
