//! Access logs of requests and connections.

use accesslog::{
    access_log::ConfigType, access_log_filter::FilterSpecifier, extension_filter::ConfigType as FilterConfig,
};
use envoy_types::pb::{
    envoy::{
        config::{accesslog::v3 as accesslog, core::v3 as core},
        extensions::access_loggers::{
            filters::cel::v3::ExpressionFilter, open_telemetry::v3::OpenTelemetryAccessLogConfig,
        },
    },
    opentelemetry::proto::common::v1 as otlp,
};
use plan::{AccessLog, AccessLogFormat, LogFilter, LogSink, Record, RecordValue};
use policy::ClientMatch;
use prost::{Message, Name};
use prost_types::{Struct, Value, value::Kind};

use crate::{
    proto::{any, inline},
    telemetry::{grpc_to, http_to},
};

/// Name of the log in records of OpenTelemetry.
const LOG_NAME: &str = "MeshAccessLog";

/// `envoy.extensions.access_loggers.file.v3.FileAccessLog`, of which a format may be a map: the generated type
/// keeps it in random order.
#[derive(Clone, PartialEq, Message)]
struct FileAccessLog {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "5")]
    log_format: Option<LogFormat>,
}

impl Name for FileAccessLog {
    const NAME: &'static str = "FileAccessLog";
    const PACKAGE: &'static str = "envoy.extensions.access_loggers.file.v3";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

/// `envoy.config.core.v3.SubstitutionFormatString`.
#[derive(Clone, PartialEq, Message)]
struct LogFormat {
    #[prost(message, optional, tag = "2")]
    json_format: Option<Struct>,
    #[prost(bool, tag = "3")]
    omit_empty_values: bool,
    #[prost(message, optional, tag = "5")]
    text_format_source: Option<core::DataSource>,
}

/// The logs of a listener in Envoy's words.
pub(crate) fn of(logs: &[AccessLog]) -> Vec<accesslog::AccessLog> {
    logs.iter().map(one).collect()
}

/// A log is about clients that ask for a certain server name.
pub(crate) fn asks_for_server_names(logs: &[AccessLog]) -> bool {
    logs.iter().any(|log| matches!(&log.only, LogFilter::Client(ClientMatch::Sni { .. })))
}

fn one(log: &AccessLog) -> accesslog::AccessLog {
    let (name, config) = match &log.sink {
        LogSink::File { path, line } => ("envoy.access_loggers.file", any(&file(path, written(line)))),
        LogSink::Agent { pipe, address, line } => {
            ("envoy.access_loggers.file", any(&file(pipe, for_agent(address, line))))
        }
        LogSink::OpenTelemetry(record) => ("envoy.access_loggers.open_telemetry", any(&otel(record))),
    };
    accesslog::AccessLog {
        name: name.to_owned(),
        filter: condition(&log.only).map(filter),
        config_type: Some(ConfigType::TypedConfig(config)),
    }
}

fn file(path: &str, log_format: LogFormat) -> FileAccessLog {
    FileAccessLog { path: path.to_owned(), log_format: Some(log_format) }
}

fn written(line: &AccessLogFormat) -> LogFormat {
    match line {
        AccessLogFormat::Text { text, omit_empty } => LogFormat {
            text_format_source: Some(inline(text)),
            omit_empty_values: *omit_empty,
            json_format: None,
        },
        AccessLogFormat::Json { fields, omit_empty } => LogFormat {
            json_format: Some(map(fields)),
            omit_empty_values: *omit_empty,
            text_format_source: None,
        },
    }
}

/// A line that says where it is to be sent.
fn for_agent(address: &str, line: &AccessLogFormat) -> LogFormat {
    let (message, omit_empty) = match line {
        AccessLogFormat::Text { text, omit_empty } => (string(text), omit_empty),
        AccessLogFormat::Json { fields, omit_empty } => {
            (Value { kind: Some(Kind::StructValue(map(fields))) }, omit_empty)
        }
    };
    // What stands in a format is read for operators.
    let address = string(&address.replace('%', "%%"));
    let fields = [("address".to_owned(), address), ("message".to_owned(), message)];
    LogFormat {
        json_format: Some(Struct { fields: fields.into() }),
        omit_empty_values: *omit_empty,
        text_format_source: None,
    }
}

fn map(fields: &[(String, String)]) -> Struct {
    Struct { fields: fields.iter().map(|(key, value)| (key.clone(), string(value))).collect() }
}

fn string(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn otel(record: &Record) -> OpenTelemetryAccessLogConfig {
    let list = |pairs: &[(String, String)]| {
        let values = pairs.iter().map(|(key, text)| key_value(key, &RecordValue::Text(text.clone())));
        otlp::KeyValueList { values: values.collect() }
    };
    OpenTelemetryAccessLogConfig {
        log_name: LOG_NAME.to_owned(),
        grpc_service: record.url.is_none().then(|| grpc_to(&record.cluster)),
        http_service: record.url.as_ref().map(|url| http_to(&record.cluster, url)),
        body: Some(value(&record.body)),
        attributes: (!record.attributes.is_empty()).then(|| list(&record.attributes)),
        resource_attributes: Some(list(&record.resource)),
        ..Default::default()
    }
}

fn value(of: &RecordValue) -> otlp::AnyValue {
    use otlp::any_value::Value;
    let value = match of {
        RecordValue::Text(text) => Value::StringValue(text.clone()),
        RecordValue::List(items) => {
            Value::ArrayValue(otlp::ArrayValue { values: items.iter().map(value).collect() })
        }
        RecordValue::Map(fields) => Value::KvlistValue(otlp::KeyValueList {
            values: fields.iter().map(|(key, of)| key_value(key, of)).collect(),
        }),
    };
    otlp::AnyValue { value: Some(value) }
}

fn key_value(key: &str, of: &RecordValue) -> otlp::KeyValue {
    otlp::KeyValue { key: key.to_owned(), value: Some(value(of)), ..Default::default() }
}

/// The expression that says what is logged; `None` for everything.
fn condition(only: &LogFilter) -> Option<String> {
    match only {
        LogFilter::Everything => None,
        LogFilter::Client(client) => client_condition(client),
        LogFilter::Routes(names) => Some(takes_one_of(names)),
        LogFilter::OtherRoutes(names) => Some(format!("!({})", takes_one_of(names))),
    }
}

fn takes_one_of(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("has(xds.route_name) && xds.route_name in [{}]", quoted.join(", "))
}

fn client_condition(client: &ClientMatch) -> Option<String> {
    const IDENTITY: &str = "connection.uri_san_peer_certificate";
    match client {
        ClientMatch::SpiffeExact(id) => Some(format!("{IDENTITY} == {}", quoted(id.as_str()))),
        ClientMatch::SpiffePrefix(prefix) => {
            Some(format!("{IDENTITY}.startsWith({})", quoted(prefix.as_str())))
        }
        ClientMatch::Sni { sni, spiffe } => {
            let asked = format!("connection.requested_server_name == {}", quoted(sni));
            match spiffe.as_deref().and_then(client_condition) {
                Some(identity) => Some(format!("{identity} && {asked}")),
                None => Some(asked),
            }
        }
        ClientMatch::Anyone | ClientMatch::Tags(_) => None,
    }
}

/// A text as expressions write it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn filter(expression: String) -> accesslog::AccessLogFilter {
    let config = ExpressionFilter { expression, ..Default::default() };
    let extension = accesslog::ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(FilterConfig::TypedConfig(any(&config))),
    };
    accesslog::AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(extension)) }
}
