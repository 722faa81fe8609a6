//! Format of a line of an access log: text with command operators such as `%REQ(:METHOD)%`.
//!
//! Envoy refuses a whole listener because of one operator that it does not know. So operators are compared
//! with those of Envoy 1.40 when a policy is written.

/// Arguments that an operator takes in parentheses, and its support for cutting the result (`:7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperatorArguments {
    Nothing,
    Optional,
    OptionalAndLength,
    Arguments,
    ArgumentsAndLength,
}

/// The operators of Kuma, which the control plane replaces.
pub const PLACEHOLDERS: [&str; 8] = [
    "KUMA_DESTINATION_SERVICE",
    "KUMA_MESH",
    "KUMA_SOURCE_ADDRESS",
    "KUMA_SOURCE_ADDRESS_WITHOUT_PORT",
    "KUMA_SOURCE_SERVICE",
    "KUMA_TRAFFIC_DIRECTION",
    "KUMA_WORKLOAD",
    "KUMA_ZONE",
];

const ARGUMENTS: &str = "CLUSTER_METADATA COMMON_DURATION METADATA UPSTREAM_METADATA";

const ARGUMENTS_AND_LENGTH: &str = "CEL DYNAMIC_METADATA ENVIRONMENT FILTER_STATE QUERY_PARAM REQ \
     REQUEST_HEADER RESP RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ TRAILER TYPED_CEL \
     UPSTREAM_FILTER_STATE";

/// Those whose argument is the name of a header, or two of which the second one counts when the first is missing.
const HEADERS: &str = "REQ REQUEST_HEADER RESP RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ TRAILER";

const OPTIONAL: &str = "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT \
     DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START \
     DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT EMIT_TIME EMIT_TIME_LOCAL GRPC_STATUS REQUESTED_SERVER_NAME \
     RESPONSE_CODE_DETAILS START_TIME START_TIME_LOCAL UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT \
     UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT";

const OPTIONAL_AND_LENGTH: &str = "PATH QUERY_PARAMS";

const NOTHING: &str = "ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID \
     CONNECTION_TERMINATION_DETAILS CUSTOM_FLAGS DOWNSTREAM_CX_RTT \
     DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT \
     DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS \
     DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_DIRECT_LOCAL_PORT \
     DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION \
     DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS \
     DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_LOCAL_DNS_SAN \
     DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN \
     DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT \
     DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 \
     DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN \
     DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN \
     DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER_SERIAL \
     DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN \
     DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_GROUP \
     DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON \
     DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER \
     HOSTNAME LISTENER_NAME LOCAL_REPLY_BODY PACKETS_RETRANSMITTED PROTOCOL REQUEST_DURATION \
     REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION RESPONSE_FLAGS \
     RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION \
     ROUNDTRIP_DURATION ROUTE_NAME ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID STREAM_ID \
     TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW \
     UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION \
     UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT \
     UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST \
     UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME \
     UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT \
     UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_CLOSE_REASON \
     UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN \
     UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER \
     UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS \
     UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT \
     UPSTREAM_SERVER_NAME UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID \
     UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED \
     UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME";

const OPERATORS: [(&str, OperatorArguments); 5] = [
    (NOTHING, OperatorArguments::Nothing),
    (OPTIONAL, OperatorArguments::Optional),
    (OPTIONAL_AND_LENGTH, OperatorArguments::OptionalAndLength),
    (ARGUMENTS, OperatorArguments::Arguments),
    (ARGUMENTS_AND_LENGTH, OperatorArguments::ArgumentsAndLength),
];

fn takes(name: &str) -> Option<OperatorArguments> {
    if PLACEHOLDERS.contains(&name) {
        return Some(OperatorArguments::Nothing);
    }
    let lists = |(list, _): &&(&str, OperatorArguments)| list.split(' ').any(|known| known == name);
    OPERATORS.iter().find(lists).map(|(_, takes)| *takes)
}

/// Every operator that takes no arguments, those of Kuma included.
pub fn plain_operators() -> impl Iterator<Item = &'static str> {
    [NOTHING, OPTIONAL, OPTIONAL_AND_LENGTH].into_iter().flat_map(|list| list.split(' ')).chain(PLACEHOLDERS)
}

