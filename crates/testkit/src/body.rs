//! Policies of the mesh `default` as users write them, in one line.

use std::fmt::Display;

use resources::Kind;
use serde_json::{Value, json};

use crate::spec;

pub fn policy(kind: Kind, name: &str, spec: Value) -> Value {
    json!({ "type": kind.name(), "mesh": "default", "name": name, "spec": spec })
}

/// A MeshTimeout by which connecting may take so long, such as `1s`.
pub fn timeout(name: &str, connecting: &str) -> Value {
    policy(Kind::MeshTimeout, name, spec::to_all(json!({ "connectionTimeout": connecting })))
}

/// A policy in YAML.
pub fn yaml(kind: impl Display, name: &str, spec: &str) -> String {
    format!("type: {kind}\nmesh: default\nname: {name}\nspec: {spec}\n")
}

/// A policy in YAML for all outgoing traffic of all proxies.
pub fn yaml_to_all(kind: impl Display, conf: &str) -> String {
    yaml(kind, "p", &format!("{{ to: [{{ targetRef: {{ kind: Mesh }}, default: {conf} }}] }}"))
}
