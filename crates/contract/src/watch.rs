//! Lines of a list that goes on.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line of `GET {list}?watch=true`. A client resumes after the revision of the last `BOOKMARK`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "UPPERCASE")]
pub enum WatchEvent {
    /// A resource that is in the list now.
    Added { revision: u64, object: Value },
    /// A resource that was in the list before.
    Modified { revision: u64, object: Value },
    /// A resource that is not in the list any more.
    Deleted { revision: u64, object: DeletedResource },
    /// Position of the stream: every change until this revision was sent.
    Bookmark { revision: u64 },
}

/// Remains of a resource that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct DeletedResource {
    pub r#type: Cow<'static, str>,
    /// Absent for a global resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    pub name: String,
}