/// Every operator that needs arguments.
pub fn operators_with_arguments() -> impl Iterator<Item = &'static str> {
    [ARGUMENTS, ARGUMENTS_AND_LENGTH].into_iter().flat_map(|list| list.split(' '))
}

/// Operator that Envoy would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessLogFormatError {
    #[error("there is no command operator at {0:?}; write %% for a percent sign")]
    NoOperator(String),
    #[error("unknown command operator %{0}%")]
    UnknownOperator(String),
    #[error("command operator %{0}% needs arguments: %{0}(…)%")]
    NoArguments(String),
    #[error("command operator %{0}% needs the name of a header: %{0}(NAME?OTHER)%")]
    NoHeader(String),
    #[error("command operator %{0}% takes no arguments")]
    Arguments(String),
    #[error("command operator %{0}% takes no length")]
    Length(String),
}

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Operator(Operator<'a>),
}

#[derive(Debug, PartialEq, Eq)]
struct Operator<'a> {
    name: &'a str,
    arguments: Option<&'a str>,
    cut: bool,
    /// As it was written.
    whole: &'a str,
}

/// Takes a format apart; the error says where that fails.
fn pieces(format: &str) -> Result<Vec<Piece<'_>>, AccessLogFormatError> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (text, from) = rest.split_at(at);
        pieces.push(Piece::Text(text));
        if let Some(behind) = from.strip_prefix("%%") {
            pieces.push(Piece::Text("%%"));
            rest = behind;
            continue;
        }
        let none = || AccessLogFormatError::NoOperator(from.chars().take(40).collect());
        let operator = operator(from).ok_or_else(none)?;
        rest = &from[operator.whole.len()..];
        pieces.push(Piece::Operator(operator));
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// The operator that a text begins with: `%NAME%`, `%NAME(arguments)%` or `%NAME(arguments):7%`.
fn operator(text: &str) -> Option<Operator<'_>> {
    let inside = text.strip_prefix('%')?;
    let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let length = inside.bytes().take_while(|b| is_name(*b)).count();
    let (name, behind) = inside.split_at(length);
    if name.is_empty() {
        return None;
    }
    let end_of = |behind: &str| -> Option<(bool, usize)> {
        let digits =
            behind.strip_prefix(':').map(|digits| digits.bytes().take_while(u8::is_ascii_digit).count());
        let at = digits.map_or(0, |count| count + 1);
        let complete = digits != Some(0) && behind[at..].starts_with('%');
        complete.then_some((digits.is_some(), at + 1))
    };
    let whole = |behind: &str| &text[..text.len() - behind.len()];
    let Some(arguments) = behind.strip_prefix('(') else {
        let (cut, end) = end_of(behind)?;
        return Some(Operator { name, arguments: None, cut, whole: whole(&behind[end..]) });
    };
    // The first parenthesis that ends the operator: arguments may hold others.
    arguments.match_indices(')').find_map(|(at, _)| {
        let behind = &arguments[at + 1..];
        let (cut, end) = end_of(behind)?;
        Some(Operator { name, arguments: Some(&arguments[..at]), cut, whole: whole(&behind[end..]) })
    })
}

/// Checks a format as Envoy would.
pub fn check(format: &str) -> Result<(), AccessLogFormatError> {
    for piece in pieces(format)? {
        let Piece::Operator(Operator { name, arguments, cut, .. }) = piece else { continue };
        let Some(takes) = takes(name) else {
            return Err(AccessLogFormatError::UnknownOperator(name.to_owned()));
        };
        let given = arguments.is_some_and(|arguments| !arguments.is_empty());
        let needed = matches!(takes, OperatorArguments::Arguments | OperatorArguments::ArgumentsAndLength);
        if needed && !given {
            return Err(AccessLogFormatError::NoArguments(name.to_owned()));
        }
        let of_header = HEADERS.split(' ').any(|known| known == name);
        if of_header && !arguments.is_some_and(names_headers) {
            return Err(AccessLogFormatError::NoHeader(name.to_owned()));
        }
        if takes == OperatorArguments::Nothing && arguments.is_some() {
            return Err(AccessLogFormatError::Arguments(name.to_owned()));
        }
        if cut
            && !matches!(takes, OperatorArguments::ArgumentsAndLength | OperatorArguments::OptionalAndLength)
        {
            return Err(AccessLogFormatError::Length(name.to_owned()));
        }
    }
    Ok(())
}

