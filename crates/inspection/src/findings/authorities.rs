//! Authorities of meshes: when each expires, and whether the one that signs can be used.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use findings::{Code, Finding};
use identity::ca::{self, Authority, Files, Sources, builtin, bundled};
use jiff::Timestamp;
use resources::{
    Key, Kind, Resource,
    kinds::{
        mesh::{CertificateAuthorityBackend, Mesh},
        mesh_identity::MeshIdentity,
    },
    naming::Kri,
};
use serving::push::{SecretChanges, lock};
use store::{Snapshot, Store};
use tokio::sync::watch;
use topology::MeshSnapshot;

/// An authority that ends sooner than this is to be replaced.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Looks at the authorities of meshes, each once per change of the mesh, its identities or its secrets.
pub(super) struct Authorities {
    files: Files,
    secrets: watch::Receiver<SecretChanges>,
    known: Mutex<BTreeMap<Arc<str>, MeshAuthorities>>,
}

#[derive(Debug, Clone)]
struct MeshAuthorities {
    as_of: Version,
    all: Arc<[AuthorityState]>,
}

/// Versions that the authorities of a mesh depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    secrets: u64,
    mesh: u64,
    identities: Vec<(Key, u64)>,
}

/// An authority that proxies of a mesh trust.
#[derive(Debug)]
pub(super) struct AuthorityState {
    /// The name of the backend, or the KRI of the MeshIdentity.
    pub name: Arc<str>,
    about: Kri,
    pub expires: Option<Timestamp>,
    /// Reason why nothing can be signed, although it is to sign.
    unusable: Option<String>,
}

impl AuthorityState {
    fn finding(&self, now: Timestamp) -> Option<Finding> {
        let AuthorityState { name, about, expires, unusable } = self;
        if let Some(reason) = unusable {
            return Some(Finding::about(Code::UnusableAuthority, about.clone(), reason.clone()));
        }
        let expires = expires.filter(|expires| *expires <= now + SOON)?;
        let text = if expires > now {
            format!("the authority {name} ends at {expires}")
        } else {
            format!("the authority {name} ended at {expires}")
        };
        Some(Finding::about(Code::AuthorityExpiring, about.clone(), text))
    }
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

    /// Findings of the authorities of a mesh.
    pub(super) fn findings(&self, store: &dyn Store, mesh: &MeshSnapshot, now: Timestamp) -> Vec<Finding> {
        self.of(store, mesh, now).iter().filter_map(|state| state.finding(now)).collect()
    }

    /// The authorities of a mesh; none while the store cannot be read.
    pub(super) fn of(&self, store: &dyn Store, mesh: &MeshSnapshot, now: Timestamp) -> Arc<[AuthorityState]> {
        let Ok(snapshot) = store.snapshot() else { return Arc::default() };
        let identities = snapshot.in_mesh(Kind::MeshIdentity, &mesh.name);
        let as_of = Version {
            secrets: self.secrets.borrow().of(&mesh.name),
            mesh: mesh.mesh.version,
            identities: identities.map(|identity| (identity.key.clone(), identity.version)).collect(),
        };
        if let Some(known) = lock(&self.known).get(&mesh.name).filter(|known| known.as_of == as_of) {
            return known.all.clone();
        }
        let from = Sources { snapshot: &snapshot, files: Some(&self.files) };
        let mut all = of_backends(from, mesh, now);
        all.extend(of_identities(from, &mesh.name));
        let all: Arc<[AuthorityState]> = all.into();
        lock(&self.known).insert(mesh.name.clone(), MeshAuthorities { as_of, all: all.clone() });
        all
    }

    /// Forgets meshes that are gone.
    pub(super) fn retain(&self, exists: impl Fn(&Arc<str>) -> bool) {
        lock(&self.known).retain(|mesh, _| exists(mesh));
    }
}

/// Those that the mesh lists: proxies trust them all, and one signs.
fn of_backends(from: Sources<'_>, mesh: &MeshSnapshot, now: Timestamp) -> Vec<AuthorityState> {
    let (Some(enabled), Some(about)) = (&mesh.mtls, mesh.mesh.kri("")) else { return Vec::new() };
    let listed = mesh.mesh.spec.get::<Mesh>().and_then(|spec| spec.mtls.as_ref());
    let listed = listed.into_iter().flat_map(|mtls| &mtls.backends);
    // An authority of the control plane's own is made when the first proxy needs it.
    let is_made = |backend: &str| is_stored(from.snapshot, &mesh.name, backend);
    let there = listed.filter(|backend| backend.kind != "builtin" || is_made(&backend.name));
    let state = |backend: &CertificateAuthorityBackend| {
        let signs = *backend.name == *enabled.enabled_backend;
        let read = signs.then(|| Authority::load(from, &mesh.name, &backend.name, now).err()).flatten();
        AuthorityState {
            name: backend.name.as_str().into(),
            about: about.clone(),
            expires: ca::expiry(from, &mesh.name, backend).ok(),
            unusable: read.map(|error| error.to_string()),
        }
    };
    there.map(state).collect()
}

fn is_stored(snapshot: &Snapshot, mesh: &str, backend: &str) -> bool {
    snapshot.get(&builtin::certificate_secret(mesh, backend)).is_some()
}

/// Those of MeshIdentities. Why one cannot be used is in its conditions.
fn of_identities(from: Sources<'_>, mesh: &str) -> Vec<AuthorityState> {
    let identities = from.snapshot.in_mesh(Kind::MeshIdentity, mesh);
    let bundled = identities
        .filter(|identity| identity.spec.get::<MeshIdentity>().is_some_and(|spec| spec.bundled().is_some()));
    let state = |identity: &Arc<Resource>| {
        let about = identity.kri("")?;
        let expires = Some(bundled::expiry(from, identity).ok()?);
        Some(AuthorityState { name: about.to_string().into(), about, expires, unusable: None })
    };
    bundled.filter_map(state).collect()
}
