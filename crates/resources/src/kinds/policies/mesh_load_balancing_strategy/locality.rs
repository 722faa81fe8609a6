//! Preference of endpoints by their location.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    kinds::{
        checks,
        int_or_string::{self, IntOrString},
        open_enum::open_enum,
        target_ref::{TargetRef, TargetRefKind},
    },
};

/// Preference for endpoints near the client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalityAwareness {
    /// Spread traffic over the endpoints of all zones alike; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Preferences among the endpoints of the client's zone; all alike by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_zone: Option<LocalZone>,
    /// To which other zones traffic goes; given without `failover`, to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_zone: Option<CrossZone>,
}

/// Preferences among the endpoints of the client's zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalZone {
    /// Tags by which endpoints are near, the nearest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_tags: Option<Vec<AffinityTag>>,
}

/// Endpoints with the client's value of this tag get this share of the traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key"]))]
pub struct AffinityTag {
    /// The tag's name, such as `k8s.io/node`; endpoints with the client's value are near.
    pub key: String,
    /// The weight of endpoints that have the client's value; all tags have one or none. By default each tag
    /// gets ten times as much as the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Failover of traffic when the client's zone has too few healthy endpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CrossZone {
    /// Zones to try when the client's zone has too few healthy endpoints, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Vec<Failover>>,
    /// Threshold below which traffic goes to the next zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover_threshold: Option<FailoverThreshold>,
}

/// One step of the failover.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["to"]))]
pub struct Failover {
    /// The clients that this step is for, by zone; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<FromZone>,
    /// The zones of this step.
    pub to: ToZone,
}

/// The zones of clients a step is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["zones"]))]
pub struct FromZone {
    /// Names of zones.
    pub zones: Vec<String>,
}

/// The zones traffic may go to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct ToZone {
    /// Selection of zones: `Any`, `Only` those listed, `AnyExcept` those listed, or `None`.
    #[serde(rename = "type")]
    pub type_: ToZoneType,
    /// Names of zones; for `Only` and `AnyExcept`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zones: Option<Vec<String>>,
}

open_enum! {
    /// Selection of zones.
    ToZoneType { None = "None", Only = "Only", Any = "Any", AnyExcept = "AnyExcept" }
}

/// The share of healthy endpoints below which the next step begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["percentage"]))]
pub struct FailoverThreshold {
    /// The percentage of healthy endpoints below which traffic goes on to the next zones; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
}

impl LocalityAwareness {
    pub(super) fn validate(&self, to: &TargetRef, path: &Path, found: &mut Violations) {
        if let Some(local) = &self.local_zone {
            local.validate(&path.field("localZone").field("affinityTags"), found);
        }
        if let Some(cross) = &self.cross_zone {
            cross.validate(to, &path.field("crossZone"), found);
        }
    }
}

impl LocalZone {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let tags = self.affinity_tags.as_deref().unwrap_or_default();
        for (i, tag) in tags.iter().enumerate() {
            let path = path.index(i);
            found.require(!tag.key.is_empty(), path.field("key"), checks::MUST_NOT_BE_EMPTY);
            found.require(tag.weight != Some(0), path.field("weight"), "must be greater than 0");
        }
        let weighted = tags.iter().filter(|tag| tag.weight.is_some()).count();
        if weighted > 0 && weighted != tags.len() {
            found.add(path, "all or none affinity tags should have weight");
        }
    }
}

impl CrossZone {
    fn validate(&self, to: &TargetRef, path: &Path, found: &mut Violations) {
        let one_port = to.section_name.as_deref().is_some_and(|name| !name.is_empty());
        let labelled = to.labels.as_ref().is_some_and(|labels| !labels.is_empty());
        if to.kind == TargetRefKind::MeshService && (one_port || labelled) {
            found.add(path, format!("{}: MeshService traffic is local", checks::MUST_NOT_BE_SET));
        }
        for (i, failover) in self.failover.iter().flatten().enumerate() {
            failover.validate(&path.field("failover").index(i), found);
        }
        if let Some(threshold) = &self.failover_threshold {
            let path = path.field("failoverThreshold").field("percentage");
            match &threshold.percentage {
                Some(percentage) => int_or_string::validate_positive_percentage(percentage, &path, found),
                None => found.add(path, checks::MUST_BE_DEFINED),
            }
        }
    }
}

impl Failover {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(FromZone { zones }) = &self.from {
            let path = path.field("from").field("zones");
            found.require(!zones.is_empty(), &path, checks::MUST_NOT_BE_EMPTY);
            for (i, zone) in zones.iter().enumerate() {
                found.require(!zone.is_empty(), path.index(i), checks::MUST_NOT_BE_EMPTY);
            }
        }
        let ToZone { type_, zones } = &self.to;
        let named = zones.as_ref().is_some_and(|zones| !zones.is_empty());
        let zones = path.field("to").field("zones");
        match type_ {
            ToZoneType::Any | ToZoneType::None => {
                found.require(!named, zones, format!("must be empty when type is {type_}"));
            }
            ToZoneType::AnyExcept | ToZoneType::Only => {
                found.require(named, zones, format!("must not be empty when type is {type_}"));
            }
            ToZoneType::Other(_) => found.add(path.field("to").field("type"), "unrecognized type"),
        }
    }
}
