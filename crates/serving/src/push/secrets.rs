//! Changes of secrets, for streams that depend on them, and the authority of admin interfaces.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use resources::{Key, Kind};
use tokio::sync::watch;

/// Secrets of meshes, and the authority that is one.
#[derive(Default)]
pub(super) struct Secrets {
    /// Changes of secrets: tokens may have been revoked, authorities replaced.
    pub changes: watch::Sender<SecretChanges>,
    /// Authority that signs the certificates of admin interfaces.
    pub admin_authority: identity::admin::StoredAuthority,
}

/// In which round the secrets of each mesh last changed.
#[derive(Debug, Default)]
pub struct SecretChanges {
    rounds: u64,
    everywhere: u64,
    of_mesh: HashMap<Arc<str>, u64>,
}

impl SecretChanges {
    /// A number that is another one when something changed that matters in the mesh.
    pub fn of(&self, mesh: &str) -> u64 {
        self.of_mesh.get(mesh).copied().unwrap_or_default().max(self.everywhere)
    }

    pub(super) fn record(&mut self, keys: &BTreeSet<Key>, anew: bool) -> bool {
        let round = self.rounds + 1;
        if anew {
            (self.rounds, self.everywhere) = (round, round);
        }
        for key in keys {
            match key.kind {
                Kind::GlobalSecret => self.everywhere = round,
                Kind::Secret | Kind::MeshIdentity | Kind::MeshTrust => {
                    self.of_mesh.insert(key.mesh.clone(), round);
                }
                Kind::Mesh => drop(self.of_mesh.insert(key.name.clone(), round)),
                _ => continue,
            }
            self.rounds = round;
        }
        self.rounds == round
    }
}
