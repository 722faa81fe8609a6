//! Endpoints that a retry avoids.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    kinds::{checks, open_enum::open_enum},
};

/// Default number of tries after which Envoy computes priorities again.
const UPDATE_FREQUENCY: i32 = 2;

/// A condition on the endpoint of another try.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["predicate"]))]
pub struct Predicate {
    /// Type of the condition: the endpoints that a retry avoids.
    pub predicate: PredicateType,
    /// Tags of endpoints to avoid; for `OmitHostsWithTags`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Number of tries before priorities are computed again; 2 by default, for `OmitPreviousPriorities`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_frequency: Option<i32>,
}

open_enum! {
    /// Endpoints to avoid.
    PredicateType {
        OmitPreviousHosts = "OmitPreviousHosts",
        OmitHostsWithTags = "OmitHostsWithTags",
        OmitPreviousPriorities = "OmitPreviousPriorities",
    }
}

impl Predicate {
    pub(super) fn apply_defaults(&mut self) {
        self.update_frequency.get_or_insert(UPDATE_FREQUENCY);
    }

    pub fn update_frequency(&self) -> i32 {
        self.update_frequency.unwrap_or(UPDATE_FREQUENCY)
    }

    pub(super) fn validate_all(all: &[Predicate], path: &Path, found: &mut Violations) {
        let mut priorities = 0;
        for (i, predicate) in all.iter().enumerate() {
            let path = path.index(i);
            let kind = path.field("predicate");
            match &predicate.predicate {
                PredicateType::OmitHostsWithTags => {
                    found.require(predicate.tags.is_some(), path.field("tags"), checks::MUST_BE_DEFINED);
                }
                PredicateType::OmitPreviousPriorities => {
                    priorities += 1;
                    found.require(
                        priorities == 1,
                        kind,
                        "OmitPreviousPriorities must only be specified once",
                    );
                    found.require(
                        predicate.update_frequency() > 0,
                        path.field("updateFrequency"),
                        "must be defined and greater than zero",
                    );
                }
                PredicateType::OmitPreviousHosts => {}
                PredicateType::Other(unknown) => {
                    found.add(kind, format!("unknown predicate type '{unknown}'"));
                }
            }
        }
    }
}
