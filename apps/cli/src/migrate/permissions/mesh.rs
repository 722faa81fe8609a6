//! The mesh that is moved: its security, and the mode in which outbounds are trimmed.

use resources::labels;
use serde_json::{Value, json};

use crate::{
    cell::text,
    client::{Client, segment},
    failure::Result,
    suggest::items,
};

/// What is done about destinations that a client may not call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Off or report: nothing is counted.
    Before,
    Shadow,
    Enforce,
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Mode::Before => "off",
            Mode::Shadow => "shadow",
            Mode::Enforce => "enforce",
        }
    }
}

/// A mesh as it is stored, and how its proxies know each other.
pub struct Mesh {
    path: String,
    resource: Value,
    identities: usize,
}

/// Where a MeshTrafficPermission is.
pub fn permission(mesh: &str, name: &str) -> String {
    format!("/meshes/{}/meshtrafficpermissions/{}", segment(mesh), segment(name))
}

impl Mesh {
    pub fn read(client: &Client, name: &str) -> Result<Mesh> {
        let path = format!("/meshes/{}", segment(name));
        let resource = client.get(&path)?.json(&format!("could not get mesh {name:?}"))?;
        let identities = client.get(&format!("{path}/meshidentities?size=1"))?;
        let identities = identities.json(&format!("could not list the identities of mesh {name:?}"))?;
        Ok(Mesh { path, resource, identities: items(&identities["items"]).len() })
    }

    /// The mode of the backend in use.
    fn mtls(&self) -> Option<String> {
        let mtls = &self.resource["mtls"];
        let enabled = mtls["enabledBackend"].as_str().filter(|name| !name.is_empty())?;
        let backend = items(&mtls["backends"]).iter().find(|it| it["name"] == enabled)?;
        Some(backend["mode"].as_str().unwrap_or("STRICT").to_owned())
    }

    /// How servers know their clients, in words.
    pub fn security(&self) -> String {
        match self.mtls() {
            Some(mode) if mode == "PERMISSIVE" => {
                "mTLS is PERMISSIVE: clients without TLS are accepted whatever permissions say".to_owned()
            }
            Some(mode) => format!("mTLS is {mode}"),
            None if self.identities > 0 => "proxies have identities by MeshIdentity".to_owned(),
            None => "mTLS is off".to_owned(),
        }
    }

    /// What the mesh itself lacks.
    pub fn missing(&self) -> Vec<String> {
        let secured = self.mtls().is_some() || self.identities > 0;
        let off = "mTLS, without which permissions have no effect: enable a backend in `mtls` of the Mesh (PERMISSIVE \
                   first), or give proxies a MeshIdentity";
        if secured { Vec::new() } else { vec![off.to_owned()] }
    }

    pub fn mode(&self) -> Mode {
        match text(&self.resource["labels"][labels::REACHABILITY_MODE]).as_str() {
            "shadow" => Mode::Shadow,
            "enforce" => Mode::Enforce,
            _ => Mode::Before,
        }
    }

    pub fn set(mut self, client: &Client, mode: Mode) -> Result<()> {
        if let Some(fields) = self.resource.as_object_mut() {
            for computed in ["creationTime", "modificationTime", "kri", "status"] {
                fields.remove(computed);
            }
            let labels = fields.entry("labels").or_insert_with(|| json!({}));
            labels[labels::REACHABILITY_MODE] = mode.word().into();
        }
        let attempted = format!(
            "could not set the mode of the mesh to {}; on a zone of a global control plane the Mesh is written there",
            mode.word()
        );
        client.put(&self.path, &self.resource)?.accepted(&attempted)?;
        Ok(())
    }
}
