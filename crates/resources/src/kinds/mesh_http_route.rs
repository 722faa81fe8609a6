use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshHTTPRoute {}

impl Schema for MeshHTTPRoute {
    type Status = NoStatus;
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}
