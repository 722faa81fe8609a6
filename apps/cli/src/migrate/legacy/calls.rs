//! Policies about calls of one service to another: Timeout, Retry, CircuitBreaker and HealthCheck.
//!
//! What has an equivalent is serialised under its name there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Partly, said};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeoutConf {
    pub connect_timeout: Option<Value>,
    pub tcp: TcpTimeouts,
    #[serde(deserialize_with = "said")]
    pub http: Option<HttpTimeouts>,
    #[serde(deserialize_with = "said")]
    pub grpc: Option<GrpcTimeouts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpTimeouts {
    pub idle_timeout: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpTimeouts {
    pub request_timeout: Option<Value>,
    pub stream_idle_timeout: Option<Value>,
    pub max_stream_duration: Option<Value>,
    #[serde(skip_serializing)]
    pub idle_timeout: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcTimeouts {
    pub stream_idle_timeout: Option<Value>,
    pub max_stream_duration: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RetryConf {
    pub tcp: TcpRetry,
    #[serde(deserialize_with = "said")]
    pub http: Option<HttpRetry>,
    #[serde(deserialize_with = "said")]
    pub grpc: Option<GrpcRetry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TcpRetry {
    #[serde(rename(deserialize = "maxConnectAttempts", serialize = "maxConnectAttempt"))]
    pub max_connect_attempts: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    pub num_retries: Option<Value>,
    pub per_try_timeout: Option<Value>,
    pub back_off: Option<Value>,
    #[serde(skip_serializing)]
    pub retry_on: Vec<String>,
    #[serde(skip_serializing)]
    pub retriable_methods: Vec<String>,
    #[serde(skip_serializing)]
    pub retriable_status_codes: Vec<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRetry {
    pub num_retries: Option<Value>,
    pub per_try_timeout: Option<Value>,
    pub back_off: Option<Value>,
    #[serde(skip_serializing)]
    pub retry_on: Vec<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BreakerConf {
    pub interval: Option<Value>,
    pub base_ejection_time: Option<Value>,
    pub max_ejection_percent: Option<Value>,
    pub split_external_and_local_errors: Option<Value>,
    #[serde(skip_serializing)]
    pub thresholds: BreakerLimits,
    #[serde(skip_serializing)]
    pub detectors: Detectors,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BreakerLimits {
    pub max_connections: Option<Value>,
    pub max_pending_requests: Option<Value>,
    pub max_retries: Option<Value>,
    pub max_requests: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all(deserialize = "camelCase"), default)]
pub struct Detectors {
    #[serde(rename(serialize = "totalFailures"))]
    pub total_errors: Option<Partly<ErrorDetector>>,
    #[serde(rename(serialize = "gatewayFailures"))]
    pub gateway_errors: Option<Partly<ErrorDetector>>,
    #[serde(rename(serialize = "localOriginFailures"))]
    pub local_errors: Option<Partly<ErrorDetector>>,
    #[serde(rename(serialize = "successRate"))]
    pub standard_deviation: Option<Partly<DeviationDetector>>,
    #[serde(rename(serialize = "failurePercentage"))]
    pub failure: Option<Partly<FailureDetector>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ErrorDetector {
    pub consecutive: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviationDetector {
    pub request_volume: Option<Value>,
    pub minimum_hosts: Option<Value>,
    #[serde(rename(serialize = "standardDeviationFactor"))]
    pub factor: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureDetector {
    pub request_volume: Option<Value>,
    pub minimum_hosts: Option<Value>,
    pub threshold: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheckConf {
    pub interval: Option<Value>,
    pub timeout: Option<Value>,
    pub unhealthy_threshold: Option<Value>,
    pub healthy_threshold: Option<Value>,
    pub initial_jitter: Option<Value>,
    pub interval_jitter: Option<Value>,
    pub interval_jitter_percent: Option<Value>,
    pub healthy_panic_threshold: Option<Value>,
    pub fail_traffic_on_panic: Option<Value>,
    pub event_log_path: Option<Value>,
    pub always_log_health_check_failures: Option<Value>,
    pub no_traffic_interval: Option<Value>,
    pub reuse_connection: Option<Value>,
    pub tcp: Option<Partly<TcpCheck>>,
    #[serde(skip_serializing)]
    pub http: Option<Partly<HttpCheck>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TcpCheck {
    pub send: Option<Value>,
    pub receive: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpCheck {
    pub path: Option<Value>,
    pub expected_statuses: Option<Value>,
    #[serde(skip_serializing)]
    pub request_headers_to_add: Vec<Partly<CheckHeader>>,
}

/// A header of the requests of a check, added unless `append` says otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CheckHeader {
    pub header: KeyAndValue,
    pub append: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyAndValue {
    pub key: Value,
    pub value: Value,
}
