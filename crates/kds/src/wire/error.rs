use resources::{Key, Kind};

use super::Fault;

/// Reason that a resource has no encoding, or that bytes are no resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("resources of kind {kind} are not synchronised")]
    NotSynced { kind: Kind },
    #[error("cannot encode {key}: {field}: {reason}")]
    Encode { key: Key, field: String, reason: String },
    /// The field is empty where the bytes as a whole are damaged.
    #[error("cannot decode {resource}: {}{reason}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
    Decode { resource: String, field: String, reason: String },
}

impl Error {
    pub(super) fn decode(resource: String, fault: Fault) -> Error {
        Error::Decode { resource, field: fault.path, reason: fault.reason }
    }
}
