//! A YAML document whose every value knows its place in the file.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

/// A line and a column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineColumn {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A mapping, or anything else as a plain value.
#[derive(Debug)]
pub(super) enum YamlNode {
    Mapping(Vec<YamlEntry>),
    Value(Value),
}

/// A key, where it stands, and what it stands for.
#[derive(Debug)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) place: LineColumn,
    pub(super) node: YamlNode,
}

impl YamlNode {
    /// The node as a plain value, for those who do not care where it stands.
    pub(super) fn into_value(self) -> Value {
        match self {
            YamlNode::Value(value) => value,
            YamlNode::Mapping(pairs) => {
                Value::Object(pairs.into_iter().map(|pair| (pair.key, pair.node.into_value())).collect())
            }
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(value.into()))
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(Value::Null))
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Value(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let mut values = Vec::new();
        while let Some(node) = items.next_element::<YamlNode>()? {
            values.push(node.into_value());
        }
        Ok(YamlNode::Value(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlNode, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, node)) = entries.next_entry::<Spanned<String>, YamlNode>()? {
            let place = LineColumn { line: key.referenced.line(), column: key.referenced.column() };
            pairs.push(YamlEntry { key: key.value, place, node });
        }
        Ok(YamlNode::Mapping(pairs))
    }
}
