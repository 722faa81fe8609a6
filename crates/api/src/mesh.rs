//! Special rules for meshes: the right to change their certificate authorities, and the parts of those that
//! are shown.
//!
//! A `provided` authority may have its private key written into the mesh. Such a key is shown as
//! [`MASK`], to every caller; a mesh that is put back with the mask keeps the key that is stored.

use std::sync::Arc;

use identity::ca::{self, Sources};
use jiff::Timestamp;
use resources::{
    Administered, Draft, Key, Kind, Resource, Spec, Violations,
    kinds::mesh::{CertificateAuthorityBackend, Mesh, Mtls},
};
use serde_json::Value;
use store::Snapshot;

use crate::{Context, Error, User, access, inline_keys::MASK};

/// Fields that a key can be written into.
const PLACES: [&str; 2] = ["inline", "inlineString"];

const PROCESS: &str = "Could not process a resource";

/// The resource without keys that are written into it.
pub fn mask_keys(resource: &Arc<Resource>) -> Arc<Resource> {
    let Spec::Mesh(mesh) = &resource.spec else { return resource.clone() };
    if !backends(mesh).any(|backend| PLACES.iter().any(|place| key_of(backend, place).is_some())) {
        return resource.clone();
    }
    let mut masked = Mesh::clone(mesh);
    for backend in backends_mut(&mut masked) {
        for place in PLACES {
            if let Some(key) = key_mut(backend, place) {
                *key = MASK.into();
            }
        }
    }
    Arc::new(Resource { spec: Spec::Mesh(Arc::new(masked)), ..Resource::clone(resource) })
}

/// Makes a mesh that is about to be put what it means, and checks that its author may have it and that
/// its authorities can sign. `snapshot` is what it is written on.
pub async fn prepare(
    context: &Arc<Context>,
    user: &User,
    snapshot: &Arc<Snapshot>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let stored = stored(snapshot, &draft.key.name);
    let Spec::Mesh(spec) = &mut draft.spec else { return Ok(()) };
    let missing = unmask(Arc::make_mut(spec), stored);
    let spec = spec.clone();
    let name = draft.key.name.clone();
    if authorities(&spec) == stored.map(authorities).unwrap_or_default() {
        return Ok(());
    }
    check_administrator(context, user)?;
    let mut found = draft.validate();
    if found.is_empty() {
        found.extend(missing);
    }
    if found.is_empty() {
        found = unusable(context, snapshot, name, spec).await?;
    }
    found.into_result().map_err(|violations| Error::Invalid { title: PROCESS.into(), violations })
}

pub fn may_change_authorities(context: &Context, user: &User) -> bool {
    check_administrator(context, user).is_ok()
}

/// A mesh takes its authorities along when it is deleted, and what else only administrators delete. Secrets are not
/// looked at: every mesh has the keys of its tokens.
pub fn check_deletion(context: &Context, user: &User, snapshot: &Snapshot, name: &str) -> Result<(), Error> {
    if stored(snapshot, name).is_some_and(|mesh| authorities(mesh) != Mtls::default()) {
        check_administrator(context, user)?;
    }
    let administered = |kind: &&Kind| kind.descriptor().administered == Administered::Writes;
    let held =
        Kind::ALL.iter().filter(administered).find(|kind| snapshot.in_mesh(**kind, name).next().is_some());
    held.map_or(Ok(()), |kind| access::check_write_kind(user, *kind, &context.settings.access))
}

fn check_administrator(context: &Context, user: &User) -> Result<(), Error> {
    let allowed = &context.settings.access.admin_resources;
    access::check_action(user, allowed, "change the mTLS settings of a mesh")
}

/// Trying an authority takes a signature, and possibly a file.
async fn unusable(
    context: &Arc<Context>,
    snapshot: &Arc<Snapshot>,
    name: Arc<str>,
    spec: Arc<Mesh>,
) -> Result<Violations, Error> {
    let snapshot = snapshot.clone();
    let context = context.clone();
    let checked = tokio::task::spawn_blocking(move || {
        let from = Sources { snapshot: &snapshot, files: Some(&context.settings.data_sources) };
        ca::check(from, &name, &spec, Timestamp::now())
    });
    checked.await.map_err(|error| Error::Internal { title: PROCESS, cause: error.to_string() })
}

fn stored<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Mesh> {
    snapshot.get(&Key::global(Kind::Mesh, name))?.spec.get::<Mesh>()
}

/// Absent and empty are the same.
fn authorities(mesh: &Mesh) -> Mtls {
    mesh.mtls.clone().unwrap_or_default()
}

/// Puts the stored keys where the mask is; says where there is none.
fn unmask(mesh: &mut Mesh, stored: Option<&Mesh>) -> Violations {
    let mut missing = Violations::default();
    for (at, backend) in backends_mut(mesh).enumerate() {
        let before = stored.into_iter().flat_map(backends).find(|before| before.name == backend.name);
        for place in PLACES {
            let Some(key) = key_mut(backend, place).filter(|key| *key == MASK) else { continue };
            match before.and_then(|before| key_of(before, place)) {
                Some(kept) => *key = kept.clone(),
                None => missing.add(
                    format!("mtls.backends[{at}].conf.key.{place}"),
                    format!("{MASK} stands for a key that is not stored: write the key itself"),
                ),
            }
        }
    }
    missing
}

fn backends(mesh: &Mesh) -> impl Iterator<Item = &CertificateAuthorityBackend> {
    mesh.mtls.iter().flat_map(|mtls| &mtls.backends)
}

fn backends_mut(mesh: &mut Mesh) -> impl Iterator<Item = &mut CertificateAuthorityBackend> {
    mesh.mtls.iter_mut().flat_map(|mtls| &mut mtls.backends)
}

fn key_of<'a>(backend: &'a CertificateAuthorityBackend, place: &str) -> Option<&'a Value> {
    backend.conf.as_ref()?.get("key")?.get(place)
}

fn key_mut<'a>(backend: &'a mut CertificateAuthorityBackend, place: &str) -> Option<&'a mut Value> {
    backend.conf.as_mut()?.get_mut("key")?.get_mut(place)
}
