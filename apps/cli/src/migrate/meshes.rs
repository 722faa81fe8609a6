//! The Meshes that policies are of, which hold the backends of some of them.

use std::collections::BTreeMap;

use resources::Kind;
use serde_json::Value;

use crate::client::{ApiClient, segment};

/// The Meshes of the input and, if there is one to ask, of a control plane.
#[derive(Debug)]
pub struct Meshes<'a> {
    given: BTreeMap<&'a str, &'a Value>,
    client: Option<ApiClient>,
    /// Answers of the control plane.
    asked: BTreeMap<String, Result<Value, String>>,
}

impl<'a> Meshes<'a> {
    pub fn of(documents: impl Iterator<Item = &'a Value>, client: Option<ApiClient>) -> Meshes<'a> {
        Meshes { given: documents.filter_map(mesh).collect(), client, asked: BTreeMap::new() }
    }

    /// The spec of a Mesh. The error says why it is not known, and what to do.
    pub fn find(&mut self, name: &str) -> Result<&Value, String> {
        if let Some(spec) = self.given.get(name) {
            return Ok(spec);
        }
        let Some(client) = &self.client else {
            return Err(format!(
                "its backend is part of Mesh {name:?}, which is not in the input: add the Mesh, or let --control-plane \
                 take it from the control plane"
            ));
        };
        let ask = || {
            let answer = client.get(&format!("/meshes/{}", segment(name)));
            let spec = answer.and_then(|answer| answer.json("could not get it"));
            spec.map_err(|why| {
                format!("its backend is part of Mesh {name:?}, which is not in the input: {why}")
            })
        };
        self.asked.entry(name.to_owned()).or_insert_with(ask).as_ref().map_err(Clone::clone)
    }
}

/// Name and spec of a Mesh in either form; `None` for any other resource.
fn mesh(document: &Value) -> Option<(&str, &Value)> {
    if document.get("apiVersion").is_some() {
        let name = document["metadata"]["name"].as_str()?;
        return (document["kind"] == Kind::Mesh.name()).then_some((name, &document["spec"]));
    }
    (document["type"] == Kind::Mesh.name()).then_some((document["name"].as_str()?, document))
}
