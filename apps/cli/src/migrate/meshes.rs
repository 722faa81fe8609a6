//! The Meshes that policies are of, which hold the backends of some of them.

use std::collections::BTreeMap;

use contract::lenient::read_partly;
use resources::Kind;
use serde_json::Value;

use super::legacy::{LegacyDocument, observability::MeshBackends};
use crate::client::{ApiClient, segment};

/// The Meshes of the input and, if there is one to ask, of a control plane.
#[derive(Debug)]
pub struct Meshes {
    given: BTreeMap<String, MeshBackends>,
    client: Option<ApiClient>,
    /// Answers of the control plane.
    asked: BTreeMap<String, Result<MeshBackends, String>>,
}

impl Meshes {
    pub fn of<'a>(documents: impl Iterator<Item = &'a Value>, client: Option<ApiClient>) -> Meshes {
        Meshes { given: documents.filter_map(mesh).collect(), client, asked: BTreeMap::new() }
    }

    /// The backends of a Mesh. The error says why it is not known, and what to do.
    pub fn find(&mut self, name: &str) -> Result<&MeshBackends, String> {
        if let Some(backends) = self.given.get(name) {
            return Ok(backends);
        }
        let Some(client) = &self.client else {
            return Err(format!(
                "its backend is part of Mesh {name:?}, which is not in the input: add the Mesh, or let --control-plane \
                 take it from the control plane"
            ));
        };
        let ask = || {
            let answer = client.get(&format!("/meshes/{}", segment(name)));
            let mesh = answer.and_then(|answer| answer.json("could not get it"));
            mesh.map(|mesh| read_partly(&mesh)).map_err(|why| {
                format!("its backend is part of Mesh {name:?}, which is not in the input: {why}")
            })
        };
        self.asked.entry(name.to_owned()).or_insert_with(ask).as_ref().map_err(Clone::clone)
    }
}

/// Name and backends of a Mesh in either form; `None` for any other resource.
fn mesh(document: &Value) -> Option<(String, MeshBackends)> {
    let LegacyDocument { kind, name, spec, .. } = LegacyDocument::of(document);
    (kind == Kind::Mesh.name()).then_some((name?, read_partly(spec)))
}
