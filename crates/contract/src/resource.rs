//! Resources as the REST API shows them, for readers that show a part of them.

use resources::{Labels, NoStatus, Schema};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::lenient::read_partly;

/// A resource, or its overview: the metadata, and the part that belongs to its kind.
///
/// It reads whatever can be read: resources may be of another version, or of Kuma, and one strange field must not hide
/// the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownResource<S> {
    pub metadata: Metadata,
    pub of: S,
}

/// Metadata that resources of all kinds have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub r#type: String,
    /// Empty outside meshes.
    pub mesh: String,
    pub name: String,
    /// Absent for kinds without identifiers.
    pub kri: Option<String>,
    pub labels: Labels,
    pub creation_time: Option<String>,
    pub modification_time: Option<String>,
}

/// The part of a kind whose spec stands in a field of its own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SpecAndStatus<S, T = NoStatus> {
    pub spec: S,
    pub status: T,
}

/// [`SpecAndStatus`] of a kind.
pub type SpecForm<S> = SpecAndStatus<S, <S as Schema>::Status>;

/// The answer to a resource that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Written {
    pub warnings: Vec<String>,
}

impl<S: DeserializeOwned + Default> ShownResource<S> {
    pub fn read(shown: &Value) -> ShownResource<S> {
        ShownResource { metadata: read_partly(shown), of: read_partly(shown) }
    }
}

impl Metadata {
    /// The value of a label; empty without it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use resources::kinds::{
        hostname_generator::HostnameGenerator,
        mesh::Mesh,
        service_status::{Address, Condition},
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_read_with_their_metadata() {
        let mesh: ShownResource<Mesh> = ShownResource::read(&json!({
            "type": "Mesh", "name": "shop", "labels": { "team": "a", "size": 3 }, "creationTime": 5,
            "mtls": { "enabledBackend": "ca" }, "status": "of a newer version",
        }));
        assert_eq!((mesh.metadata.name.as_str(), mesh.metadata.mesh.as_str()), ("shop", ""));
        assert_eq!((mesh.metadata.label("team"), mesh.metadata.label("size")), ("a", ""));
        assert_eq!((mesh.metadata.kri, mesh.metadata.creation_time), (None, None));
        assert_eq!(mesh.of.mtls.unwrap().enabled_backend, "ca");

        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct Status {
            addresses: Vec<Address>,
            conditions: Vec<Condition>,
        }
        let shown = json!({
            "name": "h", "kri": "k", "spec": { "template": "a" },
            "status": { "addresses": [{ "hostname": "b" }], "conditions": {} },
        });
        let shown: ShownResource<SpecAndStatus<HostnameGenerator, Status>> = ShownResource::read(&shown);
        assert_eq!((shown.metadata.kri.as_deref(), shown.of.spec.template.as_str()), (Some("k"), "a"));
        assert_eq!((&*shown.of.status.addresses[0].hostname, shown.of.status.conditions.len()), ("b", 0));
    }
}
