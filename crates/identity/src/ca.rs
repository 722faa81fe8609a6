//! The certificate authorities of a mesh.
//!
//! A mesh lists backends and enables one. The enabled backend signs the certificates of proxies; the
//! roots of all listed ones are trusted, so that moving from one to another loses no connection:
//! list both, enable the other, and drop the old one after the last certificate it signed expired.
//!
//! A `builtin` backend keeps its root in two secrets, named and encoded as in Kuma, that the control
//! plane makes once ([`builtin`]). A `provided` backend says where its certificate and key are.
//!
//! Invariant: no text that leaves this module, errors included, holds bytes of a key.

pub mod builtin;
pub mod bundled;
pub mod early_roots;
mod error;
pub(crate) mod leaf_key;
pub(crate) mod signer;
mod source;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Key, Kind, Violations,
    kinds::mesh::{CertificateAuthorityBackend, Mesh, SHORTEST_LIFETIME, parse_lifetime},
};
use store::Snapshot;

use crate::{Error, pem};
pub use error::{CertificateAuthorityError, SecureSourceError, SourceError, SourceFileError};
pub use leaf_key::FreshKey;
use leaf_key::LeafKey;
use signer::Signer;
pub use source::{Files, Sources};

/// Default lifetime of the certificate of a proxy.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A backend that can sign.
pub struct Authority {
    mesh: Arc<str>,
    backend: Arc<str>,
    lifetime: Duration,
    signer: Signer,
    /// Of the signer, which does not change.
    fingerprint: [u8; 32],
    leaf_keys: LeafKeys,
}

/// Sort of keys that an authority's certificates have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeafKeys {
    Small,
    LikeAuthority,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mesh = &self.mesh;
        let backend = &self.backend;
        f.debug_struct("Authority")
            .field("mesh", mesh)
            .field("backend", backend)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads a backend of a mesh and checks that proxies will trust the certificates it signs.
    pub fn load<'a>(
        from: impl Into<Sources<'a>>,
        mesh: &str,
        backend: &str,
        now: Timestamp,
    ) -> Result<Authority, Error> {
        let from = from.into();
        let refused = |reason| refused(mesh, backend, reason);
        let spec =
            mesh_spec(from.snapshot, mesh).ok_or_else(|| refused(CertificateAuthorityError::NoMesh))?;
        let backends = spec.mtls.as_ref().map_or(&[][..], |mtls| &mtls.backends);
        let Some(found) = backends.iter().find(|listed| listed.name == backend) else {
            let listed = backends.iter().map(|listed| listed.name.clone()).collect();
            return Err(refused(CertificateAuthorityError::NotListed(listed)));
        };
        let lifetime = lifetime(found).map_err(refused)?;
        let signer = read(from, mesh, found, now).map_err(|(_, reason)| refused(reason))?;
        let fingerprint = signer.fingerprint();
        let mesh = mesh.into();
        let backend = backend.into();
        let leaf_keys = LeafKeys::Small;
        Ok(Authority { mesh, backend, lifetime, signer, fingerprint, leaf_keys })
    }

    pub fn mesh(&self) -> &Arc<str> {
        &self.mesh
    }

    pub fn backend(&self) -> &Arc<str> {
        &self.backend
    }

    /// Lifetime of a proxy's certificate.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Expiry of the authority itself, or of one it was signed by.
    pub fn expires(&self) -> Timestamp {
        self.signer.not_after()
    }

    /// Tells authorities apart that had the same name at different times.
    pub(crate) fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// True if every certificate needs an RSA key of its own, which takes a processor for a while.
    pub fn needs_fresh_keys(&self) -> bool {
        self.leaf_keys == LeafKeys::LikeAuthority && self.signer.is_rsa()
    }

    /// The key of the next certificate: `fresh`, where it can be used.
    pub(crate) fn leaf_key<'a>(&self, fresh: Option<&'a FreshKey>) -> LeafKey<'a> {
        match self.leaf_keys {
            LeafKeys::Small => LeafKey::Small,
            LeafKeys::LikeAuthority => LeafKey::LikeAuthority(fresh),
        }
    }

    pub(crate) fn refused(&self, reason: CertificateAuthorityError) -> Error {
        refused(&self.mesh, &self.backend, reason)
    }
}

/// The roots every proxy of a mesh trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustBundle {
    /// The roots of all listed backends, in the order they are listed, each once.
    pub pem: String,
    /// Backends whose root cannot be read, and why. The others are trusted all the same.
    pub unreadable: Vec<Error>,
}

