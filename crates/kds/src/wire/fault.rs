//! Mistake in a value, with its path. The path grows from the inside out, so that reading and writing keep
//! none while all is well.

use resources::kind::ShapeError;
use serde_json::Value;

/// The longest key of a map that a path repeats; peers choose keys.
const LONGEST_KEY: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) path: String,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(reason: impl Into<String>) -> Fault {
        Fault { path: String::new(), reason: reason.into() }
    }

    /// A JSON value of another type. The value itself is not repeated: it may be a secret.
    pub(super) fn expected(wanted: &str, value: &Value) -> Fault {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number out of range",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        Fault::new(format!("expected {wanted}, found {found}"))
    }

    /// The same, seen from the message that has the field.
    pub(super) fn inside(mut self, field: &str) -> Fault {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{field}{joint}{}", self.path);
        self
    }

    /// The same, seen from the list.
    pub(super) fn at(self, index: usize) -> Fault {
        self.inside(&format!("[{index}]"))
    }

    /// The same, seen from the map.
    pub(super) fn under(self, key: &str) -> Fault {
        let short: String = key.chars().take(LONGEST_KEY).collect();
        self.inside(&format!("[{short:?}]"))
    }
}

impl From<ShapeError> for Fault {
    fn from(error: ShapeError) -> Fault {
        // The root is spelled `.`.
        let path = if error.path == "." { String::new() } else { error.path };
        Fault { path, reason: error.message }
    }
}
