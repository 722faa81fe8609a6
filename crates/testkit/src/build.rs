//! Dataplanes and meshes, field by field: `dataplane("web").inbound(80).service("web").build()`.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made ends its test")]

use std::marker::PhantomData;

use resources::{
    Draft, Key, Kind, Resource,
    kinds::{dataplane::Dataplane, mesh::Mesh},
};
use serde_json::{Map, Value, json};

use crate::resource;

/// A resource of one kind that is being made.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder<K> {
    key: Key,
    labels: Map<String, Value>,
    spec: Value,
    kind: PhantomData<K>,
}

/// A Dataplane of the mesh `default` without inbounds.
pub fn dataplane(name: &str) -> Builder<Dataplane> {
    Builder::new(Key::new(Kind::Dataplane, "default", name), json!({ "networking": {} }))
}

/// A mesh without MeshServices and mutual TLS.
pub fn mesh(name: &str) -> Builder<Mesh> {
    Builder::new(Key::global(Kind::Mesh, name), json!({}))
}

impl<K> Builder<K> {
    fn new(key: Key, spec: Value) -> Builder<K> {
        Builder { key, labels: Map::new(), spec, kind: PhantomData }
    }

    pub fn labels(mut self, pairs: &[(&str, &str)]) -> Self {
        self.labels.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        self
    }

    /// As a store holds it, without defaults. Panics on fields that the kind does not have.
    #[track_caller]
    pub fn build(self) -> Resource {
        let labels: Vec<(&str, &str)> =
            self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        resource::stored(self.key, &labels, self.spec)
    }

    /// As [`Builder::build`], with the defaults of the kind.
    #[track_caller]
    pub fn complete(self) -> Resource {
        let mut built = self.build();
        built.spec.apply_defaults();
        built
    }

    /// As a user sends it to a control plane.
    #[track_caller]
    pub fn draft(self) -> Draft {
        let Resource { key, labels, spec, .. } = self.build();
        Draft { key, labels, spec }
    }

    /// As a user writes it, unchecked.
    pub fn json(self) -> Value {
        let mut document = json!({ "type": self.key.kind.name(), "name": *self.key.name });
        if !self.key.mesh.is_empty() {
            document["mesh"] = json!(*self.key.mesh);
        }
        if !self.labels.is_empty() {
            document["labels"] = self.labels.into();
        }
        let Value::Object(fields) = self.spec else { return document };
        document.as_object_mut().unwrap().extend(fields);
        document
    }
}

impl Builder<Dataplane> {
    pub fn in_mesh(mut self, mesh: &str) -> Self {
        self.key = Key::new(Kind::Dataplane, mesh, &self.key.name);
        self
    }

    pub fn address(self, address: &str) -> Self {
        self.networking(json!({ "address": address }))
    }

    /// One more inbound; [`Builder::service`] and [`Builder::tag`] are about the last one.
    pub fn inbound(mut self, port: u32) -> Self {
        let inbounds = &mut self.spec["networking"]["inbound"];
        if inbounds.is_null() {
            *inbounds = json!([]);
        }
        inbounds.as_array_mut().unwrap().push(json!({ "port": port }));
        self
    }

    /// The value of `kuma.io/service` at the last inbound.
    pub fn service(self, name: &str) -> Self {
        self.tag("kuma.io/service", name)
    }

    /// A tag of the last inbound.
    #[track_caller]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        let inbounds = self.spec["networking"]["inbound"].as_array_mut().unwrap();
        inbounds.last_mut().unwrap()["tags"][name] = json!(value);
        self
    }

    /// Fields of `networking`, such as `gateway`, as a user writes them.
    #[track_caller]
    pub fn networking(mut self, fields: Value) -> Self {
        let all = self.spec["networking"].as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        self
    }
}

impl Builder<Mesh> {
    /// The use of MeshServices: `Disabled`, `Everywhere`, `ReachableBackends` or `Exclusive`.
    pub fn services(mut self, mode: &str) -> Self {
        self.spec["meshServices"] = json!({ "mode": mode });
        self
    }

    /// Mutual TLS by an authority of the control plane; the first one that is added signs. `mode`: `STRICT` or
    /// `PERMISSIVE`.
    pub fn authority(self, name: &str, mode: &str) -> Self {
        self.backend(json!({ "name": name, "type": "builtin", "mode": mode }))
    }

    /// Lets another authority sign.
    pub fn enabled(mut self, name: &str) -> Self {
        self.spec["mtls"]["enabledBackend"] = json!(name);
        self
    }

    /// As [`Builder::authority`], as a user writes it.
    pub fn backend(mut self, backend: Value) -> Self {
        if self.spec["mtls"].is_null() {
            self.spec["mtls"] = json!({ "enabledBackend": backend["name"], "backends": [] });
        }
        self.spec["mtls"]["backends"].as_array_mut().unwrap().push(backend);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_what_a_user_would_write() {
        let built = dataplane("web").in_mesh("m").labels(&[("app", "web")]).address("10.0.0.1").inbound(80);
        let built =
            built.service("web").tag("version", "v1").inbound(81).networking(json!({ "gateway": null }));
        let document = json!({
            "type": "Dataplane", "name": "web", "mesh": "m", "labels": { "app": "web" },
            "networking": {
                "address": "10.0.0.1",
                "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web", "version": "v1" } }, { "port": 81 }],
                "gateway": null,
            },
        });
        assert_eq!(built.clone().json(), document);
        assert_eq!(resource::read(&document.to_string()), [built.build()]);

        let built =
            mesh("m").services("Exclusive").authority("ca-1", "STRICT").authority("ca-2", "PERMISSIVE");
        let backends = [
            json!({ "name": "ca-1", "type": "builtin", "mode": "STRICT" }),
            json!({ "name": "ca-2", "type": "builtin", "mode": "PERMISSIVE" }),
        ];
        assert_eq!(
            built.json(),
            json!({ "type": "Mesh", "name": "m", "meshServices": { "mode": "Exclusive" },
                "mtls": { "enabledBackend": "ca-1", "backends": backends } })
        );
    }
}