/// Collects the roots of all backends a mesh lists. Keys are not needed and not looked at.
pub fn trust_bundle<'a>(from: impl Into<Sources<'a>>, mesh: &str) -> TrustBundle {
    let from = from.into();
    let mut bundle = TrustBundle::default();
    let mut seen = Vec::new();
    let mtls = mesh_spec(from.snapshot, mesh).and_then(|spec| spec.mtls.as_ref());
    for backend in mtls.into_iter().flat_map(|mtls| &mtls.backends) {
        let text = certificate_text(from, mesh, backend);
        match text.and_then(|text| signer::root_of(&text)) {
            Ok(root) if seen.contains(&root) => {}
            Ok(root) => {
                bundle.pem.push_str(&pem::encode("CERTIFICATE", &root));
                seen.push(root);
            }
            Err(reason) => bundle.unreadable.push(refused(mesh, &backend.name, reason)),
        }
    }
    bundle
}

/// Expiry of a backend's authority: also of one that has expired, or whose key is missing.
pub fn expiry<'a>(
    from: impl Into<Sources<'a>>,
    mesh: &str,
    backend: &CertificateAuthorityBackend,
) -> Result<Timestamp, CertificateAuthorityError> {
    signer::expiry_of(&certificate_text(from.into(), mesh, backend)?)
}

fn mesh_spec<'a>(snapshot: &'a Snapshot, mesh: &str) -> Option<&'a Mesh> {
    snapshot.get(&Key::global(Kind::Mesh, mesh))?.spec.get::<Mesh>()
}

fn lifetime(backend: &CertificateAuthorityBackend) -> Result<Duration, CertificateAuthorityError> {
    let rotation = backend.dp_cert.as_ref().and_then(|certificate| certificate.rotation.as_ref());
    let Some(text) = rotation.map(|rotation| rotation.expiration.as_str()).filter(|text| !text.is_empty())
    else {
        return Ok(DEFAULT_LIFETIME);
    };
    let lifetime = parse_lifetime(text).filter(|lifetime| *lifetime >= SHORTEST_LIFETIME);
    lifetime.ok_or_else(|| CertificateAuthorityError::LeafLifetime(text.to_owned()))
}

/// Field of a `provided` backend, and its mistake.
type FieldError = (&'static str, CertificateAuthorityError);

fn read(
    from: Sources<'_>,
    mesh: &str,
    backend: &CertificateAuthorityBackend,
    now: Timestamp,
) -> Result<Signer, FieldError> {
    let of = |field: &'static str| move |reason: CertificateAuthorityError| (field, reason);
    let certificate = certificate_text(from, mesh, backend).map_err(of("cert"))?;
    let key = match backend.kind.as_str() {
        "builtin" => builtin::stored(from.snapshot, &builtin::key_secret(mesh, &backend.name)),
        _ => source::read(from, mesh, backend, "key").map_err(Into::into),
    };
    let key = key.map_err(of("key"))?;
    let signer = Signer::parse(&certificate, &key, now);
    let signer = signer.map_err(|why| (if why.is_about_given_key() { "key" } else { "cert" }, why))?;
    signer.prove(now).map_err(of("cert"))?;
    Ok(signer)
}

fn certificate_text(
    from: Sources<'_>,
    mesh: &str,
    backend: &CertificateAuthorityBackend,
) -> Result<Vec<u8>, CertificateAuthorityError> {
    match backend.kind.as_str() {
        "builtin" => builtin::stored(from.snapshot, &builtin::certificate_secret(mesh, &backend.name)),
        "provided" => Ok(source::read(from, mesh, backend, "cert")?),
        other => Err(CertificateAuthorityError::UnknownType(other.to_owned())),
    }
}

/// Checks that the `provided` backends of a mesh can sign before it is stored, unless the mesh forbids it
/// (`mtls.skipValidation`). Their secrets must be stored already.
pub fn check(from: Sources<'_>, mesh: &str, spec: &Mesh, now: Timestamp) -> Violations {
    let mut found = Violations::default();
    let Some(mtls) = spec.mtls.as_ref().filter(|mtls| !mtls.skip_validation) else { return found };
    for (at, backend) in mtls.backends.iter().enumerate().filter(|(_, backend)| backend.kind == "provided") {
        if let Err((field, reason)) = read(from, mesh, backend, now) {
            found.add(format!("mtls.backends[{at}].conf.{field}"), reason.to_string());
        }
    }
    found
}

fn refused(mesh: &str, backend: &str, reason: CertificateAuthorityError) -> Error {
    Error::Authority { mesh: mesh.to_owned(), backend: backend.to_owned(), reason: Box::new(reason) }
}
