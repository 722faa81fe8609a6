//! Backend of a log, and the format of its lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::format;
use crate::{
    Path, Violations,
    kinds::{checks, host_port::HostPort, mesh_open_telemetry_backend::BackendRef, open_enum::open_enum},
    shape,
};

open_enum! {
    /// Type of the receiver of a log.
    BackendType { Tcp = "Tcp", File = "File", OpenTelemetry = "OpenTelemetry" }
}

/// Receiver of a log; the field of its type is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Backend {
    /// Type of the receiver; the field of this name has its settings.
    #[serde(rename = "type", skip_serializing_if = "BackendType::is_absent")]
    pub type_: BackendType,
    /// Settings of type `Tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpBackend>,
    /// Settings of type `File`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FileBackend>,
    /// Settings of type `OpenTelemetry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetryBackend>,
}

/// A server that takes lines over TCP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["address"]))]
pub struct TcpBackend {
    /// Format of a line; Kuma's default format if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The server's address as `host:port`.
    #[schemars(length(min = 1))]
    pub address: String,
}

/// A file on the machine of the proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["path"]))]
pub struct FileBackend {
    /// Format of a line; Kuma's default format if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The absolute path of the file; Envoy appends to it.
    #[schemars(length(min = 1))]
    pub path: String,
}

/// A collector of OpenTelemetry, by `backendRef` or, as before, by `endpoint`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetryBackend {
    /// Attributes of each log record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<Attribute>>,
    /// The body of each log record: text, or a value as OpenTelemetry writes it in JSON (`kvlistValue`,
    /// `arrayValue`, `stringValue`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The collector's address as `host:port`, port 4317 by default; deprecated, use `backendRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// The MeshOpenTelemetryBackend that describes the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendRef>,
}

/// An attribute of each record; its value may have operators.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key", "value"]))]
pub struct Attribute {
    /// The attribute's name, in lower case with dots and underscores.
    #[schemars(extend("pattern" = shape::ATTRIBUTE_NAME))]
    pub key: String,
    /// The attribute's value; operators such as `%DURATION%` are replaced.
    pub value: String,
}

open_enum! {
    /// Type of a line's format.
    FormatType { Plain = "Plain", Json = "Json" }
}

/// Format of a line of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Format {
    /// Type of a line: text or JSON.
    #[serde(rename = "type", skip_serializing_if = "FormatType::is_absent")]
    pub type_: FormatType,
    /// The text of a line, with operators such as `%RESPONSE_CODE%`; for type `Plain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<String>,
    /// The fields of a line; for type `Json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<Vec<JsonValue>>,
    /// Leave out values that are empty in place of writing `-`; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omit_empty_values: Option<bool>,
}

/// A field of a line of JSON; its value may have operators.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key", "value"]))]
pub struct JsonValue {
    /// The name of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The field's value; operators such as `%START_TIME%` are replaced.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

impl Backend {
    pub(super) fn apply_defaults(&mut self) {
        let formats = [
            self.tcp.as_mut().and_then(|tcp| tcp.format.as_mut()),
            self.file.as_mut().and_then(|file| file.format.as_mut()),
        ];
        for format in formats.into_iter().flatten() {
            format.omit_empty_values.get_or_insert(false);
        }
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let missing = |field: &str, found: &mut Violations| {
            found.add(path.field(field), checks::MUST_BE_DEFINED);
        };
        match (&self.type_, &self.tcp, &self.file, &self.open_telemetry) {
            (BackendType::File, _, Some(file), _) => file.validate(&path.field("file"), found),
            (BackendType::File, ..) => missing("file", found),
            (BackendType::Tcp, Some(tcp), ..) => tcp.validate(&path.field("tcp"), found),
            (BackendType::Tcp, ..) => missing("tcp", found),
            (BackendType::OpenTelemetry, .., Some(backend)) => {
                backend.validate(&path.field("openTelemetry"), found);
            }
            (BackendType::OpenTelemetry, ..) => missing("openTelemetry", found),
            (BackendType::Other(_), ..) => checks::known(&self.type_, path, "type", found),
        }
    }
}

impl Backend {
    /// Every text of its lines in which operators are replaced; `None` where the usual format is used.
    pub fn texts(&self) -> Option<Vec<&str>> {
        if let Some(backend) = &self.open_telemetry {
            let mut texts = Vec::new();
            collect_texts(backend.body.as_ref()?, &mut texts);
            texts.extend(backend.attributes.iter().flatten().map(|attribute| attribute.value.as_str()));
            return Some(texts);
        }
        let of_tcp = self.tcp.as_ref().map(|tcp| tcp.format.as_ref());
        let format = of_tcp.or_else(|| self.file.as_ref().map(|file| file.format.as_ref())).flatten()?;
        match &format.json {
            Some(fields) => Some(fields.iter().map(|field| field.value.as_str()).collect()),
            None => Some(vec![format.plain.as_deref()?]),
        }
    }
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, texts)),
        _ => {}
    }
}

