use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {}

impl Schema for Secret {
    type Status = NoStatus;
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalSecret {}

impl Schema for GlobalSecret {
    type Status = NoStatus;
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}
