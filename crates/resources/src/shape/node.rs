//! The schema of a kind in the form that checking needs.

use std::collections::HashMap;

use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use crate::{Kind, naming::dns};

/// Constraints on one value.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Empty where anything may stand.
    pub types: Vec<Type>,
    pub words: Vec<Value>,
    pub required: Vec<String>,
    pub fields: HashMap<String, Node>,
    /// The values of a map.
    pub values: Option<Box<Node>>,
    pub items: Option<Box<Node>>,
    pub range: Bounds,
    /// Numbers of 32 bits. Kuma's schemas call those without a sign `int32`, too.
    pub int32: bool,
    pub length: Bounds,
    pub count: Bounds,
    pub pattern: Option<Pattern>,
}

/// The least and the most that is allowed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub least: Option<i64>,
    pub most: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn by_name(name: &str) -> Option<Type> {
        use Type as T;
        [T::Object, T::Array, T::String, T::Integer, T::Number, T::Boolean]
            .into_iter()
            .find(|known| known.name() == name)
    }
}

/// The patterns that schemas use; a regular expression engine for two of them would be a large dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Hostname,
    HeaderName,
    AttributeName,
}

pub(crate) const HOSTNAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The name of an attribute of OpenTelemetry.
pub(crate) const ATTRIBUTE_NAME: &str = "^[a-z]([a-z0-9]|[._][a-z0-9])*$";
pub(crate) const HEADER_NAME: &str = r"^[a-z0-9!#$%&'*+\-.^_\x60|~]+$";

impl Pattern {
    pub(super) fn text(self) -> &'static str {
        match self {
            Pattern::Hostname => HOSTNAME,
            Pattern::HeaderName => HEADER_NAME,
            Pattern::AttributeName => ATTRIBUTE_NAME,
        }
    }

    pub(super) fn by_text(text: &str) -> Option<Pattern> {
        [Pattern::Hostname, Pattern::HeaderName, Pattern::AttributeName]
            .into_iter()
            .find(|known| known.text() == text)
    }

    pub(super) fn matches(self, value: &str) -> bool {
        match self {
            Pattern::Hostname => value.split('.').all(dns::has_1123_label_shape),
            Pattern::HeaderName => !value.is_empty() && value.bytes().all(is_header_name_byte),
            Pattern::AttributeName => {
                let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
                let word = |word: &str| !word.is_empty() && word.bytes().all(plain);
                value.starts_with(|c: char| c.is_ascii_lowercase()) && value.split(['.', '_']).all(word)
            }
        }
    }
}

/// True for bytes that may stand in the name of a header; Envoy compares names in lower case.
pub(crate) fn is_header_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl Node {
    pub(super) fn of(kind: Kind) -> Node {
        let mut generator = SchemaGenerator::default();
        let schema = kind.json_schema(&mut generator).to_value();
        let definitions = generator.take_definitions(true);
        let mut node = Node::default();
        node.add(&schema, &definitions);
        node
    }

    /// Adds what a schema says. Kinds are not recursive, so following references ends.
    fn add(&mut self, schema: &Value, definitions: &Map<String, Value>) {
        let referred = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
        if let Some(definition) = referred.and_then(|name| definitions.get(name)) {
            self.add(definition, definitions);
        }
        for choice in ["anyOf", "oneOf"] {
            for option in list(&schema[choice]).iter().filter(|option| option["type"] != "null") {
                self.add(option, definitions);
            }
        }
        let types = schema["type"].as_str().into_iter().chain(strings(&schema["type"]));
        self.types.extend(types.filter_map(Type::by_name));
        let words: Vec<Value> =
            list(&schema["enum"]).iter().filter(|word| !word.is_null()).cloned().collect();
        if !words.is_empty() {
            self.words = words;
        }
        self.required.extend(strings(&schema["required"]).map(str::to_owned));
        for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
            self.fields.entry(field.clone()).or_default().add(inner, definitions);
        }
        for (place, inner) in
            [(&mut self.values, &schema["additionalProperties"]), (&mut self.items, &schema["items"])]
        {
            if inner.is_object() {
                place.get_or_insert_default().add(inner, definitions);
            }
        }
        self.int32 |= matches!(schema["format"].as_str(), Some("int32" | "uint32"));
        self.range.add(&schema["minimum"], &schema["maximum"]);
        self.length.add(&schema["minLength"], &schema["maxLength"]);
        self.count.add(&schema["minItems"], &schema["maxItems"]);
        self.pattern = schema["pattern"].as_str().and_then(Pattern::by_text).or(self.pattern);
    }
}

impl Bounds {
    fn add(&mut self, least: &Value, most: &Value) {
        self.least = least.as_i64().or(self.least);
        self.most = most.as_i64().or(self.most);
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    list(value).iter().filter_map(Value::as_str)
}
