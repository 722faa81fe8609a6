//! Detection of outliers among endpoints, and the duration of their ejection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    duration::GoDuration,
    kinds::{
        checks,
        int_or_string::{self, IntOrString},
    },
};

/// Leaves out endpoints that fail more than the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OutlierDetection {
    /// Switch outlier detection off: no endpoint is ejected. On by default where `outlierDetection` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The time between two evaluations; 10s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Duration of an ejection, multiplied by the number of earlier ejections; 30s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ejection_time: Option<GoDuration>,
    /// The most endpoints that may be ejected at once, in percent; 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ejection_percent: Option<u32>,
    /// Count failures to connect apart from answers with an error; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_external_and_local_errors: Option<bool>,
    /// Detectors of outliers; at least one is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detectors: Option<Detectors>,
    /// Below this percentage of healthy endpoints all are called, healthy or not; 50 by default, 0 switches
    /// it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_panic_threshold: Option<IntOrString>,
}

/// Detectors of outliers; each that is given counts on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Detectors {
    /// Answers of status 5xx and failures to connect, in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_failures: Option<ConsecutiveFailures>,
    /// Answers of status 502, 503 and 504 and failures to connect, in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_failures: Option<ConsecutiveFailures>,
    /// Failures that the proxy saw itself, such as timeouts and resets, in a row; needs
    /// `splitExternalAndLocalErrors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_origin_failures: Option<ConsecutiveFailures>,
    /// A success rate far below the average of all endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// A percentage of failed requests above a threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_percentage: Option<FailurePercentage>,
}

/// So many failures one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsecutiveFailures {
    /// The number of failures in a row; 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive: Option<u32>,
}

/// A rate of success that is far below that of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRate {
    /// Endpoints with enough requests that are needed for a comparison; 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// Requests to an endpoint within one interval that are needed to count it; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// Number of standard deviations below the average at which an endpoint is ejected, such as `"1.9"`, the
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_deviation_factor: Option<IntOrString>,
}

/// A share of failures that is too large, whatever the others do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePercentage {
    /// Endpoints with enough requests that are needed before any is ejected; 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_hosts: Option<u32>,
    /// Requests to an endpoint within one interval that are needed to count it; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_volume: Option<u32>,
    /// The percentage of failed requests from which on an endpoint is ejected; 85 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
}

impl OutlierDetection {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        checks::positive_duration(self.interval, &path.field("interval"), found);
        checks::positive_duration(self.base_ejection_time, &path.field("baseEjectionTime"), found);
        whole_percentage(self.max_ejection_percent, &path.field("maxEjectionPercent"), found);
        if let Some(threshold) = &self.healthy_panic_threshold {
            int_or_string::validate_percentage(threshold, &path.field("healthyPanicThreshold"), found);
        }
        let path = path.field("detectors");
        match &self.detectors {
            None => found.add(path, checks::MUST_BE_DEFINED),
            Some(detectors) => detectors.validate(&path, found),
        }
    }
}

impl Detectors {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if *self == Detectors::default() {
            found.add(
                path,
                "must have at least one defined: totalFailures, gatewayFailures, localOriginFailures, \
                 successRate, failurePercentage",
            );
            return;
        }
        let consecutive = [
            ("totalFailures", &self.total_failures),
            ("gatewayFailures", &self.gateway_failures),
            ("localOriginFailures", &self.local_origin_failures),
        ];
        for (field, detector) in consecutive {
            let value = detector.as_ref().and_then(|detector| detector.consecutive);
            checks::positive(value, &path.field(field).field("consecutive"), found);
        }
        if let Some(SuccessRate { minimum_hosts, request_volume, standard_deviation_factor }) =
            &self.success_rate
        {
            let path = path.field("successRate");
            checks::positive(*minimum_hosts, &path.field("minimumHosts"), found);
            checks::positive(*request_volume, &path.field("requestVolume"), found);
            let factor = path.field("standardDeviationFactor");
            match standard_deviation_factor.as_ref().map(IntOrString::millionths) {
                None => {}
                Some(None) => found.add(factor, "invalid number"),
                Some(Some(millionths)) => found.require(millionths > 0, factor, "must be greater than 0"),
            }
        }
        if let Some(FailurePercentage { minimum_hosts, request_volume, threshold }) = &self.failure_percentage
        {
            let path = path.field("failurePercentage");
            checks::positive(*minimum_hosts, &path.field("minimumHosts"), found);
            checks::positive(*request_volume, &path.field("requestVolume"), found);
            whole_percentage(*threshold, &path.field("threshold"), found);
        }
    }
}

fn whole_percentage(value: Option<u32>, path: &Path, found: &mut Violations) {
    found.require(value.is_none_or(|percent| percent <= 100), path, "must be in inclusive range [0, 100]");
}
