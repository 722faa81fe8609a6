//! Policies about calls of one service to another: timeouts, retries, breakers and health checks.

use serde_json::{Value, json};

use super::legacy::{Legacy, Translation, renamed, says_something};

/// One policy per source, with an entry for each destination.
pub fn to_destinations(legacy: &Legacy<'_>, kind: &'static str, conf: &Value, made: &mut Translation) {
    if !says_something(conf) {
        made.note("nothing in its conf has an equivalent");
        return;
    }
    let mut to = Vec::new();
    for destination in legacy.destinations() {
        match destination.destination(true) {
            Ok(target) => to.push(json!({ "targetRef": target, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    if to.is_empty() {
        return;
    }
    for source in legacy.sources() {
        match source.reference() {
            Ok(target) => made.add(kind, json!({ "targetRef": target, "to": to })),
            Err(why) => made.note(why),
        }
    }
}

pub fn timeout(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf = legacy.conf();
    let tcp = &conf["tcp"];
    let http = &conf["http"];
    let grpc = &conf["grpc"];
    let mut new = renamed(conf, &[("connectTimeout", "connectionTimeout")]);
    let idle = [&http["idleTimeout"], &tcp["idleTimeout"]];
    if let Some(idle) = idle.into_iter().find(|idle| !idle.is_null()) {
        new["idleTimeout"] = idle.clone();
    }
    if idle.iter().all(|idle| !idle.is_null()) && idle[0] != idle[1] {
        made.note("a MeshTimeout has one idleTimeout for HTTP and TCP: the value for HTTP is used");
    }
    let fields = [
        ("requestTimeout", "requestTimeout"),
        ("streamIdleTimeout", "streamIdleTimeout"),
        ("maxStreamDuration", "maxStreamDuration"),
    ];
    let mut requests = renamed(grpc, &fields[1..]);
    if let (Value::Object(all), Value::Object(of_http)) = (&mut requests, renamed(http, &fields)) {
        all.extend(of_http);
    }
    if says_something(grpc) && says_something(http) {
        made.note("a MeshTimeout has the same timeouts for gRPC and HTTP: the values for HTTP are used where both are given");
    }
    if says_something(&requests) {
        new["http"] = requests;
    }
    to_destinations(legacy, "MeshTimeout", &new, &mut made);
    made
}

pub fn retry(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf = legacy.conf();
    let common = [("numRetries", "numRetries"), ("perTryTimeout", "perTryTimeout"), ("backOff", "backOff")];
    let mut new = json!({});
    let tcp = renamed(&conf["tcp"], &[("maxConnectAttempts", "maxConnectAttempt")]);
    if says_something(&tcp) {
        new["tcp"] = tcp;
    }
    if says_something(&conf["http"]) {
        let http = &conf["http"];
        let mut made_http = renamed(http, &common);
        let mut on: Vec<Value> = words(&http["retryOn"], &mut made, http_condition);
        on.extend(
            texts(&http["retriableMethods"])
                .map(|method| json!(format!("HttpMethod{}", capitalised(method)))),
        );
        let codes = http["retriableStatusCodes"].as_array().into_iter().flatten();
        on.extend(codes.map(|code| json!(code.to_string())));
        if !on.is_empty() {
            made_http["retryOn"] = Value::Array(on);
        }
        new["http"] = made_http;
    }
    if says_something(&conf["grpc"]) {
        let grpc = &conf["grpc"];
        let mut made_grpc = renamed(grpc, &common);
        let on = words(&grpc["retryOn"], &mut made, grpc_condition);
        if !on.is_empty() {
            made_grpc["retryOn"] = Value::Array(on);
        }
        new["grpc"] = made_grpc;
    }
    to_destinations(legacy, "MeshRetry", &new, &mut made);
    made
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn words(list: &Value, made: &mut Translation, known: fn(&str) -> Option<&'static str>) -> Vec<Value> {
    let mut found = Vec::new();
    for word in texts(list) {
        match known(word) {
            Some("") => {}
            Some(word) => found.push(json!(word)),
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

fn capitalised(word: &str) -> String {
    let lower = word.to_lowercase();
    let mut letters = lower.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub fn circuit_breaker(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf = legacy.conf();
    let mut new = json!({});
    let limits =
        ["maxConnections", "maxPendingRequests", "maxRetries", "maxRequests"].map(|field| (field, field));
    let limits = renamed(&conf["thresholds"], &limits);
    if says_something(&limits) {
        new["connectionLimits"] = limits;
    }
    let detectors = &conf["detectors"];
    let mut made_detectors = json!({});
    for (old, kind) in [
        ("totalErrors", "totalFailures"),
        ("gatewayErrors", "gatewayFailures"),
        ("localErrors", "localOriginFailures"),
    ] {
        if let Some(detector) = detectors.get(old).filter(|detector| !detector.is_null()) {
            made_detectors[kind] = renamed(detector, &[("consecutive", "consecutive")]);
        }
    }
    let hosts = [("requestVolume", "requestVolume"), ("minimumHosts", "minimumHosts")];
    if let Some(deviation) = detectors.get("standardDeviation").filter(|detector| !detector.is_null()) {
        let mut detector = renamed(deviation, &hosts);
        if let Some(factor) = deviation.get("factor") {
            let whole = factor.as_u64().map(Value::from);
            detector["standardDeviationFactor"] = whole.unwrap_or_else(|| Value::String(factor.to_string()));
        }
        made_detectors["successRate"] = detector;
    }
    if let Some(failure) = detectors.get("failure").filter(|detector| !detector.is_null()) {
        let [volume, minimum] = hosts;
        made_detectors["failurePercentage"] =
            renamed(failure, &[volume, minimum, ("threshold", "threshold")]);
    }
    if says_something(&made_detectors) {
        let fields = ["interval", "baseEjectionTime", "maxEjectionPercent", "splitExternalAndLocalErrors"];
        let mut detection = renamed(conf, &fields.map(|field| (field, field)));
        detection["detectors"] = made_detectors;
        new["outlierDetection"] = detection;
    }
    to_destinations(legacy, "MeshCircuitBreaker", &new, &mut made);
    made
}

pub fn health_check(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf = legacy.conf();
    let same = [
        "interval",
        "timeout",
        "unhealthyThreshold",
        "healthyThreshold",
        "initialJitter",
        "intervalJitter",
        "intervalJitterPercent",
        "healthyPanicThreshold",
        "failTrafficOnPanic",
        "eventLogPath",
        "alwaysLogHealthCheckFailures",
        "noTrafficInterval",
        "reuseConnection",
    ];
    let mut new = renamed(conf, &same.map(|field| (field, field)));
    if let Some(tcp) = conf.get("tcp").filter(|tcp| !tcp.is_null()) {
        new["tcp"] = renamed(tcp, &[("send", "send"), ("receive", "receive")]);
    }
    if let Some(http) = conf.get("http").filter(|http| !http.is_null()) {
        let mut check = renamed(http, &[("path", "path"), ("expectedStatuses", "expectedStatuses")]);
        let mut set = Vec::new();
        let mut add = Vec::new();
        for header in http["requestHeadersToAdd"].as_array().into_iter().flatten() {
            let made = json!({ "name": header["header"]["key"], "value": header["header"]["value"] });
            if header["append"] == false { set.push(made) } else { add.push(made) }
        }
        if !set.is_empty() || !add.is_empty() {
            check["requestHeadersToAdd"] = json!({ "set": set, "add": add });
        }
        new["http"] = check;
    }
    if conf["tcp"].is_null() && conf["http"].is_null() {
        new["tcp"] = json!({});
    }
    to_destinations(legacy, "MeshHealthCheck", &new, &mut made);
    made
}
