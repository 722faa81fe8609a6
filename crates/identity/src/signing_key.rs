//! The RSA keys tokens are signed with, kept as secrets.
//!
//! A key has a serial number, its `kid`; rotating means adding a secret with a higher number. Names
//! and encoding are Kuma's: PKCS#1 PEM in `<prefix>-<kid>`.

use std::fmt;

use aws_lc_rs::{
    encoding::AsDer,
    rsa,
    signature::{KeyPair as _, RsaKeyPair},
};
use resources::{
    Draft, Key, Kind, Resource,
    kinds::secret::{GlobalSecret, Secret, SecretBytes},
};
use rustls_pki_types::{PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject};
use store::Snapshot;
use x509_parser::{der_parser::parse_der, prelude::FromDer, x509::SubjectPublicKeyInfo};

use crate::{Error, pem};

/// The serial number of the first key.
pub const FIRST_KID: &str = "1";

/// Purpose of a key's tokens. Each purpose has its own keys and its own list of revoked tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    Dataplane { mesh: &'a str },
    Zone,
    User,
}

impl Purpose<'_> {
    /// The secret that holds the key with this serial number.
    pub fn key(self, kid: &str) -> Key {
        self.secret(&format!("{}-{kid}", self.prefix()))
    }

    /// The secret that lists revoked tokens: their ids, separated by commas.
    pub fn revocations(self) -> Key {
        match self {
            Purpose::Dataplane { mesh } => self.secret(&format!("dataplane-token-revocations-{mesh}")),
            Purpose::Zone => self.secret("zone-token-revocations"),
            Purpose::User => self.secret("user-token-revocations"),
        }
    }

    /// Key of the resource in a zone with the public half of a key that only the global control plane has.
    fn public_key(self, kid: &str) -> Option<Key> {
        match self {
            Purpose::Zone => Some(self.secret(&format!("zone-token-signing-public-key-{kid}"))),
            Purpose::Dataplane { .. } | Purpose::User => None,
        }
    }

    fn prefix(self) -> String {
        match self {
            Purpose::Dataplane { mesh } => format!("dataplane-token-signing-key-{mesh}"),
            Purpose::Zone => "zone-token-signing-key".to_owned(),
            Purpose::User => "user-token-signing-key".to_owned(),
        }
    }

    fn secret(self, name: &str) -> Key {
        match self {
            Purpose::Dataplane { mesh } => Key::new(Kind::Secret, mesh, name),
            Purpose::Zone | Purpose::User => Key::global(Kind::GlobalSecret, name),
        }
    }
}

/// A private key and its serial number: all that issuing needs, with or without a store.
#[derive(Debug)]
pub struct SigningKey {
    pub kid: String,
    pub pair: KeyPair,
}

/// An RSA key pair.
pub struct KeyPair {
    /// PKCS#1
    private: Vec<u8>,
    public: PublicKey,
}

/// The public half of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// PKCS#1
    der: Vec<u8>,
}

impl KeyPair {
    /// Makes a key of 2048 bits.
    pub fn generate() -> Result<KeyPair, Error> {
        let failed = |_| Error::Crypto("generating an RSA key");
        let pair = RsaKeyPair::generate(rsa::KeySize::Rsa2048).map_err(failed)?;
        let pkcs8 = pair.as_der().map_err(failed)?;
        KeyPair::from_pkcs8(pkcs8.as_ref())
    }

