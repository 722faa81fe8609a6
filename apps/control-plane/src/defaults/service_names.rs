//! The VirtualOutbound of meshes whose services are called by their tags: `<service>.mesh`, at port 80.

use resources::{
    Draft, Key, Kind, Spec,
    kinds::mesh::{Mesh, MeshServicesMode},
    labels,
};
use serde_json::{Value, json};
use store::Snapshot;

/// A VirtualOutbound of this name that exists already is left as it is.
pub fn key(mesh: &str) -> Key {
    Key::new(Kind::VirtualOutbound, mesh, "default")
}

/// Every service has the name that Kuma gives it.
pub fn conf() -> Value {
    json!({
        "selectors": [{ "match": { labels::SERVICE: "*" } }],
        "conf": {
            "host": "{{.service}}.mesh",
            "port": "80",
            "parameters": [{ "name": "service", "tagKey": labels::SERVICE }],
        },
    })
}

/// Whether services of a mesh are called by their tags from now on: it is new, or was in the mode in which only
/// MeshServices are called. In one that was so before, the operator may have deleted the VirtualOutbound.
pub fn begin(mesh: &Draft, snapshot: &Snapshot, is_new: bool) -> bool {
    let exclusive = |spec: &Spec| {
        let mode = spec.get::<Mesh>().map(Mesh::mesh_services_mode);
        mode == Some(MeshServicesMode::Exclusive)
    };
    let was_exclusive = || snapshot.get(&mesh.key).is_some_and(|stored| exclusive(&stored.spec));
    !exclusive(&mesh.spec) && (is_new || was_exclusive())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use store::{
        Memory, Registrar, Store, Write,
        registrar::{Mode, Setup},
    };

    use super::*;

    #[tokio::test]
    async fn a_mesh_names_its_services_from_when_they_are_called_by_tags_until_its_operator_says_otherwise() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let setup = Setup {
            mode: Mode::Global,
            disable_origin_label_validation: false,
            unsafe_delete: false,
            health_discovery: true,
            companions: super::super::companions().unwrap(),
            check: |_, _, _| {},
            now: Timestamp::now,
        };
        let registrar = Registrar::new(store.clone(), setup);
        let put = async |mesh: &str, spec: Value| {
            let spec = Spec::from_json(Kind::Mesh, spec, &mut Vec::new()).unwrap();
            registrar.put(Draft::new(Key::global(Kind::Mesh, mesh), spec)).await.unwrap();
        };
        let host = |mesh: &str| {
            let stored = store.snapshot().unwrap().get(&key(mesh)).cloned();
            stored.map(|policy| policy.spec.to_json()["conf"]["host"].as_str().unwrap().to_owned())
        };
        let mode = |mode: &str| json!({ "meshServices": { "mode": mode } });
        put("plain", json!({})).await;
        assert_eq!(host("plain").as_deref(), Some("{{.service}}.mesh"));
        put("without", json!({ "skipCreatingInitialPolicies": ["*"] })).await;
        assert_eq!(host("without"), None);

        put("new", mode("Exclusive")).await;
        assert_eq!(host("new"), None);
        put("new", mode("Everywhere")).await;
        assert!(host("new").is_some());
        store.write(vec![Write::Delete { key: key("new"), expected: None }]).await.unwrap();
        put("new", mode("ReachableBackends")).await;
        assert_eq!(host("new"), None, "somebody has deleted it");
    }
}
