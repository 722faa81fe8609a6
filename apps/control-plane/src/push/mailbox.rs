//! Updates of meshes for one reader who looks when it can: several of one mesh become one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;
use topology::{Affected, MeshSnapshot, MeshUpdate};

use super::lock;

/// What changed since the reader last looked. Holds no more than the meshes have.
#[derive(Debug, Default)]
pub struct Mailbox {
    mail: Mutex<Mail>,
    arrived: Notify,
}

/// What changed.
#[derive(Debug, Default)]
pub struct Mail {
    /// All meshes were read anew: those that are not here are gone.
    pub anew: bool,
    pub meshes: BTreeMap<Arc<str>, News>,
}

/// A mesh as it is now; `None` when it is gone.
#[derive(Debug)]
pub struct News {
    pub snapshot: Option<Arc<MeshSnapshot>>,
    pub affected: Affected,
}

impl Mailbox {
    pub(super) fn post(&self, updates: &[MeshUpdate], anew: bool) {
        let mut mail = lock(&self.mail);
        if anew {
            *mail = Mail { anew, meshes: BTreeMap::new() };
        }
        for MeshUpdate { mesh, snapshot, affected } in updates {
            match mail.meshes.get_mut(mesh) {
                Some(known) => {
                    known.snapshot.clone_from(snapshot);
                    known.affected.add(affected);
                }
                None => {
                    let news = News { snapshot: snapshot.clone(), affected: affected.clone() };
                    mail.meshes.insert(mesh.clone(), news);
                }
            }
        }
        self.arrived.notify_one();
    }

    /// Waits until something changed.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// What changed since the last time.
    pub fn take(&self) -> Mail {
        std::mem::take(&mut *lock(&self.mail))
    }
}
