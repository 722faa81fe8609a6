//! The forms a resource takes outside: Universal (`type`, `name`, …) and Kubernetes
//! (`apiVersion`, `kind`, `metadata`, …), both as JSON values. YAML text is read by [`yaml`].

use serde_json::{Map, Value};

use crate::{
    Draft, Form, Key, Kind, Path, Spec, Violations,
    kind::ShapeError,
    kinds::virtual_outbound::proposal,
    shape,
    superseded::{self, Superseded},
};

pub use shape::UnknownField;

pub mod keys;
pub mod kubernetes;
pub mod template;
pub mod universal;
pub mod yaml;

/// A resource read from outside, and the fields in it that mean nothing to us.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub draft: Draft,
    /// JSON paths of fields that were dropped, from the resource's root.
    pub unknown_fields: Vec<String>,
    /// Advice for the author about what was read as something else.
    pub advice: Vec<String>,
}

/// Reason that a value is not a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("expected an object with `type` (Universal) or `apiVersion` and `kind` (Kubernetes), got {0}")]
    NotAnObject(&'static str),
    #[error("{0:?} is missing: a resource needs `type` (Universal) or `apiVersion` and `kind` (Kubernetes)")]
    Missing(&'static str),
    #[error("{field:?} must be a string")]
    NotAString { field: String },
    #[error("{field:?} must be a mapping")]
    NotAMapping { field: String },
    #[error("{kind} with apiVersion {got:?} is not a resource of kuma-rs; expected {expect}")]
    ApiVersion { kind: String, got: String, expect: &'static str },
    #[error(
        "a Secret of type {got:?} is not a secret of the mesh; expected system.kuma.io/secret or system.kuma.io/global-secret"
    )]
    SecretType { got: String },
    #[error("unknown resource type {name:?}{}", suggestion.map(|s| format!("; did you mean {s:?}?")).unwrap_or_default())]
    UnknownKind { name: String, suggestion: Option<&'static str> },
    /// A kind of Kuma that is not kept here, with its successor.
    #[error("{}", .0.refusal())]
    Superseded(&'static Superseded),
    #[error("invalid {kind} object: {error}")]
    Shape { kind: Kind, error: ShapeError },
    /// The content violates the schema of the kind.
    #[error("{key}: {violations}")]
    Violations { key: Key, violations: Violations },
}

/// Reads either form.
pub fn parse(value: Value) -> Result<Parsed, Error> {
    let fields = object(value)?;
    if fields.contains_key("apiVersion") { kubernetes::parse(fields) } else { universal::parse(fields) }
}

/// The fields of a resource that nothing reads, also where the rest of it is not valid. Of a kind that is unknown, or that is
/// read in another form than its schema has, nothing is said.
pub fn unknown_fields(value: &Value) -> Vec<UnknownField> {
    let Some(fields) = value.as_object() else { return Vec::new() };
    let is_kubernetes = fields.contains_key("apiVersion");
    let name = fields.get(if is_kubernetes { "kind" } else { "type" }).and_then(Value::as_str);
    let is_translated = |kind: &Kind| match kind {
        Kind::Secret | Kind::GlobalSecret | Kind::Config => is_kubernetes,
        kind => *kind == Kind::VirtualOutbound,
    };
    let kind = name.and_then(Kind::by_name).filter(|kind| !is_translated(kind));
    kind.map(|kind| shape::unknown_fields(kind, fields)).unwrap_or_default()
}

pub(crate) fn object(value: Value) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Err(Error::NotAnObject("nothing")),
        Value::Bool(_) => Err(Error::NotAnObject("a boolean")),
        Value::Number(_) => Err(Error::NotAnObject("a number")),
        Value::String(_) => Err(Error::NotAnObject("a string")),
        Value::Array(_) => Err(Error::NotAnObject("a list")),
    }
}

/// Looks a kind up by name and, failing that, suggests the one the user may have meant.
pub fn kind_by_name(name: &str) -> Result<Kind, Error> {
    if let Some(superseded) = superseded::by_name(name) {
        return Err(Error::Superseded(superseded));
    }
    Kind::by_name(name).ok_or_else(|| {
        let wanted = name.to_lowercase();
        let suggestion = Kind::ALL
            .iter()
            .map(|k| k.name())
            .find(|n| n.to_lowercase() == wanted || format!("{}s", n.to_lowercase()) == wanted);
        Error::UnknownKind { name: name.to_owned(), suggestion }
    })
}

/// Reads a spec, with advice for its author, and fills in its defaults. `body` is the field it stands in, empty for the resource's
/// root; the paths of errors and of unknown fields start with it.
pub(crate) fn read_spec(
    key: &Key,
    value: Value,
    body: &str,
    unknown_fields: &mut Vec<String>,
) -> Result<(Spec, Vec<String>), Error> {
    let kind = key.kind;
    let mut value = value;
    let invalid = |violations| Error::Violations { key: key.clone(), violations };
    let advice = match kind {
        Kind::VirtualOutbound => proposal::read(&mut value, body).map_err(invalid)?,
        _ => Vec::new(),
    };
    let misshapen = |mut error: ShapeError| {
        error.path = match error.path {
            path if body.is_empty() => path,
            path if path == "." => body.to_owned(),
            path => format!("{body}.{path}"),
        };
        Error::Shape { kind, error }
    };
    let value = match kind.descriptor().form {
        Form::Inline => shape::without_nulls(kind, value).map_err(misshapen)?,
        Form::Spec => {
            let found = shape::check_spec(kind, &value).into_result();
            found.map_err(invalid)?;
            value
        }
    };
    let mut unknown = Vec::new();
    let mut spec = Spec::from_json(kind, value, &mut unknown).map_err(misshapen)?;
    spec.apply_defaults();
    let body = Path::new(body);
    unknown_fields.extend(unknown.into_iter().map(|field| body.field(&field).into()));
    Ok((spec, advice))
}

/// Takes a string field out of the object; absent and `null` are the same.
pub(crate) fn take_string(fields: &mut Map<String, Value>, field: &str) -> Result<Option<String>, Error> {
    match fields.shift_remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(_) => Err(Error::NotAString { field: field.to_owned() }),
    }
}

/// Takes a map of strings, such as labels, out of the object.
pub(crate) fn take_labels(fields: &mut Map<String, Value>, field: &str) -> Result<crate::Labels, Error> {
    let not_a_string = |key: &str| Error::NotAString { field: format!("{field}[{key:?}]") };
    match fields.shift_remove(field) {
        None | Some(Value::Null) => Ok(crate::Labels::new()),
        Some(Value::Object(entries)) => entries
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(value) => Ok((key, value)),
                _ => Err(not_a_string(&key)),
            })
            .collect(),
        Some(_) => Err(Error::NotAMapping { field: field.to_owned() }),
    }
}
