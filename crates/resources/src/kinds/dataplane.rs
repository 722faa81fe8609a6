use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dataplane {}

impl Schema for Dataplane {
    type Status = NoStatus;
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}
