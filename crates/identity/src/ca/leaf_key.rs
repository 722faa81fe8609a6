//! The private keys of signed certificates.
//!
//! Keys of elliptic curves are made from a seed, so that every control plane makes the same one. An RSA key cannot be
//! made so: it is fresh each time, and takes a processor for about a tenth of a second.

use aws_lc_rs::{
    agreement::{Algorithm, ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey},
    encoding::{AsDer, Pkcs8V1Der},
    rsa::KeySize,
    signature::{Ed25519KeyPair, RsaKeyPair},
};
use rcgen::{
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512,
    PKCS_ED25519,
};
use rustls_pki_types::PrivatePkcs8KeyDer;

use super::CertificateAuthorityError;
use crate::Error;

/// Key of a certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeafKey<'a> {
    /// An ECDSA P-256 key, whatever the authority has: small, and a hundred times cheaper to make than an RSA key.
    Small,
    /// One of the authority's kind. An RSA key is the given one, or is made while the caller waits.
    LikeAuthority(Option<&'a FreshKey>),
}

impl LeafKey<'_> {
    /// Usages of a certificate with this key. Identities have all usages whatever their key, as in Kuma.
    pub fn usages(self) -> Vec<KeyUsagePurpose> {
        match self {
            LeafKey::Small => vec![KeyUsagePurpose::DigitalSignature],
            LeafKey::LikeAuthority(_) => vec![
                KeyUsagePurpose::DigitalSignature,
                KeyUsagePurpose::KeyEncipherment,
                KeyUsagePurpose::KeyAgreement,
            ],
        }
    }
}

/// An RSA key that no certificate has yet.
pub struct FreshKey(Pkcs8V1Der<'static>);

impl std::fmt::Debug for FreshKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FreshKey(*****)")
    }
}

impl FreshKey {
    /// Makes one of 2048 bits. Not for threads that others wait for.
    pub fn make() -> Result<FreshKey, Error> {
        let made = RsaKeyPair::generate(KeySize::Rsa2048).and_then(|pair| pair.as_der());
        made.map(FreshKey).map_err(|_| Error::Crypto("making a key failed"))
    }

    pub(super) fn pair(&self) -> Result<KeyPair, CertificateAuthorityError> {
        pair(&self.0)
    }
}

/// The kinds of keys that authorities have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

impl KeyKind {
    pub fn of(key: &KeyPair) -> KeyKind {
        let curves = [
            (&PKCS_ECDSA_P256_SHA256, KeyKind::P256),
            (&PKCS_ECDSA_P384_SHA384, KeyKind::P384),
            (&PKCS_ECDSA_P521_SHA512, KeyKind::P521),
            (&PKCS_ED25519, KeyKind::Ed25519),
        ];
        let found = curves.into_iter().find(|(algorithm, _)| key.is_compatible(algorithm));
        found.map_or(KeyKind::Rsa, |(_, kind)| kind)
    }

    /// Number of bytes in the seed of a key; `None` for keys that are not made from a seed.
    pub fn seed_length(self) -> Option<usize> {
        match self {
            KeyKind::Rsa => None,
            KeyKind::P256 | KeyKind::Ed25519 => Some(32),
            KeyKind::P384 => Some(48),
            KeyKind::P521 => Some(66),
        }
    }

    /// The key of a seed; `None` for the few seeds that are no key of the curve.
    pub fn key_of_seed(self, mut seed: Vec<u8>) -> Result<Option<KeyPair>, CertificateAuthorityError> {
        let on: &Algorithm = match self {
            KeyKind::Rsa => return Err(CertificateAuthorityError::KeyNotMade),
            KeyKind::Ed25519 => {
                let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(not_made)?;
                return pair(&key.as_der().map_err(not_made)?).map(Some);
            }
            KeyKind::P256 => &ECDH_P256,
            KeyKind::P384 => &ECDH_P384,
            KeyKind::P521 => {
                // Of the first byte one bit belongs to the number.
                seed.iter_mut().take(1).for_each(|byte| *byte &= 1);
                &ECDH_P521
            }
        };
        let Ok(key) = PrivateKey::from_private_key(on, &seed) else { return Ok(None) };
        pair(&key.as_der().map_err(not_made)?).map(Some)
    }
}

fn pair(der: &Pkcs8V1Der<'_>) -> Result<KeyPair, CertificateAuthorityError> {
    KeyPair::try_from(&PrivatePkcs8KeyDer::from(der.as_ref())).map_err(not_made)
}

fn not_made<E>(_: E) -> CertificateAuthorityError {
    CertificateAuthorityError::KeyNotMade
}
