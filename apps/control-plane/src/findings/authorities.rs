//! Authorities of meshes that expire soon, or cannot be used.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use findings::{Code, Finding};
use identity::ca::{Authority, Files, Sources, builtin};
use jiff::Timestamp;
use resources::kinds::mesh::Mesh;
use store::Store;
use tokio::sync::watch;
use topology::MeshSnapshot;

use crate::push::{SecretChanges, lock};

/// An authority that ends sooner than this is to be replaced.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Looks at the authorities of meshes, each once per change of its secrets.
pub(super) struct Authorities {
    files: Files,
    secrets: watch::Receiver<SecretChanges>,
    known: Mutex<BTreeMap<Arc<str>, AuthorityExpiry>>,
}

#[derive(Debug, Clone)]
struct AuthorityExpiry {
    as_of: (u64, Arc<str>),
    /// When it ends, or why it cannot be used.
    outcome: Result<Timestamp, String>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

impl Authorities {
    pub(super) fn reading(files: Files, secrets: watch::Receiver<SecretChanges>) -> Authorities {
        Authorities { files, secrets, known: Mutex::default() }
    }

    /// What is wrong with the enabled authority of a mesh.
    pub(super) fn finding(&self, store: &dyn Store, mesh: &MeshSnapshot, now: Timestamp) -> Option<Finding> {
        let backend = &mesh.mtls.as_ref()?.enabled_backend;
        let (code, text) = match self.outcome(store, mesh, backend, now)? {
            Err(reason) => (Code::UnusableAuthority, reason),
            Ok(ends) if ends > now + SOON => return None,
            Ok(ends) => {
                (Code::AuthorityExpiring, format!("the authority of backend {backend} ends at {ends}"))
            }
        };
        Some(Finding::about(code, mesh.mesh.kri("")?, text))
    }

    /// When the enabled authority of a mesh expires, with the name of its backend; `None` if there is none that can
    /// be used.
    pub(super) fn expiry(
        &self,
        store: &dyn Store,
        mesh: &MeshSnapshot,
        now: Timestamp,
    ) -> Option<(Arc<str>, Timestamp)> {
        let backend = &mesh.mtls.as_ref()?.enabled_backend;
        let expires = self.outcome(store, mesh, backend, now)?.ok()?;
        Some((backend.clone(), expires))
    }

    /// `None` while it is not made yet, or the store cannot be read.
    fn outcome(
        &self,
        store: &dyn Store,
        mesh: &MeshSnapshot,
        backend: &Arc<str>,
        now: Timestamp,
    ) -> Option<Result<Timestamp, String>> {
        let as_of = (self.secrets.borrow().of(&mesh.name), backend.clone());
        if let Some(known) = lock(&self.known).get(&mesh.name).filter(|known| known.as_of == as_of) {
            return Some(known.outcome.clone());
        }
        let snapshot = store.snapshot().ok()?;
        let listed = mesh.mesh.spec.get::<Mesh>().and_then(Mesh::enabled_backend)?;
        // An authority of the control plane's own is made when the first proxy needs it.
        let is_made = || snapshot.get(&builtin::certificate_secret(&mesh.name, backend)).is_some();
        if listed.kind == "builtin" && !is_made() {
            return None;
        }
        let from = Sources { snapshot: &snapshot, files: Some(&self.files) };
        let read = Authority::load(from, &mesh.name, backend, now);
        let outcome = read.map(|authority| authority.expires()).map_err(|error| error.to_string());
        lock(&self.known).insert(mesh.name.clone(), AuthorityExpiry { as_of, outcome: outcome.clone() });
        Some(outcome)
    }

    /// Forgets meshes that are gone.
    pub(super) fn retain(&self, exists: impl Fn(&Arc<str>) -> bool) {
        lock(&self.known).retain(|mesh, _| exists(mesh));
    }
}
