//! Documents that are passed on as they were written or sent, with everything this client does not know.

use contract::lenient::read_partly;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

/// Gives a document fields; the others stay as they are, and where they are.
pub fn overwrite(document: &mut Value, fields: &impl Serialize) {
    if let (Value::Object(all), Ok(Value::Object(new))) = (document, serde_json::to_value(fields)) {
        all.extend(new);
    }
}

/// Parts of a document as they were sent, `null` included; those of one that is not as it should be are empty.
pub fn parts<T: DeserializeOwned + Default>(document: &Value) -> T {
    T::deserialize(document).unwrap_or_default()
}

/// Fields that tell a resource, in either form.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DocumentHeader {
    /// Present in the Kubernetes form.
    pub api_version: Option<IgnoredAny>,
    pub r#type: Option<Value>,
    pub kind: Option<String>,
    pub mesh: String,
    pub name: Option<String>,
    pub metadata: DocumentMetadata,
}

/// Metadata of the Kubernetes form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DocumentMetadata {
    pub name: Option<String>,
    pub namespace: Option<String>,
}

impl DocumentHeader {
    pub fn of(document: &Value) -> DocumentHeader {
        read_partly(document)
    }

    pub fn is_kubernetes(&self) -> bool {
        self.api_version.is_some()
    }

    /// The kind, as either form names it; empty for what has none.
    pub fn kind(&self) -> &str {
        let named = if self.is_kubernetes() {
            self.kind.as_deref()
        } else {
            self.r#type.as_ref().and_then(Value::as_str)
        };
        named.unwrap_or_default()
    }
}
