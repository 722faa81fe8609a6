//! Circuit breakers of clusters: limits, and endpoints that fail too often.

use cluster::{CircuitBreakers, OutlierDetection, circuit_breakers::Thresholds, cluster::CommonLbConfig};
use envoy_types::pb::{
    envoy::{config::cluster::v3 as cluster, r#type::v3::Percent},
    google::protobuf::UInt32Value,
};
use resources::{
    duration::GoDuration,
    kinds::{
        int_or_string::IntOrString,
        mesh_circuit_breaker::{self as policy, Conf, ConnectionLimits, ConsecutiveFailures},
    },
};

use crate::proto::{duration, u32_value};

/// Millionths that make one, and those that make a thousandth.
const ONE: f64 = 1_000_000.0;
const THOUSANDTH: i64 = 1_000;

/// Returns the circuit breakers of every cluster: they count how much is left of Envoy's own limits.
pub(crate) fn counted() -> CircuitBreakers {
    limited(&ConnectionLimits::default())
}

/// Applies a policy's conf to a cluster.
pub(crate) fn apply(made: &mut cluster::Cluster, conf: Option<&Conf>) {
    let Some(conf) = conf else { return };
    if let Some(limits) = &conf.connection_limits {
        made.circuit_breakers = Some(limited(limits));
    }
    let enabled = conf.outlier_detection.as_ref().filter(|detection| detection.disabled != Some(true));
    let Some(detection) = enabled else { return };
    made.outlier_detection = Some(outliers(detection));
    if let Some(threshold) = &detection.healthy_panic_threshold {
        panic_below(made, threshold);
    }
}

/// Endpoints are called whatever their health when fewer are healthy than this share.
pub(crate) fn panic_below(made: &mut cluster::Cluster, percent: &IntOrString) {
    let Some(value) = decimal(percent) else { return };
    let common = made.common_lb_config.get_or_insert_with(CommonLbConfig::default);
    common.healthy_panic_threshold = Some(Percent { value });
}

/// `None` for a text that is no number, which validation keeps out.
#[allow(clippy::cast_precision_loss, reason = "nothing has more than six digits behind the point")]
pub(crate) fn decimal(value: &IntOrString) -> Option<f64> {
    value.millionths().map(|millionths| millionths as f64 / ONE)
}

fn limited(limits: &ConnectionLimits) -> CircuitBreakers {
    let thresholds = Thresholds {
        max_connections: limits.max_connections.map(u32_value),
        max_connection_pools: limits.max_connection_pools.map(u32_value),
        max_pending_requests: limits.max_pending_requests.map(u32_value),
        max_requests: limits.max_requests.map(u32_value),
        max_retries: limits.max_retries.map(u32_value),
        track_remaining: true,
        ..Default::default()
    };
    CircuitBreakers { thresholds: vec![thresholds], ..Default::default() }
}

/// Envoy enforces some detectors unless it is said otherwise, so each is either switched on or off.
fn outliers(detection: &policy::OutlierDetection) -> OutlierDetection {
    let detectors = detection.detectors.clone().unwrap_or_default();
    let span = |value: Option<GoDuration>| value.and_then(GoDuration::to_std).map(duration);
    let mut made = OutlierDetection {
        interval: span(detection.interval),
        base_ejection_time: span(detection.base_ejection_time),
        max_ejection_percent: detection.max_ejection_percent.map(u32_value),
        split_external_local_origin_errors: detection.split_external_and_local_errors.unwrap_or_default(),
        enforcing_consecutive_5xx: enforced(detectors.total_failures.is_some()),
        consecutive_5xx: consecutive(detectors.total_failures.as_ref()),
        enforcing_consecutive_gateway_failure: enforced(detectors.gateway_failures.is_some()),
        consecutive_gateway_failure: consecutive(detectors.gateway_failures.as_ref()),
        enforcing_consecutive_local_origin_failure: enforced(detectors.local_origin_failures.is_some()),
        consecutive_local_origin_failure: consecutive(detectors.local_origin_failures.as_ref()),
        enforcing_success_rate: enforced(detectors.success_rate.is_some()),
        enforcing_local_origin_success_rate: enforced(detectors.success_rate.is_some()),
        enforcing_failure_percentage: enforced(detectors.failure_percentage.is_some()),
        enforcing_failure_percentage_local_origin: enforced(detectors.failure_percentage.is_some()),
        ..Default::default()
    };
    if let Some(rate) = &detectors.success_rate {
        made.success_rate_minimum_hosts = rate.minimum_hosts.map(u32_value);
        made.success_rate_request_volume = rate.request_volume.map(u32_value);
        let factor = rate.standard_deviation_factor.as_ref().and_then(|factor| factor.millionths());
        let factor = factor.and_then(|millionths| u32::try_from(millionths / THOUSANDTH).ok());
        made.success_rate_stdev_factor = factor.map(u32_value);
    }
    if let Some(failures) = &detectors.failure_percentage {
        made.failure_percentage_minimum_hosts = failures.minimum_hosts.map(u32_value);
        made.failure_percentage_request_volume = failures.request_volume.map(u32_value);
        made.failure_percentage_threshold = failures.threshold.map(u32_value);
    }
    made
}

fn enforced(wanted: bool) -> Option<UInt32Value> {
    Some(u32_value(if wanted { 100 } else { 0 }))
}

fn consecutive(failures: Option<&ConsecutiveFailures>) -> Option<UInt32Value> {
    failures.and_then(|failures| failures.consecutive).map(u32_value)
}
