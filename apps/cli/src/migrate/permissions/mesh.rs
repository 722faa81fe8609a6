//! The mesh that is moved: its security, and the mode in which outbounds are trimmed.

use std::time::Duration;

use jiff::Timestamp;
use resources::labels;
use serde_json::{Value, json};

use crate::{
    cell::text,
    client::{Client, segment},
    failure::Result,
    suggest::items,
};

/// On a Mesh that this command put into mode `shadow`: when, in seconds since 1970.
const SHADOW_SINCE: &str = "reachability.kuma.io/shadow-since";

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
        let mode = text(&backend["mode"]);
        Some(if mode.is_empty() { "STRICT".to_owned() } else { mode })
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

    /// How long the mode has been `shadow`; `None` where that is not known, because someone else set it.
    pub fn in_shadow(&self, now: Timestamp) -> Option<Duration> {
        let since: i64 = self.resource["labels"][SHADOW_SINCE].as_str()?.parse().ok()?;
        let seconds = now.as_second().checked_sub(since).filter(|_| self.mode() == Mode::Shadow)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    /// What to do where the Mesh cannot be written here, because it comes from a global control plane.
    pub fn elsewhere(&self, mode: Mode) -> Option<String> {
        let label = |name: &str| text(&self.resource["labels"][name]);
        let name = text(&self.resource["name"]);
        (label(labels::ORIGIN) == labels::ORIGIN_GLOBAL).then(|| {
            format!(
                "the Mesh comes from the global control plane: run `kumactl edit mesh {name}` there, give it the label \
                 {}: {} (or ZONE.{} for one zone), and run this command again",
                labels::REACHABILITY_MODE,
                mode.word(),
                labels::REACHABILITY_MODE
            )
        })
    }

    pub fn set(mut self, client: &Client, mode: Mode) -> Result<()> {
        if let Some(fields) = self.resource.as_object_mut() {
            for computed in ["creationTime", "modificationTime", "kri", "status"] {
                fields.remove(computed);
            }
            let labels = fields.entry("labels").or_insert_with(|| json!({}));
            labels[labels::REACHABILITY_MODE] = mode.word().into();
            if mode == Mode::Shadow {
                labels[SHADOW_SINCE] = Timestamp::now().as_second().to_string().into();
            }
        }
        let attempted = format!(
            "could not set the mode of the mesh to {}; on a zone of a global control plane the Mesh is written there",
            mode.word()
        );
        client.put(&self.path, &self.resource)?.accepted(&attempted)?;
        Ok(())
    }
}