    /// Reads PEM: `RSA PRIVATE KEY` as Kuma writes it, or `PRIVATE KEY`.
    pub fn from_pem(text: &[u8]) -> Result<KeyPair, Error> {
        if let Ok(key) = PrivatePkcs1KeyDer::from_pem_slice(text) {
            return KeyPair::from_pkcs1(key.secret_pkcs1_der());
        }
        match PrivatePkcs8KeyDer::from_pem_slice(text) {
            Ok(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            Err(_) => Err(Error::NotAKey("expected PEM with \"RSA PRIVATE KEY\"".to_owned())),
        }
    }

    /// PKCS#8 wraps PKCS#1: version, algorithm, then the key as an octet string.
    fn from_pkcs8(der: &[u8]) -> Result<KeyPair, Error> {
        let malformed = || Error::NotAKey("the PKCS#8 structure is malformed".to_owned());
        let (_, object) = parse_der(der).map_err(|_| malformed())?;
        let fields = object.as_sequence().map_err(|_| malformed())?;
        let key = fields.get(2).and_then(|field| field.as_slice().ok()).ok_or_else(malformed)?;
        KeyPair::from_pkcs1(key)
    }

    fn from_pkcs1(der: &[u8]) -> Result<KeyPair, Error> {
        let pair = RsaKeyPair::from_der(der).map_err(|error| Error::NotAKey(error.to_string()))?;
        let public = PublicKey { der: pair.public_key().as_ref().to_vec() };
        Ok(KeyPair { private: der.to_vec(), public })
    }

    pub fn private_pem(&self) -> String {
        pem::encode("RSA PRIVATE KEY", &self.private)
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn private_der(&self) -> &[u8] {
        &self.private
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(*****)")
    }
}

impl PublicKey {
    /// Reads PEM: `RSA PUBLIC KEY`, `PUBLIC KEY`, or a private key whose public half is taken.
    pub fn from_pem(text: &[u8]) -> Result<PublicKey, Error> {
        if let Ok(pair) = KeyPair::from_pem(text) {
            return Ok(pair.public);
        }
        let rejected = |reason: &str| Error::NotAKey(reason.to_owned());
        // The PEM reader knows no PKCS#1 public key by name, so the label is looked at here.
        let text = std::str::from_utf8(text).map_err(|_| rejected("not a text"))?;
        let relabelled = text.replace("RSA PUBLIC KEY", "PUBLIC KEY");
        let body = SubjectPublicKeyInfoDer::from_pem_slice(relabelled.as_bytes())
            .map_err(|_| rejected("expected PEM with \"RSA PUBLIC KEY\""))?;
        let der = match SubjectPublicKeyInfo::from_der(&body) {
            Ok((_, info)) => info.subject_public_key.data.to_vec(),
            Err(_) => body.to_vec(),
        };
        let parsed = rsa::PublicKey::from_der(&der);
        parsed.map_err(|_| rejected("the RSA public key is malformed"))?;
        Ok(PublicKey { der })
    }

    pub fn pem(&self) -> String {
        pem::encode("RSA PUBLIC KEY", &self.der)
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }
}

/// The secret that makes a key known to the control plane.
pub fn draft(purpose: Purpose<'_>, kid: &str, pair: &KeyPair) -> Draft {
    let data = SecretBytes::new(pair.private_pem());
    let spec = match purpose {
        Purpose::Dataplane { .. } => Secret { data }.into(),
        Purpose::Zone | Purpose::User => GlobalSecret { data }.into(),
    };
    Draft::new(purpose.key(kid), spec)
}

/// The key to sign with: the one with the highest serial number.
pub fn latest(snapshot: &Snapshot, purpose: Purpose<'_>) -> Result<SigningKey, Error> {
    let prefix = format!("{}-", purpose.prefix());
    let first = purpose.key(FIRST_KID);
    let serial = |resource: &Resource| resource.name().strip_prefix(&prefix)?.parse::<u64>().ok();
    let found = snapshot
        .in_mesh(first.kind, &first.mesh)
        .filter_map(|resource| Some((serial(resource)?, resource)))
        .max_by_key(|(serial, _)| *serial);
    let (serial, resource) = found.ok_or_else(|| Error::NoSigningKey(first.name.to_string()))?;
    let pair = KeyPair::from_pem(bytes(resource)).map_err(|error| bad_key(resource, &error))?;
    Ok(SigningKey { kid: serial.to_string(), pair })
}

/// The key to check a signature with.
pub fn public(snapshot: &Snapshot, purpose: Purpose<'_>, kid: &str) -> Result<PublicKey, Error> {
    let key = purpose.key(kid);
    let elsewhere = || purpose.public_key(kid).and_then(|key| snapshot.get(&key));
    let found = snapshot.get(&key).or_else(elsewhere);
    let resource =
        found.ok_or_else(|| Error::UnknownKey { kid: kid.to_owned(), secret: key.name.to_string() })?;
    PublicKey::from_pem(bytes(resource)).map_err(|error| bad_key(resource, &error))
}

/// The ids of revoked tokens.
pub fn is_revoked(snapshot: &Snapshot, purpose: Purpose<'_>, id: &str) -> bool {
    let Some(resource) = snapshot.get(&purpose.revocations()) else { return false };
    let list = String::from_utf8_lossy(bytes(resource));
    list.split(',').any(|revoked| revoked.trim() == id)
}

/// The content of a secret of either scope.
fn bytes(resource: &Resource) -> &[u8] {
    let of_mesh = resource.spec.get::<Secret>().map(|secret| secret.data.as_bytes());
    let global = || resource.spec.get::<GlobalSecret>().map(|secret| secret.data.as_bytes());
    of_mesh.or_else(global).unwrap_or_default()
}

fn bad_key(resource: &Resource, error: &Error) -> Error {
    Error::BadKey { secret: resource.name().to_owned(), reason: error.to_string() }
}
