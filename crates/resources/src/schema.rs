//! Contract of every kind: defaults, validation, and the status if it has one.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Labels, Violations, labels};

/// The spec of one kind. Serde gives its shape, this trait its meaning.
pub trait Schema:
    Serialize + DeserializeOwned + JsonSchema + Clone + Debug + PartialEq + Default + Send + Sync + 'static
{
    /// Status that the control plane reports about the resource; [`NoStatus`] for most kinds.
    type Status: Serialize
        + DeserializeOwned
        + JsonSchema
        + Clone
        + Debug
        + PartialEq
        + Default
        + Send
        + Sync
        + 'static;

    /// Fills in what the user left out and Kuma stores as a value.
    fn apply_defaults(&mut self) {}

    /// Reports every violation; paths start at the resource's root (`spec.…` for kinds in spec form).
    fn validate(&self, subject: Subject<'_>, found: &mut Violations);

    /// Deprecation warnings for the user who writes the resource.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The resource a spec belongs to, as far as validation may look at it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub mesh: &'a str,
    pub name: &'a str,
    pub labels: &'a Labels,
}

impl<'a> Subject<'a> {
    /// The name a user gave the resource, before synchronisation renamed it.
    pub fn display_name(&self) -> &'a str {
        // An empty label is no name.
        let label = self.labels.get(labels::DISPLAY_NAME).filter(|name| !name.is_empty());
        label.map_or(self.name, String::as_str)
    }
}

/// The status of kinds that have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoStatus {}