impl FileBackend {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(format) = &self.format {
            format.validate(&path.field("format"), found);
        }
        let valid = self.path.starts_with('/') && !self.path.ends_with('/') && !self.path.contains('\0');
        found.require(valid, path.field("path"), "file backend requires a valid path");
    }
}

impl TcpBackend {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(format) = &self.format {
            format.validate(&path.field("format"), found);
        }
        // Without a port nothing can be connected to.
        let valid = HostPort::with_port(&self.address).is_some();
        found.require(valid, path.field("address"), "tcp backend requires valid address");
    }
}

impl OpenTelemetryBackend {
    fn validate(&self, path: &Path, found: &mut Violations) {
        match (&self.endpoint, &self.backend_ref) {
            (Some(endpoint), None) => {
                let valid = HostPort::parse(endpoint).is_some();
                found.require(valid, path.field("endpoint"), "must be a valid host and port");
            }
            (None, Some(reference)) => reference.validate(&path.field("backendRef"), found),
            _ => found.add(path, "openTelemetry must have exactly one defined: endpoint, backendRef"),
        }
        for (i, attribute) in self.attributes.iter().flatten().enumerate() {
            let path = path.field("attributes").index(i);
            let reserved = attribute.key == "otel" || attribute.key.starts_with("otel.");
            found.require(
                !reserved,
                path.field("key"),
                "must not be in the namespace otel, which is reserved",
            );
            check(&attribute.value, &path.field("value"), found);
        }
        if let Some(body) = &self.body {
            validate_value(body, &path.field("body"), found);
        }
    }
}

/// Envoy fills in text, lists and maps of it, and nothing else.
fn validate_value(value: &Value, path: &Path, found: &mut Violations) {
    const KNOWN: &str = "must be text, or an object with one of stringValue, arrayValue, kvlistValue";
    if let Value::String(text) = value {
        return check(text, path, found);
    }
    let only = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let Some((kind, content)) = only else { return found.add(path, KNOWN) };
    let path = path.field(kind);
    let values = content.get("values").and_then(Value::as_array);
    match (kind.as_str(), content, values) {
        ("stringValue", Value::String(text), _) => check(text, &path, found),
        ("arrayValue", _, Some(values)) => {
            for (i, value) in values.iter().enumerate() {
                validate_value(value, &path.field("values").index(i), found);
            }
        }
        ("kvlistValue", _, Some(values)) => {
            for (i, entry) in values.iter().enumerate() {
                let path = path.field("values").index(i);
                let key = entry.get("key").and_then(Value::as_str).unwrap_or_default();
                found.require(!key.is_empty(), path.field("key"), checks::MUST_NOT_BE_EMPTY);
                validate_value(entry.get("value").unwrap_or(&Value::Null), &path.field("value"), found);
            }
        }
        _ => found.add(&path, KNOWN),
    }
}

impl Format {
    fn validate(&self, path: &Path, found: &mut Violations) {
        match self.type_ {
            FormatType::Plain => {
                let path = path.field("plain");
                match self.plain.as_deref() {
                    None => found.add(path, checks::MUST_BE_DEFINED),
                    Some("") => found.add(path, checks::MUST_NOT_BE_EMPTY),
                    Some(text) => check(text, &path, found),
                }
            }
            FormatType::Json => {
                let path = path.field("json");
                match self.json.as_deref() {
                    None => found.add(path, checks::MUST_BE_DEFINED),
                    Some([]) => found.add(path, checks::MUST_NOT_BE_EMPTY),
                    Some(fields) => {
                        fields
                            .iter()
                            .enumerate()
                            .for_each(|(i, field)| field.validate(&path.index(i), found));
                    }
                }
            }
            FormatType::Other(_) => checks::known(&self.type_, path, "type", found),
        }
    }
}

impl JsonValue {
    fn validate(&self, path: &Path, found: &mut Violations) {
        found.require(!self.key.is_empty(), path.field("key"), "key cannot be empty");
        found.require(!self.value.is_empty(), path.field("value"), "value cannot be empty");
        let object = format!("{{\"{}\": \"{}\"}}", self.key, self.value);
        let valid = serde_json::from_str::<Value>(&object).is_ok();
        found.require(valid, path, "is not a valid JSON object");
        check(&self.value, &path.field("value"), found);
    }
}

fn check(text: &str, path: &Path, found: &mut Violations) {
    if let Err(problem) = format::check(text) {
        found.add(path, problem.to_string());
    }
}
