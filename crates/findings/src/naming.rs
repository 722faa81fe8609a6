//! Labels about names in Envoy that have no effect.

use resources::{
    Resource,
    finding::{Code, Finding},
    naming::choice,
};

/// Of a Mesh or a Dataplane.
pub(crate) fn of(resource: &Resource) -> Option<Finding> {
    let text = choice::unknown_value(&resource.labels)?;
    Some(Finding::about(Code::UnknownNaming, resource.kri("")?, text))
}
