//! Roots that the control plane generates, once per backend.

use std::time::Duration;

use aws_lc_rs::{encoding::AsDer, rsa, signature::RsaKeyPair};
use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose, SanType};
use resources::{
    Draft, Key, Kind,
    kinds::{
        mesh::{CertificateAuthorityBackend, builtin_certificate, parse_lifetime},
        secret::{Secret, SecretBytes},
    },
    naming::SpiffeId,
};
use serde_json::Value;
use store::Snapshot;

use super::{CertificateAuthorityError, mesh_spec, refused, signer};
use crate::{Error, certificate::CertificateAndKey, pem, signing_key};

const DEFAULT_BITS: u64 = 2048;

/// Ten years.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The secret that holds the root certificate of a backend.
pub fn certificate_secret(mesh: &str, backend: &str) -> Key {
    Key::new(Kind::Secret, mesh, &builtin_certificate(mesh, backend))
}

/// The secret that holds the private key of a backend's root.
pub fn key_secret(mesh: &str, backend: &str) -> Key {
    Key::new(Kind::Secret, mesh, &format!("{mesh}.ca-builtin-key-{backend}"))
}

/// Makes the secrets that a mesh's builtin backends still lack: none when all is there.
///
/// The key of a root comes before its certificate and must be stored first, because a store may fail in
/// between: a key alone gets its certificate here. One more certificate of the same name and key is as
/// good to proxies as the first. A certificate whose key is gone is an error: another root would cut off
/// every proxy that trusts this one.
pub fn missing(snapshot: &Snapshot, mesh: &str, now: Timestamp) -> Result<Vec<Draft>, Error> {
    let mut drafts = Vec::new();
    let mtls = mesh_spec(snapshot, mesh).and_then(|spec| spec.mtls.as_ref());
    let backends = mtls.into_iter().flat_map(|mtls| &mtls.backends);
    for backend in backends.filter(|backend| backend.kind == "builtin") {
        let certificate = certificate_secret(mesh, &backend.name);
        let key = key_secret(mesh, &backend.name);
        match [&certificate, &key].map(|secret| snapshot.get(secret).is_some()) {
            [true, true] => {}
            [false, false] => drafts.extend(create(mesh, backend, now)?),
            [false, true] => {
                let key = stored(snapshot, &key).map_err(|reason| refused(mesh, &backend.name, reason))?;
                drafts.push(certify(mesh, backend, &key, now)?);
            }
            [true, false] => {
                let certificate = Box::new(certificate);
                let key = Box::new(key);
                let lost = CertificateAuthorityError::KeyLost { certificate, key, remedy: "delete both" };
                return Err(refused(mesh, &backend.name, lost));
            }
        }
    }
    Ok(drafts)
}

/// Makes the roots of a mesh's builtin backends again that are not valid yet, because the clock was set back: with the
/// same keys, so that certificates that they signed stay as good as they were.
pub fn early(snapshot: &Snapshot, mesh: &str, now: Timestamp) -> Result<Vec<Draft>, Error> {
    let mut drafts = Vec::new();
    let mtls = mesh_spec(snapshot, mesh).and_then(|spec| spec.mtls.as_ref());
    let backends = mtls.into_iter().flat_map(|mtls| &mtls.backends);
    for backend in backends.filter(|backend| backend.kind == "builtin") {
        let root = stored(snapshot, &certificate_secret(mesh, &backend.name));
        let key = stored(snapshot, &key_secret(mesh, &backend.name));
        if let (Ok(root), Ok(key)) = (root, key)
            && signer::is_early(&root, now)
        {
            drafts.push(certify(mesh, backend, &key, now)?);
        }
    }
    Ok(drafts)
}

/// Makes a root for a backend: the secrets with its key and its certificate, in this order.
pub fn create(
    mesh: &str,
    backend: &CertificateAuthorityBackend,
    now: Timestamp,
) -> Result<[Draft; 2], Error> {
    let refused = |reason| refused(mesh, &backend.name, reason);
    let (size, _) = settings(backend).map_err(refused)?;
    let key = generate(size).map_err(refused)?;
    let certificate = certify(mesh, backend, key.as_bytes(), now)?;
    Ok([secret(key_secret(mesh, &backend.name), key), certificate])
}

