//! Every rule that is in effect for a proxy, by kind of policy.

use resources::{Labels, Resource};
use schemars::JsonSchema;
use serde::Serialize;

/// Which resource, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ResourceMeta")]
pub struct Meta {
    pub labels: Labels,
    pub mesh: String,
    pub name: String,
    pub r#type: &'static str,
}

impl Meta {
    pub fn of(resource: &Resource) -> Meta {
        Meta {
            labels: resource.labels.clone(),
            mesh: resource.mesh().to_owned(),
            name: resource.name().to_owned(),
            r#type: resource.kind().name(),
        }
    }
}
