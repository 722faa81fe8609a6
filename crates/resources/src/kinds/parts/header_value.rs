//! Values of headers that Envoy writes: text with command operators such as `%REQ(x-name):20%`.
//!
//! Envoy refuses all of its configuration for one value that it cannot read, so a value is read here first.

use crate::{Path, Violations};

/// Envoy's limit for the value of a header.
const MAX_BYTES: usize = 16384;

/// Operators that take nothing.
const PLAIN: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "STREAM_ID",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

/// Checks a value that Envoy reads operators in.
pub(crate) fn validate(value: &str, path: &Path, found: &mut Violations) {
    validate_text(value, path, found);
    if let Err(reason) = check(value) {
        found.add(path, reason.to_string());
    }
}

/// Checks a text that Envoy writes into a header as it is.
pub(crate) fn validate_text(value: &str, path: &Path, found: &mut Violations) {
    let plain = value.chars().all(|c| c == '\t' || !c.is_control());
    found.require(plain, path, "must not contain control characters");
    found.require(value.len() <= MAX_BYTES, path, format!("must not be longer than {MAX_BYTES} bytes"));
}

/// Operator in a value that Envoy would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum HeaderValueError {
    #[error(
        "% begins a command operator of Envoy, such as %REQ(x-name)%, and there is none at {0:?}; write %% for a \
         percent sign"
    )]
    NoOperator(String),
    #[error("{token:?} cannot be read by Envoy: {reason}")]
    Operator { token: String, reason: &'static str },
}

/// Checks the operators in a value as Envoy does.
fn check(value: &str) -> Result<(), HeaderValueError> {
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        let tail = &rest[at..];
        if let Some(literal) = tail.strip_prefix("%%") {
            rest = literal;
            continue;
        }
        let none = || HeaderValueError::NoOperator(tail.chars().take(30).collect());
        let operator = Operator::read(tail).ok_or_else(none)?;
        operator.check()?;
        rest = &tail[operator.token.len()..];
    }
    Ok(())
}

/// An operator with what was given to it.
struct Operator<'a> {
    /// The whole of it, with the percent signs.
    token: &'a str,
    name: &'a str,
    /// Empty without parentheses.
    argument: &'a str,
    limit: Option<&'a str>,
}

