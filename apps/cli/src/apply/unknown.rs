//! Fields of the input that no kind has, with the ones that may be meant.

use std::fmt;

use resources::{
    format::{self, UnknownField},
    nearest::nearest,
};
use serde_json::Value;

/// A field that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IneffectiveField {
    /// From the root of the resource.
    pub path: String,
    meant: Option<&'static str>,
}

impl fmt::Display for IneffectiveField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {}, it has no effect", self.path)?;
        match self.meant {
            Some(meant) => write!(f, "; did you mean {meant:?}?"),
            None => Ok(()),
        }
    }
}

/// The unknown fields of a document that is refused for other reasons.
pub fn of_refused(value: &Value) -> Vec<IneffectiveField> {
    format::unknown_fields(value).into_iter().map(IneffectiveField::from).collect()
}

/// The fields of a document that its reader left out.
pub fn of_read(value: &Value, left_out: Vec<String>) -> Vec<IneffectiveField> {
    if left_out.is_empty() {
        return Vec::new();
    }
    let by_schema = of_refused(value);
    let meant = |path: &str| by_schema.iter().find(|known| known.path == path).and_then(|known| known.meant);
    left_out.into_iter().map(|path| IneffectiveField { meant: meant(&path), path }).collect()
}

impl From<UnknownField> for IneffectiveField {
    fn from(field: UnknownField) -> IneffectiveField {
        IneffectiveField { meant: nearest(&field.name, field.known), path: field.path }
    }
}
