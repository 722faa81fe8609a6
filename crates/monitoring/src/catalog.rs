//! All targets at one moment, and the pages that are written of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{BufMut, Bytes, BytesMut};
use contract::monitoring::ASSIGNMENT_TYPE;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::{mesh::MeshTargets, target::RenderedTarget, zone_proxies::ZoneTargets};

/// Bytes of a version: no two contents share one by accident.
const VERSION_BYTES: usize = 16;

/// Targets at one moment. Its pages are written when they are first asked for, once.
pub struct Catalog {
    meshes: BTreeMap<Arc<str>, MeshTargets>,
    zone_proxies: ZoneTargets,
    clients: BTreeSet<String>,
    pages: Mutex<HashMap<Question, Arc<OnceCell<Page>>>>,
}

/// A question that a page answers. There are as many as there are meshes and clients with pages of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// Assignments of all meshes for a client.
    Assignments { client: Option<String> },
    /// Groups of targets of one mesh, or of all, for a client.
    Groups { mesh: Option<Arc<str>>, client: Option<String> },
}

/// A written answer.
#[derive(Debug, Clone)]
pub struct Page {
    /// Made of the content, so that it is the same wherever and whenever that is the same.
    pub version: Arc<str>,
    pub body: Bytes,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Catalog {
    pub fn new(meshes: BTreeMap<Arc<str>, MeshTargets>, zone_proxies: ZoneTargets) -> Catalog {
        let clients = meshes.values().flat_map(MeshTargets::clients).cloned().collect();
        Catalog { meshes, zone_proxies, clients, pages: Mutex::default() }
    }

    /// The client as pages know it: `None` for one that no page is only for.
    pub fn client(&self, id: &str) -> Option<String> {
        self.clients.get(id).cloned()
    }

    /// The name of a mesh that is there.
    pub fn mesh(&self, name: &str) -> Option<Arc<str>> {
        self.meshes.get_key_value(name).map(|(name, _)| name.clone())
    }

    /// The page that answers a question. Those who ask at the same time wait for one writer, who is beside the threads
    /// that answer others.
    pub async fn page(self: &Arc<Catalog>, question: Question) -> Page {
        let cell = {
            let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            pages.entry(question.clone()).or_default().clone()
        };
        let catalog = self.clone();
        let write = async {
            let asked = question.clone();
            let written = tokio::task::spawn_blocking(move || catalog.write(&asked)).await;
            // Writing text does not panic; were it to, it would here, too, in the request that asks.
            written.unwrap_or_else(|_| self.write(&question))
        };
        cell.get_or_init(|| write).await.clone()
    }

    /// The targets of a client in one mesh, or in all and of zones.
    fn targets(
        &self,
        mesh: Option<&Arc<str>>,
        client: Option<&str>,
    ) -> impl Iterator<Item = &RenderedTarget> {
        let wanted = move |name: &Arc<str>| mesh.is_none_or(|mesh| mesh == name);
        let meshes = self.meshes.iter().filter(move |(name, _)| wanted(name)).map(|(_, mesh)| mesh);
        let of_zones = self.zone_proxies.iter().filter(move |_| mesh.is_none() && client.is_none());
        meshes.flat_map(move |mesh| mesh.of_client(client)).chain(of_zones)
    }

    fn write(&self, question: &Question) -> Page {
        match question {
            Question::Assignments { client } => {
                let targets = self.targets(None, client.as_deref());
                let list = joined(targets.map(|target| &*target.assignment));
                let version = version_of(&list);
                let mut body = BytesMut::with_capacity(list.len() + 256);
                body.put_slice(format!("{{\"version_info\":\"{version}\",\"resources\":").as_bytes());
                body.put_slice(&list);
                body.put_slice(
                    format!(",\"type_url\":\"{ASSIGNMENT_TYPE}\",\"nonce\":\"{version}\"}}").as_bytes(),
                );
                Page { version, body: body.freeze() }
            }
            Question::Groups { mesh, client } => {
                let targets = self.targets(mesh.as_ref(), client.as_deref());
                let list = joined(targets.map(|target| &*target.group));
                Page { version: version_of(&list), body: list }
            }
        }
    }
}

/// A JSON array of items that are JSON already.
fn joined<'a>(items: impl Iterator<Item = &'a str>) -> Bytes {
    let mut list = BytesMut::new();
    list.put_u8(b'[');
    for (place, item) in items.enumerate() {
        if place > 0 {
            list.put_u8(b',');
        }
        list.put_slice(item.as_bytes());
    }
    list.put_u8(b']');
    list.freeze()
}

fn version_of(content: &[u8]) -> Arc<str> {
    let digest = Sha256::digest(content);
    let text: String = digest.iter().take(VERSION_BYTES).map(|byte| format!("{byte:02x}")).collect();
    text.into()
}
