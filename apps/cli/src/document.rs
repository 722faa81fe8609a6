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

/// The items of a list as they were sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SentItems {
    pub items: Vec<Value>,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_overwritten_keeps_its_place() {
        let mut document = json!({ "a": 1, "b": null, "c": 3 });
        overwrite(&mut document, &json!({ "b": 2, "d": 4 }));
        assert_eq!(document.to_string(), r#"{"a":1,"b":2,"c":3,"d":4}"#);
        let mut other = json!("no object");
        overwrite(&mut other, &json!({ "b": 2 }));
        assert_eq!(other, json!("no object"));
    }

    #[test]
    fn parts_are_passed_on_with_null_and_unknown_fields() {
        let sent = json!({ "items": [{ "next": null, "unknown": [1] }] });
        assert_eq!(parts::<SentItems>(&sent).items, [json!({ "next": null, "unknown": [1] })]);
        assert!(parts::<SentItems>(&json!({ "items": "none" })).items.is_empty());
    }

    #[test]
    fn the_kind_is_where_the_form_has_it() {
        let universal = json!({ "type": "Timeout", "kind": "Retry", "name": "a" });
        assert_eq!(DocumentHeader::of(&universal).kind(), "Timeout");
        let kubernetes = json!({ "apiVersion": "kuma.io/v1alpha1", "type": "Timeout", "kind": "Retry" });
        assert_eq!(DocumentHeader::of(&kubernetes).kind(), "Retry");
        assert_eq!(DocumentHeader::of(&json!({ "type": 5 })).kind(), "");
    }
}
