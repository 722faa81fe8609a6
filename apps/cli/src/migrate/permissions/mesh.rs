//! The mesh that is moved: its security, and the mode in which outbounds are trimmed.

use std::time::Duration;

use contract::{lenient::read_partly, resource::ShownResource};
use jiff::Timestamp;
use resources::{
    kinds::{
        mesh::{self, MtlsMode},
        proto::ProtoEnum,
    },
    labels,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    cell::line,
    client::{ApiClient, segment},
    document::overwrite,
    failure::Result,
};

/// On a Mesh that this command put into mode `shadow`: when, in seconds since 1970.
const SHADOW_SINCE: &str = "reachability.kuma.io/shadow-since";

/// Trimming of destinations that a client may not call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrimmingStage {
    /// Off or report: nothing is counted.
    Before,
    Shadow,
    Enforce,
}

impl TrimmingStage {
    pub fn word(self) -> &'static str {
        match self {
            TrimmingStage::Before => "off",
            TrimmingStage::Shadow => "shadow",
            TrimmingStage::Enforce => "enforce",
        }
    }
}

/// A mesh as it is stored, and how its proxies know each other.
pub struct Mesh {
    path: String,
    sent: Value,
    read: ShownResource<mesh::Mesh>,
    identities: usize,
}

/// Path of a MeshTrafficPermission.
pub fn permission(mesh: &str, name: &str) -> String {
    format!("/meshes/{}/meshtrafficpermissions/{}", segment(mesh), segment(name))
}

impl Mesh {
    pub fn read(client: &ApiClient, name: &str) -> Result<Mesh> {
        let path = format!("/meshes/{}", segment(name));
        let sent = client.get(&path)?.json(&format!("could not get mesh {name:?}"))?;
        let identities = client.get(&format!("{path}/meshidentities?size=1"))?;
        let identities = identities.json(&format!("could not list the identities of mesh {name:?}"))?;
        let identities: Items = read_partly(&identities);
        Ok(Mesh { path, read: ShownResource::read(&sent), sent, identities: identities.items.len() })
    }

    /// The mode of the backend in use.
    fn mtls(&self) -> Option<MtlsMode> {
        self.read.of.enabled_backend().map(|backend| backend.mode)
    }

    /// Means by which servers know their clients, in words.
    pub fn security(&self) -> String {
        match self.mtls() {
            Some(MtlsMode::Permissive) => {
                "mTLS is PERMISSIVE: clients without TLS are accepted whatever permissions say".to_owned()
            }
            Some(mode) => format!("mTLS is {}", mode.name()),
            None if self.identities > 0 => "proxies have identities by MeshIdentity".to_owned(),
            None => "mTLS is off".to_owned(),
        }
    }

    /// Prerequisites that the mesh itself lacks.
    pub fn missing(&self) -> Vec<String> {
        let secured = self.mtls().is_some() || self.identities > 0;
        let off = "mTLS, without which permissions have no effect: enable a backend in `mtls` of the Mesh (PERMISSIVE \
                   first), or give proxies a MeshIdentity";
        if secured { Vec::new() } else { vec![off.to_owned()] }
    }

    pub fn mode(&self) -> TrimmingStage {
        match self.read.metadata.label(labels::REACHABILITY_MODE) {
            "shadow" => TrimmingStage::Shadow,
            "enforce" => TrimmingStage::Enforce,
            _ => TrimmingStage::Before,
        }
    }

    /// Time for which the mode has been `shadow`; `None` where that is not known, because someone else set it.
    pub fn in_shadow(&self, now: Timestamp) -> Option<Duration> {
        let since: i64 = self.read.metadata.label(SHADOW_SINCE).parse().ok()?;
        let seconds = now.as_second().checked_sub(since).filter(|_| self.mode() == TrimmingStage::Shadow)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    /// Instruction for a Mesh that cannot be written here, because it comes from a global control plane.
    pub fn elsewhere(&self, mode: TrimmingStage) -> Option<String> {
        let name = line(&self.read.metadata.name);
        (self.read.metadata.label(labels::ORIGIN) == labels::ORIGIN_GLOBAL).then(|| {
            format!(
                "the Mesh comes from the global control plane: run `kumactl edit mesh {name}` there, give it the label \
                 {}: {} (or ZONE.{} for one zone), and run this command again",
                labels::REACHABILITY_MODE,
                mode.word(),
                labels::REACHABILITY_MODE
            )
        })
    }

    pub fn set(mut self, client: &ApiClient, mode: TrimmingStage) -> Result<()> {
        if let Some(fields) = self.sent.as_object_mut() {
            for computed in ["creationTime", "modificationTime", "kri", "status"] {
                fields.remove(computed);
            }
            let labels = fields.entry("labels").or_insert_with(|| json!({}));
            overwrite(labels, &json!({ labels::REACHABILITY_MODE: mode.word() }));
            if mode == TrimmingStage::Shadow {
                overwrite(labels, &json!({ SHADOW_SINCE: Timestamp::now().as_second().to_string() }));
            }
        }
        let attempted = format!(
            "could not set the mode of the mesh to {}; on a zone of a global control plane the Mesh is written there",
            mode.word()
        );
        client.put(&self.path, &self.sent)?.accepted(&attempted)?;
        Ok(())
    }
}

/// A list of which the number of items is asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Items {
    items: Vec<IgnoredAny>,
}
