//! A workload: all Dataplanes with the same `kuma.io/workload` label.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Schema, Subject, Violations};

const MAX_NAME: usize = 253;

/// The control plane makes one for each label; it says nothing itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {}

/// Status of a workload, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Number of the workload's proxies.
    pub dataplane_proxies: Proxies,
}

/// Number of a workload's proxies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "WorkloadProxies")]
pub struct Proxies {
    /// Proxies that are connected to a control plane.
    pub connected: u32,
    /// Proxies with an inbound that gets traffic.
    pub healthy: u32,
    /// All proxies.
    pub total: u32,
}

impl Schema for Workload {
    type Status = WorkloadStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        found.require(
            subject.display_name().len() <= MAX_NAME,
            "name",
            format!("must not be longer than {MAX_NAME} characters"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Kind, Status,
        kinds::testing::{check, resource, round_trips, valid},
    };

    #[test]
    fn a_workload_says_nothing_itself() {
        valid(Kind::Workload, resource(json!({})));
        round_trips(Kind::Workload, json!({}));
    }

    #[test]
    fn its_name_is_not_too_long() {
        let named = |length: usize| json!({"mesh": "default", "name": "n".repeat(length), "spec": {}});
        check(Kind::Workload, named(253), &[]);
        check(Kind::Workload, named(254), &[("name", "must not be longer than 253 characters")]);
        let mut synchronised = named(254);
        synchronised["labels"] = json!({"kuma.io/display-name": "short"});
        check(Kind::Workload, synchronised, &[]);
    }

    #[test]
    fn counts_of_zero_are_shown() {
        let status = Status::from_json(Kind::Workload, json!({})).unwrap();
        let counts = json!({"connected": 0, "healthy": 0, "total": 0});
        assert_eq!(status.to_json(), json!({ "dataplaneProxies": counts }));
    }
}
