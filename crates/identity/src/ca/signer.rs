//! A certificate authority's certificate and key, and the certificates it signs.
//!
//! The key of a signed certificate is derived from the authority's key and from what the certificate
//! says, and RSA signatures of the kind used here have one value. So two control planes, or one
//! before and after a restart, sign byte for byte the same certificate for the same proxy and time,
//! and nothing has to be sent again to a proxy that reconnects. With the authority's key any
//! certificate can be signed anyway, and TLS session keys do not depend on these keys, so nothing is lost.
//! RSA keys, which some identities need, cannot be derived ([`leaf_key`](super::leaf_key)).

use std::time::{Duration, SystemTime};

use aws_lc_rs::{
    digest, hkdf,
    signature::{ECDSA_P521_SHA512_ASN1, UnparsedPublicKey},
};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    CertificateAuthorityError,
    leaf_key::{FreshKey, KeyKind, LeafKey},
};
use crate::{certificate::CertificateAndKey, pem};

/// Clocks differ a little: what was signed just now must not be refused as not yet valid.
pub const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// Reads a private key from PEM.
pub(crate) fn key(pem: &[u8]) -> Result<KeyPair, CertificateAuthorityError> {
    // Errors of the reader may quote what it read, so they are not passed on.
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| CertificateAuthorityError::KeyNotPem)?;
    KeyPair::try_from(&key).map_err(|_| CertificateAuthorityError::KeyUnusable)
}

