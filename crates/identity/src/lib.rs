//! Identity: the keys tokens are signed with, the tokens themselves, and TLS certificates: the
//! control plane's own ([`certificate`]), those of proxies ([`ca`] signs, [`workload`] asks) and those
//! for Envoy's admin interface ([`admin`]).
//!
//! Signing keys are ordinary secrets in the store, named and encoded as in Kuma, so that a token
//! issued by one implementation is valid for the other. Nothing here reads a clock: the
//! caller passes the time.
//!
//! Invariants: no proxy waits for another one's signature. No private key leaves this crate except into a secret, into
//! a file its owner asked for, or to the proxy it was made for; none is in debug output, in a log or in an error.

pub mod admin;
pub mod ca;
pub mod certificate;
pub mod described;
mod pem;
pub mod signing_key;
pub mod token;
pub mod workload;

pub use ca::Authority;
pub use signing_key::{KeyPair, PublicKey, Purpose, SigningKey};
pub use token::{DataplaneToken, UserToken, ZoneToken};

use jiff::Timestamp;

use ca::CertificateAuthorityError;

/// Reason that an identity could not be created or was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the token is missing")]
    Missing,
    #[error("the token is malformed: {0}")]
    Malformed(String),
    /// Anything but RS256, in particular `none` and symmetric algorithms.
    #[error("the token is signed with {0:?}; only \"RS256\" is accepted")]
    Algorithm(String),
    #[error("there is no signing key with the serial number {kid:?}; does the secret {secret:?} exist?")]
    UnknownKey { kid: String, secret: String },
    #[error("the token expired at {0}; generate a new one")]
    Expired(Timestamp),
    #[error("the token is not valid before {0}; compare the clocks of both machines")]
    NotYetValid(Timestamp),
    #[error("the token {0:?} is revoked")]
    Revoked(String),
    #[error("the token's signature does not match its content or its key")]
    Signature,
    /// No key to sign with.
    #[error("there is no signing key; a secret named {0:?} is expected")]
    NoSigningKey(String),
    #[error("the secret {secret:?} holds no RSA key: {reason}")]
    BadKey { secret: String, reason: String },
    #[error("not an RSA key: {0}")]
    NotAKey(String),
    #[error("the lifetime of a token must be positive")]
    Lifetime,
    #[error("cannot create the TLS certificate: {0}")]
    Certificate(String),
    #[error("a cryptographic operation failed: {0}")]
    Crypto(&'static str),
    /// A certificate authority of a mesh that cannot be made or used.
    #[error("mTLS backend {backend:?} of mesh {mesh:?}: {reason}")]
    Authority { mesh: String, backend: String, reason: Box<CertificateAuthorityError> },
    #[error("cannot use the certificate authority of Envoy's admin interface: {0}")]
    AdminAuthority(String),
    /// Nothing a certificate could say about the proxy.
    #[error("cannot name the proxy in a certificate: {0}")]
    Names(String),
    /// The authority fails and is left alone for a while.
    #[error("no certificate after {attempts} attempt(s), next attempt at {retry_at}: {cause}")]
    Issuance { attempts: u32, retry_at: Timestamp, cause: Box<Error> },
}

impl Error {
    /// Reason that a token was refused, in one word for logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Missing => "missing",
            Error::Malformed(_) => "malformed",
            Error::Algorithm(_) => "algorithm",
            Error::UnknownKey { .. } => "unknown_key",
            Error::Expired(_) => "expired",
            Error::NotYetValid(_) => "not_yet_valid",
            Error::Revoked(_) => "revoked",
            Error::Signature => "signature",
            _ => "internal",
        }
    }

    /// Message to a caller whose token was refused. Times and revocation are checked after the signature, so
    /// only the owner of a token learns them.
    #[must_use]
    pub fn message_for_caller(&self) -> String {
        match self.reason() {
            "internal" => "the control plane cannot verify tokens; its log says why".to_owned(),
            _ => self.to_string(),
        }
    }
}