impl<'a> Operator<'a> {
    /// Reads the operator that a text begins with.
    fn read(text: &'a str) -> Option<Operator<'a>> {
        let inner = text.strip_prefix('%')?;
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let (name, mut rest) = inner.split_at(inner.find(|c| !is_name(c))?);
        let mut argument = "";
        if let Some((inside, after)) = rest.strip_prefix('(').and_then(|open| open.split_once(')')) {
            (argument, rest) = (inside, after);
        }
        let mut limit = None;
        if let Some(number) = rest.strip_prefix(':') {
            let (digits, after) = number.split_at(number.find(|c: char| !c.is_ascii_digit())?);
            (limit, rest) = (Some(digits), after);
        }
        let after = rest.strip_prefix('%')?;
        // Envoy reads the limit as a number of a machine word.
        let fits = limit.is_none_or(|limit| limit.parse::<u32>().is_ok());
        let token = &text[..text.len() - after.len()];
        (!name.is_empty() && fits).then_some(Operator { token, name, argument, limit })
    }

    fn check(&self) -> Result<(), HeaderValueError> {
        let Operator { token, argument, limit, .. } = self;
        let wrong = |reason| Err(HeaderValueError::Operator { token: (*token).to_owned(), reason });
        match OperatorArguments::of(self.name) {
            None => wrong("there is no such operator; write %% for a percent sign"),
            Some(OperatorArguments::Nothing) if !argument.is_empty() || limit.is_some() => {
                wrong("the operator takes neither an argument nor a length")
            }
            Some(OperatorArguments::Time) if limit.is_some() || has_newline(argument) => {
                wrong("the operator takes a format of a time without %n, and no length")
            }
            Some(OperatorArguments::Header) if !are_headers(argument) => {
                wrong("the operator needs the name of a header, or of two with ? between them")
            }
            Some(OperatorArguments::State) if !is_state(argument) => {
                wrong("the operator needs a key, and then nothing, :PLAIN, :TYPED or :FIELD:<name>")
            }
            Some(OperatorArguments::Key { .. }) if argument.is_empty() => {
                wrong("the operator needs a key in parentheses")
            }
            Some(OperatorArguments::Key { length: false }) if limit.is_some() => {
                wrong("the operator takes no length")
            }
            Some(_) => Ok(()),
        }
    }
}

/// Arguments of an operator.
enum OperatorArguments {
    Nothing,
    /// A format of a time, or nothing.
    Time,
    /// The name of a header, maybe of another one behind `?`, and a length.
    Header,
    /// A key of filter state, and a length.
    State,
    Key {
        length: bool,
    },
}

impl OperatorArguments {
    /// `None` where there is no such operator.
    fn of(operator: &str) -> Option<OperatorArguments> {
        match operator {
            "REQ" | "RESP" | "TRAILER" => Some(OperatorArguments::Header),
            "START_TIME"
            | "EMIT_TIME"
            | "DOWNSTREAM_PEER_CERT_V_START"
            | "DOWNSTREAM_PEER_CERT_V_END"
            | "UPSTREAM_PEER_CERT_V_START"
            | "UPSTREAM_PEER_CERT_V_END" => Some(OperatorArguments::Time),
            "FILTER_STATE" | "UPSTREAM_FILTER_STATE" => Some(OperatorArguments::State),
            "DYNAMIC_METADATA" | "ENVIRONMENT" => Some(OperatorArguments::Key { length: true }),
            "CLUSTER_METADATA" | "UPSTREAM_METADATA" => Some(OperatorArguments::Key { length: false }),
            plain => PLAIN.contains(&plain).then_some(OperatorArguments::Nothing),
        }
    }
}

fn are_headers(argument: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$&'*+-.^_`|~:".contains(c);
    let names: Vec<&str> = argument.split('?').collect();
    names.len() <= 2 && !argument.is_empty() && names.iter().all(|name| name.chars().all(is_name))
}

fn is_state(argument: &str) -> bool {
    match argument.split(':').collect::<Vec<_>>()[..] {
        [key] | [key, "PLAIN" | "TYPED"] => !key.is_empty(),
        [key, "FIELD", field] => !key.is_empty() && !field.is_empty(),
        _ => false,
    }
}

/// True for time formats with `%n`, also with flags and a width.
fn has_newline(format: &str) -> bool {
    let is_width = |c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '^' | '#' | 'E' | 'O');
    format.split('%').skip(1).any(|specifier| specifier.trim_start_matches(is_width).starts_with('n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(value: &str) -> Vec<String> {
        let mut found = Violations::default();
        validate(value, &Path::new("value"), &mut found);
        found.into_vec().into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn text_and_operators_that_envoy_reads_are_fine() {
        for value in [
            "",
            "plain, text\tand é",
            "5%% of %REQ(x-name)%",
            "%%REQ(a)%%",
            "%PROTOCOL%%PROTOCOL()%",
            "%REQ(x-path?:path):20% %RESP(a)% %TRAILER(?b)%",
            "%START_TIME% %START_TIME(%Y/%m/%dT%H:%M:%S%z)% %DOWNSTREAM_PEER_CERT_V_END(%b)%",
            "%DYNAMIC_METADATA(a:b):5% %UPSTREAM_METADATA([\"a\", \"b\"])% %ENVIRONMENT(HOME):3%",
            "%FILTER_STATE(key)% %FILTER_STATE(key:PLAIN):3% %FILTER_STATE(key:FIELD:name)%",
        ] {
            assert_eq!(violations(value), Vec::<String>::new(), "{value}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let none = |at: &str| {
            format!(
                "% begins a command operator of Envoy, such as %REQ(x-name)%, and there is none at {at:?}; write %% \
                 for a percent sign"
            )
        };
        for (value, at) in [
            ("5%", "%"),
            ("a%b", "%b"),
            ("%req(a)%", "%req(a)%"),
            ("%REQ(a)", "%REQ(a)"),
            ("%%%", "%"),
            ("%%REQ(a)%", "%"),
            ("%REQ(a):x%", "%REQ(a):x%"),
            ("%REQ(a)b)%", "%REQ(a)b)%"),
            ("%REQ(a):99999999999999999999999%", "%REQ(a):9999999999999999999999"),
        ] {
            assert_eq!(violations(value), [none(at)], "{value}");
        }
        for (value, token, why) in [
            ("%FOO%", "%FOO%", "there is no such operator; write %% for a percent sign"),
            ("%PROTOCOL:5%", "%PROTOCOL:5%", "the operator takes neither an argument nor a length"),
            (
                "%START_TIME(%-3n)%",
                "%START_TIME(%-3n)%",
                "the operator takes a format of a time without %n, and no length",
            ),
            ("%REQ%", "%REQ%", "the operator needs the name of a header, or of two with ? between them"),
            (
                "%REQ(a?b?c)%",
                "%REQ(a?b?c)%",
                "the operator needs the name of a header, or of two with ? between them",
            ),
            (
                "%REQ(a b)%",
                "%REQ(a b)%",
                "the operator needs the name of a header, or of two with ? between them",
            ),
            (
                "%FILTER_STATE(x:NOPE)%",
                "%FILTER_STATE(x:NOPE)%",
                "the operator needs a key, and then nothing, :PLAIN, :TYPED or :FIELD:<name>",
            ),
            ("%ENVIRONMENT%", "%ENVIRONMENT%", "the operator needs a key in parentheses"),
            ("%UPSTREAM_METADATA(a):3%", "%UPSTREAM_METADATA(a):3%", "the operator takes no length"),
        ] {
            assert_eq!(violations(value), [format!("{token:?} cannot be read by Envoy: {why}")], "{value}");
        }
        assert_eq!(violations("a\nb"), ["must not contain control characters"]);
        assert_eq!(violations(&"a".repeat(16385)), ["must not be longer than 16384 bytes"]);
    }
}