/// Can sign.
pub struct Signer {
    /// The certificate that signs, then those it was signed by, up to the one to trust.
    chain: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Content of a certificate to sign.
pub struct Leaf<'a> {
    pub key: LeafKey<'a>,
    /// Sets keys for different uses apart.
    pub purpose: &'a str,
    /// The proxy it is for, whatever it says; the key depends on it.
    pub holder: &'a [&'a str],
    pub common_name: DistinguishedName,
    pub names: Vec<SanType>,
    pub usages: Vec<ExtendedKeyUsagePurpose>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Signer {
    /// Reads PEM and checks that the two belong together and may sign now.
    pub fn parse(
        certificate: &[u8],
        key: &[u8],
        now: Timestamp,
    ) -> Result<Signer, CertificateAuthorityError> {
        let chain = chain(certificate)?;
        let key = self::key(key)?;
        let mut not_before = Timestamp::MIN;
        let mut not_after = Timestamp::MAX;
        for (at, der) in chain.iter().enumerate() {
            let certificate = parsed(der)?;
            let validity = certificate.validity();
            not_before = not_before.max(instant(validity.not_before.timestamp())?);
            not_after = not_after.min(instant(validity.not_after.timestamp())?);
            if at == 0 && certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
                return Err(CertificateAuthorityError::KeyOfAnother);
            }
        }
        let first = chain.first().ok_or(CertificateAuthorityError::NoCertificate)?;
        let issuer =
            Issuer::from_ca_cert_der(first, key).map_err(|_| CertificateAuthorityError::SubjectNotIssuer)?;
        let signer = Signer { chain, issuer, not_before, not_after };
        signer.check_time(now)?;
        Ok(signer)
    }

    /// Signs something and reads it back: whatever in the certificate or key this control plane cannot
    /// handle shows now and not at a proxy.
    pub fn prove(&self, now: Timestamp) -> Result<(), CertificateAuthorityError> {
        let probe = self.leaf(Leaf {
            key: LeafKey::Small,
            purpose: "probe",
            holder: &[],
            common_name: DistinguishedName::new(),
            names: vec![uri("spiffe://probe")?],
            usages: Vec::new(),
            not_before: now,
            not_after: now,
        })?;
        let der = CertificateDer::from_pem_slice(probe.certificate.as_bytes())
            .map_err(|_| CertificateAuthorityError::SignedUnreadable)?;
        let signed = parsed(&der)?;
        let own = parsed(&self.chain[0])?;
        if signed.issuer().as_raw() != own.subject().as_raw() {
            return Err(CertificateAuthorityError::SubjectPartsNotIssuer);
        }
        if is_signed_by(&signed, &own) { Ok(()) } else { Err(CertificateAuthorityError::SignedUnverified) }
    }

    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    pub fn fingerprint(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        self.chain.iter().for_each(|certificate| context.update(certificate));
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }

    /// True if the certificate that signs vouches for itself.
    pub fn is_self_signed(&self) -> bool {
        self.chain.first().and_then(|der| parsed(der).ok()).is_some_and(|it| it.issuer() == it.subject())
    }

    pub fn check_time(&self, now: Timestamp) -> Result<(), CertificateAuthorityError> {
        if now >= self.not_after {
            return Err(CertificateAuthorityError::Expired(self.not_after));
        }
        // A certificate made on another machine a moment ago is not worth a failure.
        if now.checked_add(CLOCK_SKEW).is_ok_and(|soon| soon < self.not_before) {
            return Err(CertificateAuthorityError::NotYetValid(self.not_before));
        }
        Ok(())
    }

    /// Signs. The result holds the certificates up to, and without, the one to trust.
    pub fn leaf(&self, leaf: Leaf<'_>) -> Result<CertificateAndKey, CertificateAuthorityError> {
        let key = self.leaf_key(&leaf)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = leaf.common_name;
        params.subject_alt_names = leaf.names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = leaf.key.usages();
        params.extended_key_usages = leaf.usages;
        params.use_authority_key_identifier_extension = true;
        params.not_before = SystemTime::from(leaf.not_before.max(self.not_before)).into();
        params.not_after = SystemTime::from(leaf.not_after.min(self.not_after)).into();
        let signed = params.signed_by(&key, &self.issuer).map_err(CertificateAuthorityError::Signing)?;
        let mut certificate = signed.pem();
        let intermediates = self.chain.len().saturating_sub(1);
        for der in &self.chain[..intermediates] {
            certificate.push_str(&pem::encode("CERTIFICATE", der));
        }
        Ok(CertificateAndKey { certificate, key: key.serialize_pem() })
    }

    /// An authority below this one that signs with Ed25519: thirty times cheaper than RSA, and its signatures have
    /// one value, too. `None` when this one may not have an authority below it, or would sign it another way each
    /// time. Not for what Envoy verifies: it does not accept such signatures.
    pub fn delegate(
        &self,
        purpose: &str,
        name: DistinguishedName,
    ) -> Result<Option<Signer>, CertificateAuthorityError> {
        let own = parsed(&self.chain[0])?;
        let constraints = own.basic_constraints().ok().flatten();
        let allowed =
            constraints.is_some_and(|own| own.value.path_len_constraint.is_none_or(|depth| depth > 0));
        if !allowed || !self.is_rsa() {
            return Ok(None);
        }
        let key = self.derive_key(KeyKind::Ed25519, &[purpose])?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.use_authority_key_identifier_extension = true;
        params.not_before = SystemTime::from(self.not_before).into();
        params.not_after = SystemTime::from(self.not_after).into();
        let signed = params.signed_by(&key, &self.issuer).map_err(CertificateAuthorityError::Signing)?;
        let chain = std::iter::once(signed.der().clone()).chain(self.chain.iter().cloned()).collect();
        let not_before = self.not_before;
        let not_after = self.not_after;
        Ok(Some(Signer { chain, issuer: Issuer::new(params, key), not_before, not_after }))
    }

    /// True if the authority has an RSA key, so that keys like it cannot be derived.
    pub fn is_rsa(&self) -> bool {
        KeyKind::of(self.issuer.key()) == KeyKind::Rsa
    }

    fn leaf_key(&self, leaf: &Leaf<'_>) -> Result<KeyPair, CertificateAuthorityError> {
        let kind = match leaf.key {
            LeafKey::Small => KeyKind::P256,
            LeafKey::LikeAuthority(Some(fresh)) if self.is_rsa() => return fresh.pair(),
            LeafKey::LikeAuthority(None) if self.is_rsa() => {
                return FreshKey::make().map_err(|_| CertificateAuthorityError::FreshKeyNotMade)?.pair();
            }
            LeafKey::LikeAuthority(_) => KeyKind::of(self.issuer.key()),
        };
        let times = [leaf.not_before, leaf.not_after].map(|time| time.as_second().to_string());
        let names: Vec<String> = leaf.names.iter().map(|name| format!("{name:?}")).collect();
        let parts = leaf.holder.iter().copied().chain(names.iter().chain(&times).map(String::as_str));
        let about: Vec<&str> = std::iter::once(leaf.purpose).chain(parts).collect();
        self.derive_key(kind, &about)
    }

    /// A key that depends on the authority's key and these words.
    fn derive_key(&self, kind: KeyKind, about: &[&str]) -> Result<KeyPair, CertificateAuthorityError> {
        let length = kind.seed_length().ok_or(CertificateAuthorityError::KeyNotDerived)?;
        // One in four billion numbers is no key of a curve; then the next one is taken.
        for attempt in 0..=u8::MAX {
            if let Some(key) = kind.key_of_seed(self.derive(about, attempt, length)?)? {
                return Ok(key);
            }
        }
        Err(CertificateAuthorityError::KeyNotDerived)
    }

    /// A secret number that depends on the authority's key and these words.
    fn derive(
        &self,
        about: &[&str],
        attempt: u8,
        length: usize,
    ) -> Result<Vec<u8>, CertificateAuthorityError> {
        let mut joined = Vec::new();
        for part in about {
            joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
            joined.extend_from_slice(part.as_bytes());
        }
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"kuma certificate key")
            .extract(self.issuer.key().serialized_der());
        let mut number = vec![0; length];
        let attempt = [attempt];
        let info = [joined.as_slice(), &attempt];
        let derived = secret.expand(&info, Length(length)).and_then(|derived| derived.fill(&mut number));
        derived.map_err(|_| CertificateAuthorityError::KeyNotDerived)?;
        Ok(number)
    }
}

