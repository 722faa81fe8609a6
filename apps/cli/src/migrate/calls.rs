//! Policies about calls of one service to another: timeouts, retries, breakers and health checks.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::legacy::{
    Legacy, Partly, Translation,
    calls::{BreakerConf, CheckHeader, GrpcRetry, HealthCheckConf, HttpRetry, RetryConf, TimeoutConf},
    given,
};

/// One policy per source, with an entry for each destination.
pub fn to_destinations(
    legacy: &Legacy<'_>,
    kind: &'static str,
    conf: &Map<String, Value>,
    made: &mut Translation,
) {
    if conf.is_empty() {
        made.note("nothing in its conf has an equivalent");
        return;
    }
    let mut to = Vec::new();
    for destination in &legacy.destinations {
        match destination.destination(true) {
            Ok(target) => to.push(json!({ "targetRef": target, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    if to.is_empty() {
        return;
    }
    for source in &legacy.sources {
        match source.reference() {
            Ok(target) => made.add(kind, json!({ "targetRef": target, "to": to })),
            Err(why) => made.note(why),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Timeouts {
    connection_timeout: Option<Value>,
    idle_timeout: Option<Value>,
    http: Option<Map<String, Value>>,
}

pub fn timeout(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let TimeoutConf { connect_timeout, tcp, http, grpc } = legacy.conf();
    let both = grpc.is_some() && http.is_some();
    let http = http.unwrap_or_default();
    let both_idle = http.idle_timeout.as_ref().zip(tcp.idle_timeout.as_ref());
    if both_idle.is_some_and(|(http, tcp)| http != tcp) {
        made.note("a MeshTimeout has one idleTimeout for HTTP and TCP: the value for HTTP is used");
    }
    if both {
        made.note("a MeshTimeout has the same timeouts for gRPC and HTTP: the values for HTTP are used where both are given");
    }
    let mut requests = given(&grpc.unwrap_or_default());
    requests.extend(given(&http));
    let timeouts = Timeouts {
        connection_timeout: connect_timeout,
        idle_timeout: http.idle_timeout.or(tcp.idle_timeout),
        http: not_empty(requests),
    };
    to_destinations(legacy, "MeshTimeout", &given(&timeouts), &mut made);
    made
}

fn not_empty(fields: Map<String, Value>) -> Option<Map<String, Value>> {
    Some(fields).filter(|fields| !fields.is_empty())
}

#[derive(Debug, Serialize)]
struct Retries {
    tcp: Option<Map<String, Value>>,
    http: Option<Map<String, Value>>,
    grpc: Option<Map<String, Value>>,
}

pub fn retry(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let RetryConf { tcp, http, grpc } = legacy.conf();
    let retries = Retries {
        tcp: not_empty(given(&tcp)),
        http: http.map(|http| http_retry(&http, &mut made)),
        grpc: grpc.map(|grpc| grpc_retry(&grpc, &mut made)),
    };
    to_destinations(legacy, "MeshRetry", &given(&retries), &mut made);
    made
}

fn http_retry(http: &HttpRetry, made: &mut Translation) -> Map<String, Value> {
    let mut on = words(&http.retry_on, made, http_condition);
    let methods = http.retriable_methods.iter();
    on.extend(methods.map(|method| format!("HttpMethod{}", capitalised(&method.to_lowercase()))));
    on.extend(http.retriable_status_codes.iter().map(Value::to_string));
    with_conditions(given(http), on)
}

fn grpc_retry(grpc: &GrpcRetry, made: &mut Translation) -> Map<String, Value> {
    let on = words(&grpc.retry_on, made, grpc_condition);
    with_conditions(given(grpc), on)
}

fn with_conditions(mut retry: Map<String, Value>, on: Vec<String>) -> Map<String, Value> {
    if !on.is_empty() {
        retry.insert("retryOn".to_owned(), json!(on));
    }
    retry
}

fn words(list: &[String], made: &mut Translation, known: fn(&str) -> Option<&'static str>) -> Vec<String> {
    let mut found = Vec::new();
    for word in list {
        match known(word) {
            Some("") => {}
            Some(word) => found.push(word.to_owned()),
            None => made.note(format!("retryOn {word:?} has no equivalent")),
        }
    }
    found
}

/// Empty for a condition that other fields say.
fn http_condition(word: &str) -> Option<&'static str> {
    Some(match word {
        "all_5xx" => "5xx",
        "gateway_error" => "GatewayError",
        "reset" => "Reset",
        "connect_failure" => "ConnectFailure",
        "envoy_ratelimited" => "EnvoyRatelimited",
        "retriable_4xx" => "Retriable4xx",
        "refused_stream" => "RefusedStream",
        "http3_post_connect_failure" => "Http3PostConnectFailure",
        "retriable_status_codes" => "",
        _ => return None,
    })
}

fn grpc_condition(word: &str) -> Option<&'static str> {
    Some(match word {
        "cancelled" => "Canceled",
        "deadline_exceeded" => "DeadlineExceeded",
        "internal" => "Internal",
        "resource_exhausted" => "ResourceExhausted",
        "unavailable" => "Unavailable",
        _ => return None,
    })
}

/// The word with a capital first letter.
pub fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Breakers {
    connection_limits: Option<Map<String, Value>>,
    outlier_detection: Option<Map<String, Value>>,
}

pub fn circuit_breaker(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let mut conf: BreakerConf = legacy.conf();
    if let Some(Partly(deviation)) = &mut conf.detectors.standard_deviation {
        deviation.factor = deviation.factor.take().map(whole_or_text);
    }
    let detectors = not_empty(given(&conf.detectors));
    let breakers = Breakers {
        connection_limits: not_empty(given(&conf.thresholds)),
        outlier_detection: detectors.map(|detectors| {
            let mut detection = given(&conf);
            detection.insert("detectors".to_owned(), Value::Object(detectors));
            detection
        }),
    };
    to_destinations(legacy, "MeshCircuitBreaker", &given(&breakers), &mut made);
    made
}

/// A whole number as it is, others as text.
fn whole_or_text(number: Value) -> Value {
    if number.is_u64() { number } else { Value::String(number.to_string()) }
}

pub fn health_check(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let mut conf: HealthCheckConf = legacy.conf();
    if conf.http.is_none() {
        conf.tcp.get_or_insert_default();
    }
    let mut new = given(&conf);
    if let Some(Partly(http)) = &conf.http {
        let mut check = given(http);
        let (set, add): (Vec<_>, Vec<_>) = http
            .request_headers_to_add
            .iter()
            .map(|header| &header.0)
            .partition(|header| header.append == Some(false));
        if !set.is_empty() || !add.is_empty() {
            let headers = json!({ "set": check_headers(&set), "add": check_headers(&add) });
            check.insert("requestHeadersToAdd".to_owned(), headers);
        }
        new.insert("http".to_owned(), Value::Object(check));
    }
    to_destinations(legacy, "MeshHealthCheck", &new, &mut made);
    made
}

fn check_headers(headers: &[&CheckHeader]) -> Vec<Value> {
    let shown = |header: &&CheckHeader| json!({ "name": header.header.key, "value": header.header.value });
    headers.iter().map(shown).collect()
}
