//! Identity of the proxy: its id, which may not change within a stream, and its metadata.

use prost_types::{Struct, Value, value::Kind};
use serde_json::{Map, Number};

use crate::{action::Error, message::Node};

/// The id of the proxy on a stream, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamIdentity {
    id: Option<String>,
}

impl StreamIdentity {
    /// The first request must tell who asks; later ones may leave it out.
    pub(crate) fn check(&mut self, node: Option<&Node>) -> Result<(), Error> {
        let told = node.map(|node| node.id.as_str()).filter(|id| !id.is_empty());
        match (&self.id, told) {
            (None, None) => Err(Error::NodeMissing),
            (None, Some(id)) => {
                self.id = Some(id.to_owned());
                Ok(())
            }
            (Some(was), Some(is)) if was != is => {
                Err(Error::NodeChanged { was: was.clone(), is: is.to_owned() })
            }
            (Some(_), _) => Ok(()),
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// Reads single values of node metadata.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a>(Option<&'a Struct>);

/// The metadata of a node, empty when it has none.
pub fn metadata(node: &Node) -> Metadata<'_> {
    Metadata(node.metadata.as_ref())
}

impl<'a> Metadata<'a> {
    fn kind(self, key: &str) -> Option<&'a Kind> {
        self.0?.fields.get(key)?.kind.as_ref()
    }

    pub fn string(self, key: &str) -> Option<&'a str> {
        match self.kind(key)? {
            Kind::StringValue(text) => Some(text),
            _ => None,
        }
    }

    pub fn bool(self, key: &str) -> Option<bool> {
        match self.kind(key)? {
            Kind::BoolValue(value) => Some(*value),
            _ => None,
        }
    }

    /// The strings of a list; whatever else is in it is left out.
    pub fn strings(self, key: &str) -> Vec<&'a str> {
        let Some(Kind::ListValue(list)) = self.kind(key) else { return Vec::new() };
        let text = |value: &'a Value| match value.kind.as_ref()? {
            Kind::StringValue(text) => Some(text.as_str()),
            _ => None,
        };
        list.values.iter().filter_map(text).collect()
    }

    /// Everything, as the JSON object it was made from.
    pub fn to_json(self) -> serde_json::Value {
        self.0.map_or_else(|| serde_json::Value::Object(Map::new()), to_json)
    }
}

/// A `google.protobuf.Struct` as JSON. Whole numbers have no decimal point; what JSON cannot say is null.
pub fn to_json(fields: &Struct) -> serde_json::Value {
    fields.fields.iter().map(|(key, value)| (key.clone(), value_to_json(value))).collect::<Map<_, _>>().into()
}

fn value_to_json(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => (*value).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::NumberValue(number)) => number_to_json(*number),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_to_json).collect(),
        Some(Kind::StructValue(fields)) => to_json(fields),
    }
}

fn number_to_json(number: f64) -> serde_json::Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[allow(clippy::cast_possible_truncation, reason = "a whole number within the exact range")]
        return (number as i64).into();
    }
    Number::from_f64(number).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn node() -> Node {
        let list = prost_types::ListValue {
            values: vec![value(Kind::StringValue("a".into())), value(Kind::NumberValue(1.0))],
        };
        let inner = Struct { fields: [("n".to_owned(), value(Kind::NumberValue(1.5)))].into() };
        let fields = [
            ("port", Kind::StringValue("9901".into())),
            ("count", Kind::NumberValue(3.0)),
            ("on", Kind::BoolValue(true)),
            ("none", Kind::NullValue(0)),
            ("nan", Kind::NumberValue(f64::NAN)),
            ("features", Kind::ListValue(list)),
            ("version", Kind::StructValue(inner)),
        ];
        let fields = fields.into_iter().map(|(key, kind)| (key.to_owned(), value(kind))).collect();
        Node { id: "default.web".into(), metadata: Some(Struct { fields }), ..Node::default() }
    }

    #[test]
    fn metadata_is_read_by_type() {
        let node = node();
        let metadata = metadata(&node);
        assert_eq!(metadata.string("port"), Some("9901"));
        assert_eq!(metadata.string("on"), None);
        assert_eq!(metadata.bool("on"), Some(true));
        assert_eq!(metadata.bool("missing"), None);
        assert_eq!(metadata.strings("features"), ["a"]);
        assert!(metadata.strings("port").is_empty());
    }

    #[test]
    fn metadata_becomes_the_json_it_came_from() {
        let expected = serde_json::json!({
            "port": "9901", "count": 3, "on": true, "none": null, "nan": null,
            "features": ["a", 1], "version": {"n": 1.5},
        });
        assert_eq!(metadata(&node()).to_json(), expected);
        assert_eq!(metadata(&Node::default()).to_json(), serde_json::json!({}));
    }
}