/// Number of bytes to derive.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Trust anchor: the end of a chain. It need not be self-signed; Envoy trusts any certificate it is given as
/// an anchor.
pub fn root_of(certificate: &[u8]) -> Result<CertificateDer<'static>, CertificateAuthorityError> {
    chain(certificate)?.pop().ok_or(CertificateAuthorityError::NoCertificate)
}

/// Expiry of the first certificate of a chain: nothing that it signs is accepted from then on.
pub fn expiry_of(certificate: &[u8]) -> Result<Timestamp, CertificateAuthorityError> {
    let chain = chain(certificate)?;
    let ends = chain.iter().map(|der| instant(parsed(der)?.validity().not_after.timestamp()));
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    ends.into_iter().min().ok_or(CertificateAuthorityError::NoCertificate)
}

/// Checks whether the first certificate of a text was made in what is the future now, as after a clock was set back.
pub fn is_early(certificate: &[u8], now: Timestamp) -> bool {
    let begins =
        first_of(certificate).and_then(|der| instant(parsed(&der)?.validity().not_before.timestamp()));
    begins.is_ok_and(|begins| begins > now.saturating_add(CLOCK_SKEW).unwrap_or(now))
}

/// The first certificate of a text, whatever it is.
pub fn first_of(text: &[u8]) -> Result<CertificateDer<'static>, CertificateAuthorityError> {
    CertificateDer::from_pem_slice(text).map_err(|_| CertificateAuthorityError::CertificateNotPem)
}

/// Reads one or more certificates and checks that all are authorities, each signed by the next.
fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateAuthorityError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|_| CertificateAuthorityError::CertificateNotPem)?;
    if chain.is_empty() {
        let is_key = PrivateKeyDer::from_pem_slice(text).is_ok();
        return Err(if is_key {
            CertificateAuthorityError::KeyAsCertificate
        } else {
            CertificateAuthorityError::CertificateMissing
        });
    }
    let certificates = chain.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
    certificates.iter().try_for_each(check_authority)?;
    for (certificate, signed_by) in certificates.iter().zip(certificates.iter().skip(1)) {
        if certificate.issuer().as_raw() != signed_by.subject().as_raw()
            || !is_signed_by(certificate, signed_by)
        {
            return Err(CertificateAuthorityError::BrokenChain);
        }
    }
    Ok(chain)
}

fn is_signed_by(certificate: &X509Certificate<'_>, by: &X509Certificate<'_>) -> bool {
    if certificate.verify_signature(Some(by.public_key())).is_ok() {
        return true;
    }
    // The parser does not know this curve.
    let key = UnparsedPublicKey::new(&ECDSA_P521_SHA512_ASN1, &by.public_key().subject_public_key.data);
    key.verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data).is_ok()
}

fn check_authority(certificate: &X509Certificate<'_>) -> Result<(), CertificateAuthorityError> {
    // Names with several attributes in one part do not survive being written as an issuer.
    if certificate.subject().iter().any(|part| part.iter().count() != 1) {
        return Err(CertificateAuthorityError::SubjectWithAttributes);
    }
    let usage = certificate.key_usage().ok().flatten().map(|usage| usage.value);
    let problem = if !certificate.is_ca() {
        "basic constraint 'CA' must be set to 'true' (see X509-SVID: 4.1. Basic Constraints)"
    } else if !usage.is_some_and(|usage| usage.key_cert_sign()) {
        "key usage extension 'keyCertSign' must be set (see X509-SVID: 4.3. Key Usage)"
    } else if usage.is_some_and(|usage| usage.key_agreement()) {
        "key usage extension 'keyAgreement' must NOT be set (see X509-SVID: Appendix A. X.509 Field Reference)"
    } else {
        return Ok(());
    };
    Err(CertificateAuthorityError::NotAuthority(problem))
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateAuthorityError> {
    let parsed = X509Certificate::from_der(der);
    parsed.map(|(_, certificate)| certificate).map_err(|_| CertificateAuthorityError::CertificateNotX509)
}

fn instant(seconds: i64) -> Result<Timestamp, CertificateAuthorityError> {
    Timestamp::from_second(seconds).map_err(|_| CertificateAuthorityError::DatesOutOfRange)
}

/// From a moment ago on, for a lifetime.
pub fn validity(
    now: Timestamp,
    lifetime: Duration,
) -> Result<(SystemTime, SystemTime), CertificateAuthorityError> {
    let start = now.checked_sub(CLOCK_SKEW).map_err(|_| CertificateAuthorityError::TimeOutOfRange)?;
    let end = now.checked_add(lifetime).map_err(|_| CertificateAuthorityError::LifetimeOutOfRange)?;
    Ok((start.into(), end.into()))
}

/// A URI a certificate can hold.
pub fn uri(text: &str) -> Result<SanType, CertificateAuthorityError> {
    let name = rcgen::string::Ia5String::try_from(text);
    name.map(SanType::URI).map_err(|_| CertificateAuthorityError::NameUnwritable(text.to_owned()))
}