/// The certificate of a root with this key.
fn certify(
    mesh: &str,
    backend: &CertificateAuthorityBackend,
    key: &[u8],
    now: Timestamp,
) -> Result<Draft, Error> {
    let refused = |reason| refused(mesh, &backend.name, reason);
    let (_, lifetime) = settings(backend).map_err(refused)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Kuma");
    name.push(DnType::OrganizationalUnitName, "Mesh");
    name.push(DnType::CommonName, mesh);
    let uri = signer::uri(SpiffeId::of_trust_domain(mesh).as_str()).map_err(refused)?;
    let certificate = self_signed(name, vec![uri], key, lifetime, now).map_err(refused)?;
    Ok(secret(certificate_secret(mesh, &backend.name), certificate))
}

fn secret(key: Key, text: String) -> Draft {
    Draft::new(key, Secret { data: SecretBytes::new(text) }.into())
}

/// Makes a self-signed authority with an RSA key in the encoding that Kuma stores.
pub(crate) fn root(
    name: DistinguishedName,
    names: Vec<SanType>,
    size: rsa::KeySize,
    lifetime: Duration,
    now: Timestamp,
) -> Result<CertificateAndKey, CertificateAuthorityError> {
    let key = generate(size)?;
    Ok(CertificateAndKey { certificate: self_signed(name, names, key.as_bytes(), lifetime, now)?, key })
}

pub(super) fn generate(size: rsa::KeySize) -> Result<String, CertificateAuthorityError> {
    let failed = |_| CertificateAuthorityError::KeyNotGenerated;
    let pkcs8 = RsaKeyPair::generate(size).and_then(|pair| pair.as_der()).map_err(failed)?;
    let pem = pem::encode("PRIVATE KEY", pkcs8.as_ref());
    let unread = |error| CertificateAuthorityError::GeneratedKey(Box::new(error));
    let pair = signing_key::KeyPair::from_pem(pem.as_bytes()).map_err(unread)?;
    Ok(pair.private_pem())
}

pub(super) fn self_signed(
    name: DistinguishedName,
    names: Vec<SanType>,
    key: &[u8],
    lifetime: Duration,
    now: Timestamp,
) -> Result<String, CertificateAuthorityError> {
    let key = signer::key(key)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.subject_alt_names = names;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let (start, end) = signer::validity(now, lifetime)?;
    (params.not_before, params.not_after) = (start.into(), end.into());
    let certificate = params.self_signed(&key).map_err(CertificateAuthorityError::SelfSigning)?;
    Ok(certificate.pem())
}

/// `conf.caCert`: the size of the key and how long the root is valid.
fn settings(
    backend: &CertificateAuthorityBackend,
) -> Result<(rsa::KeySize, Duration), CertificateAuthorityError> {
    let setting = |name: &str| backend.conf.as_ref()?.get("caCert")?.get(name).filter(|v| !v.is_null());
    // Protobuf's JSON takes numbers as texts too.
    let bits = match setting("RSAbits") {
        None => Some(DEFAULT_BITS),
        Some(Value::String(text)) => text.parse().ok(),
        // Settings are free-form, where every number is a floating one.
        Some(other) => other.as_u64().or_else(|| whole(other.as_f64()?)),
    };
    let size = match bits {
        Some(0 | DEFAULT_BITS) => rsa::KeySize::Rsa2048,
        Some(3072) => rsa::KeySize::Rsa3072,
        Some(4096) => rsa::KeySize::Rsa4096,
        // Longer ones take a processor for a minute, and every signature of theirs for a long time.
        _ => return Err(CertificateAuthorityError::KeySize),
    };
    let lifetime = match setting("expiration") {
        None => Some(DEFAULT_LIFETIME),
        Some(Value::String(text)) if text.is_empty() => Some(DEFAULT_LIFETIME),
        Some(other) => other.as_str().and_then(parse_lifetime).filter(|lifetime| !lifetime.is_zero()),
    };
    Ok((size, lifetime.ok_or(CertificateAuthorityError::RootLifetime)?))
}

fn whole(number: f64) -> Option<u64> {
    [2048u32, 3072, 4096].into_iter().find(|size| f64::from(*size) == number).map(u64::from)
}

pub(crate) fn stored(snapshot: &Snapshot, secret: &Key) -> Result<Vec<u8>, CertificateAuthorityError> {
    let found = snapshot.get(secret).and_then(|resource| resource.spec.get::<Secret>());
    let found = found.ok_or_else(|| CertificateAuthorityError::NotStored(Box::new(secret.clone())))?;
    Ok(found.data.as_bytes().to_vec())
}
