//! Reasons against a certificate authority.

use std::path::PathBuf;

use jiff::Timestamp;
use resources::Key;

use crate::Error;

/// Reason that a certificate authority cannot be made, read or used. No text of one holds bytes of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateAuthorityError {
    #[error("there is no such mesh")]
    NoMesh,
    #[error("the mesh does not list it under mtls.backends; it lists {0:?}")]
    NotListed(Vec<String>),
    #[error("its type is {0:?}; only \"builtin\" and \"provided\" exist")]
    UnknownType(String),
    #[error("only the provider Bundled is supported")]
    NotBundled,
    #[error("self-signed certificates are not allowed")]
    SelfSigned,
    #[error("conf.caCert.RSAbits must be 2048, 3072 or 4096")]
    KeySize,
    #[error("conf.caCert.expiration must be a positive time such as 10y or 90d")]
    RootLifetime,
    #[error("dpCert.rotation.expiration is {0:?}; write a time of at least 2s, such as 1d or 2h30m")]
    LeafLifetime(String),
    #[error("there is no {0}; the control plane creates it when the mesh is stored; or restore it")]
    NotStored(Box<Key>),
    /// A certificate is stored without its key. `remedy` makes room for a fresh root.
    #[error("there is {certificate} but no {key}; restore that, or {remedy} for a fresh root")]
    KeyLost { certificate: Box<Key>, key: Box<Key>, remedy: &'static str },
    #[error(transparent)]
    Source(#[from] SourceError),

    #[error("the key is not PEM; it must start with -----BEGIN … PRIVATE KEY-----")]
    KeyNotPem,
    #[error("the key cannot be used; it must be an unencrypted RSA, ECDSA or Ed25519 key")]
    KeyUnusable,
    #[error("the key does not belong to the certificate")]
    KeyOfAnother,
    #[error("making a key failed")]
    KeyNotMade,
    #[error("a cryptographic operation failed: making a key failed")]
    FreshKeyNotMade,
    #[error("generating an RSA key failed")]
    KeyNotGenerated,
    #[error("deriving a key failed")]
    KeyNotDerived,
    /// A generated key that cannot be read back.
    #[error(transparent)]
    GeneratedKey(Box<Error>),

    #[error("there is no certificate")]
    NoCertificate,
    #[error("the certificate is not valid PEM")]
    CertificateNotPem,
    #[error(
        "the certificate must be PEM with -----BEGIN CERTIFICATE-----; it is a private key; are the two swapped?"
    )]
    KeyAsCertificate,
    #[error("the certificate must be PEM with -----BEGIN CERTIFICATE-----; it holds none")]
    CertificateMissing,
    #[error("the certificate is not X.509")]
    CertificateNotX509,
    #[error("the certificate's dates are out of range")]
    DatesOutOfRange,
    #[error(
        "a certificate of the chain is not signed by the next one; list the signing certificate first, then its \
         issuer, and so on"
    )]
    BrokenChain,
    #[error("the certificate's subject has a part with several attributes")]
    SubjectWithAttributes,
    #[error("the certificate's subject cannot be written as an issuer")]
    SubjectNotIssuer,
    #[error("the certificate's subject has parts that cannot be written as an issuer")]
    SubjectPartsNotIssuer,
    #[error("the certificate cannot sign others: {0}")]
    NotAuthority(&'static str),
    #[error("the certificate expired at {0}; rotate: add a backend with a fresh certificate and enable it")]
    Expired(Timestamp),
    #[error("the certificate is not valid before {0}")]
    NotYetValid(Timestamp),

    #[error("what it signs cannot be read")]
    SignedUnreadable,
    #[error("what the key signs does not verify with the certificate")]
    SignedUnverified,
    #[error("{0}")]
    SelfSigning(rcgen::Error),
    #[error("cannot sign: {0}")]
    Signing(rcgen::Error),
    #[error("the time is out of range")]
    TimeOutOfRange,
    #[error("the lifetime ends after the year 9999")]
    LifetimeOutOfRange,
    #[error("{0:?} has characters that no certificate can hold")]
    NameUnwritable(String),
}

impl CertificateAuthorityError {
    /// True for mistakes of the key; others are of the certificate.
    pub(super) fn is_about_given_key(&self) -> bool {
        matches!(
            self,
            CertificateAuthorityError::KeyNotPem
                | CertificateAuthorityError::KeyUnusable
                | CertificateAuthorityError::KeyOfAnother
        )
    }
}

/// Reason that the certificate or key of an authority cannot be read from where a resource says that it is. `field` is
/// the field that says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("conf.{0} says nowhere to read it from; set secret, inline, inlineString or file")]
    NotGiven(&'static str),
    #[error("conf.{field}.secret: there is no {secret}; create it first")]
    NoSecret { field: &'static str, secret: Box<Key> },
    #[error("conf.{0}.inline must be base64; use inlineString for plain PEM")]
    NotBase64(&'static str),
    #[error("conf.{field}.file: {path:?}: {cause}")]
    File { field: &'static str, path: String, cause: SourceFileError },
    #[error("spec.provider.bundled.ca.{0} is missing")]
    Missing(&'static str),
    #[error("spec.provider.bundled.ca.{field}: {cause}")]
    Bundled { field: &'static str, cause: SecureSourceError },
}

/// Reason that a data source of a MeshIdentity cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecureSourceError {
    #[error("the section of its type {0:?} is missing")]
    NoSection(String),
    #[error("unknown type {0:?}")]
    UnknownType(String),
    #[error("there is no {0}")]
    NoSecret(Box<Key>),
    #[error("the control plane has no environment variable {0:?}")]
    NoVariable(String),
    #[error("file {path:?}: {cause}")]
    File { path: String, cause: SourceFileError },
}

/// Reason that a file of this machine is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceFileError {
    #[error("files are not read here")]
    Forbidden,
    /// The file is elsewhere or nowhere. One text for both: others' files are not to be found out about.
    #[error("there is no such file in {}: put it there (general.dataSourceDir)", folder.display())]
    NotInFolder { folder: PathBuf },
    #[error("it is not an ordinary file of at most 1 MiB")]
    NotOrdinary,
    #[error("cannot be read: {0}")]
    Io(String),
}