fn names_headers(arguments: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = |name: &str| name != ":" && name.strip_prefix(':').unwrap_or(name).bytes().all(token);
    arguments.split('?').count() <= 2 && arguments.split('?').all(is_name)
}

/// Replaces the operators of Kuma by what is known of them; a format that is none stays as it is.
pub fn interpolate(format: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let Ok(pieces) = pieces(format) else { return format.to_owned() };
    let text = |piece: Piece<'_>| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Operator(operator) => match value(operator.name) {
            // What is put in is text, also where it looks like an operator.
            Some(value) => value.replace('%', "%%"),
            None => operator.whole.to_owned(),
        },
    };
    pieces.into_iter().map(text).collect()
}

/// The operators of Kuma in a format.
pub fn placeholders(format: &str) -> Vec<&str> {
    let of_kuma = |piece: Piece<'_>| match piece {
        Piece::Operator(operator) => PLACEHOLDERS.iter().find(|known| **known == operator.name).copied(),
        Piece::Text(_) => None,
    };
    pieces(format).unwrap_or_default().into_iter().filter_map(of_kuma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_told_from_text() {
        let ok = [
            "",
            "plain text, 100%% of it",
            "[%START_TIME(%Y-%m-%dT%H:%M:%S)%] %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %REQ(USER-AGENT):10%",
            "%KUMA_MESH%%PROTOCOL%%%%BYTES_SENT%",
            "%CEL(size(request.path) > 1)%",
            "%PATH(NQ):5% %QUERY_PARAMS:7%",
            "%DYNAMIC_METADATA(a:b):3%",
        ];
        for format in ok {
            assert_eq!(check(format), Ok(()), "{format}");
        }
        let there_is_none = "there is no command operator at ";
        for (format, problem) in [
            ("%FOO%", "unknown command operator %FOO%"),
            ("%KUMA_FOO%", "unknown command operator %KUMA_FOO%"),
            ("100% of it", there_is_none),
            ("%START_TIME", there_is_none),
            ("%req(x)%", there_is_none),
            ("%REQ(X):a%", there_is_none),
            ("%REQ(X):%", there_is_none),
            ("%REQ%", "command operator %REQ% needs arguments: %REQ(…)%"),
            ("%REQ()%", "command operator %REQ% needs arguments: %REQ(…)%"),
            ("%REQ(a:b)%", "command operator %REQ% needs the name of a header: %REQ(NAME?OTHER)%"),
            ("%RESP(a?b?c)%", "command operator %RESP% needs the name of a header"),
            ("%TRAILER(:)%", "command operator %TRAILER% needs the name of a header"),
            ("%PROTOCOL(x)%", "command operator %PROTOCOL% takes no arguments"),
            ("%PROTOCOL:5%", "command operator %PROTOCOL% takes no length"),
            ("%START_TIME(%Y):5%", "command operator %START_TIME% takes no length"),
            ("%KUMA_MESH(a)%", "command operator %KUMA_MESH% takes no arguments"),
        ] {
            let said = check(format).unwrap_err().to_string();
            assert!(said.starts_with(problem), "{format}: {said}");
        }
    }

    #[test]
    fn placeholders_of_kuma_are_replaced_by_text_and_others_stay() {
        let value = |name: &str| match name {
            "KUMA_MESH" => Some("50%".to_owned()),
            "KUMA_ZONE" => Some(String::new()),
            _ => None,
        };
        assert_eq!(interpolate("%KUMA_MESH%/%KUMA_ZONE%/%REQ(A):3% 1%%", value), "50%%//%REQ(A):3% 1%%");
        assert_eq!(placeholders("%KUMA_MESH% %PROTOCOL% %KUMA_ZONE%"), ["KUMA_MESH", "KUMA_ZONE"]);
    }
}
