//! Selection of Envoy's metrics: a profile, and names that are added to it or taken away.
//!
//! The agent filters metrics by it, and the control plane decides by it what Envoy counts at all, so both
//! read the same tables.

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum;
use crate::{Path, Violations};

/// Parts of names of metrics in the profile Basic, …
pub const BASIC_PARTS: [&str; 29] = [
    "rq_time",
    "cx_length_ms",
    "cx_count",
    "_rq",
    "bytes",
    "timeout",
    "health_check",
    "lb_healthy_panic",
    "cx_destroy",
    "error",
    "fail",
    "reset",
    "eject",
    "overflow",
    "cancelled",
    "max_duration_reached",
    "no_cluster",
    "no_route",
    "no_filter_chain",
    "reject",
    "denied",
    "days_until_first_cert_expiring",
    "rbac",
    "cx_active",
    "cx_connect",
    "circuit_breakers",
    "cx_total",
    "ssl_handshake",
    "ssl_context_update_by_sds",
];
/// … are, …
pub const BASIC_NAMES: [&str; 4] = [
    "envoy_cluster_membership_degraded",
    "envoy_cluster_membership_healthy",
    "envoy_cluster_membership_total",
    "envoy_cluster_ssl_handshake",
];
/// … and begin with.
pub const BASIC_BEGINNINGS: [&str; 5] =
    ["envoy_server", "envoy_control_plane", "envoy_dns_filter", "envoy_dns_cares", "kuma_dp_dns"];

/// A profile with what it lacks or has too much. Names are those of Prometheus' families; `include`
/// takes precedence over `exclude`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Profiles {
    /// Together they are the widest of them; `Basic` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_profiles: Option<Vec<Profile>>,
    /// Metrics that are left out of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Vec<ProfileSelector>>,
    /// Metrics that are offered in addition to the profile; takes precedence over `exclude`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<ProfileSelector>>,
}

/// A choice of metrics that has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Profile {
    /// The name of the profile: `All`, `Basic` or `None`.
    pub name: ProfileName,
}

open_enum! {
    /// Name of a profile.
    ProfileName { All = "All", Basic = "Basic", None = "None" }
}

/// Metrics by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["match", "type"]))]
pub struct ProfileSelector {
    /// Comparison of names of metrics.
    #[serde(rename = "type")]
    pub kind: SelectorType,
    /// The name, a part of it, or a regular expression.
    #[serde(rename = "match")]
    pub text: String,
}

open_enum! {
    /// Comparison of a name.
    SelectorType { Prefix = "Prefix", Regex = "Regex", Exact = "Exact", Contains = "Contains" }
}

impl Profiles {
    /// The profile that is in effect.
    pub fn effective(&self) -> ProfileName {
        let has = |name| self.append_profiles.iter().flatten().any(|profile| profile.name == name);
        [ProfileName::All, ProfileName::Basic, ProfileName::None]
            .into_iter()
            .find(|name| has(name.clone()))
            .unwrap_or(ProfileName::Basic)
    }

    pub fn included(&self) -> &[ProfileSelector] {
        self.include.as_deref().unwrap_or_default()
    }

    pub fn excluded(&self) -> &[ProfileSelector] {
        self.exclude.as_deref().unwrap_or_default()
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        for (field, selectors) in [("exclude", self.excluded()), ("include", self.included())] {
            for (i, selector) in selectors.iter().enumerate() {
                selector.validate(&path.field(field).index(i), found);
            }
        }
        for (i, profile) in self.append_profiles.iter().flatten().enumerate() {
            if let ProfileName::Other(name) = &profile.name {
                let message =
                    format!("unrecognized profile name '{name}' - 'All', 'None', 'Basic' are supported");
                found.add(path.field("appendProfiles").index(i).field("name"), message);
            }
        }
    }
}

impl ProfileSelector {
    fn validate(&self, path: &Path, found: &mut Violations) {
        match &self.kind {
            SelectorType::Regex => {
                found.require(Regex::new(&self.text).is_ok(), path.field("match"), "invalid regex");
            }
            SelectorType::Other(kind) => {
                let message =
                    format!("unrecognized type '{kind}' - 'Regex', 'Prefix', 'Exact' are supported");
                found.add(path.field("type"), message);
            }
            SelectorType::Prefix | SelectorType::Exact | SelectorType::Contains => {}
        }
    }
}
