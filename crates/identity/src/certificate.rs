//! Self-signed TLS certificates: the control plane's own, and those `kumactl` generates.

use std::{net::IpAddr, time::Duration};

use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

use crate::Error;

/// Ten years: no one should be paged for a certificate that the control plane made by itself.
pub const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Side of a connection that presents the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
}

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Makes a self-signed certificate for host names and addresses. It is no CA: it vouches for itself
/// alone, and clients trust it by pinning it.
pub fn self_signed(
    usage: Usage,
    names: &[String],
    addresses: &[IpAddr],
    now: Timestamp,
) -> Result<CertificateAndKey, Error> {
    let failed = |error: rcgen::Error| Error::Certificate(error.to_string());
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Kuma");
    let common_name = names.first().map_or("kuma", String::as_str);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    // A client whose clock is a little behind must not refuse a certificate made just now.
    params.not_before = (std::time::SystemTime::from(now) - Duration::from_secs(300)).into();
    params.not_after = (std::time::SystemTime::from(now) + LIFETIME).into();
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(CertificateAndKey { certificate: certificate.pem(), key: key.serialize_pem() })
}

impl CertificateAndKey {
    /// Checks whether the certificate was made in what is the future now, as after a clock was set back.
    pub fn is_early(&self, now: Timestamp) -> bool {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let begins = der.ok().and_then(|der| {
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            facts(&certificate).ok().map(|facts| facts.not_before)
        });
        begins.is_some_and(|begins| now < begins)
    }

    /// Checks that both halves can be read, belong together and are valid now.
    pub fn check(&self, now: Timestamp) -> Result<Facts, Error> {
        let refused = |reason: String| Error::Certificate(reason);
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| refused(format!("the certificate is not PEM: {error}")))?;
        let (_, certificate) = X509Certificate::from_der(&der)
            .map_err(|error| refused(format!("the certificate is not X.509: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| refused(format!("the key is not a PEM private key: {error}")))?;
        let pair =
            KeyPair::try_from(&key).map_err(|error| refused(format!("the key is not usable: {error}")))?;
        if certificate.public_key().subject_public_key.data.as_ref() != pair.public_key_raw() {
            return Err(refused("the key does not belong to the certificate".to_owned()));
        }
        let facts = facts(&certificate)?;
        if now >= facts.not_after {
            return Err(refused(format!("the certificate expired at {}", facts.not_after)));
        }
        if now < facts.not_before {
            return Err(refused(format!("the certificate is not valid before {}", facts.not_before)));
        }
        Ok(facts)
    }
}

/// True if the first certificate of `pem` may vouch for others. Old authorities do not say so, and are
/// accepted.
pub fn may_be_authority(pem: &str) -> Result<bool, Error> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Error::Certificate(format!("the certificate is not PEM: {error}")))?;
    let (_, certificate) = X509Certificate::from_der(&der)
        .map_err(|error| Error::Certificate(format!("the certificate is not X.509: {error}")))?;
    let constraints = certificate.basic_constraints().ok().flatten();
    Ok(constraints.is_none_or(|constraints| constraints.value.ca))
}

fn facts(certificate: &X509Certificate<'_>) -> Result<Facts, Error> {
    let instant =
        |seconds: i64| Timestamp::from_second(seconds).map_err(|error| Error::Certificate(error.to_string()));
    let validity = certificate.validity();
    let mut facts = Facts {
        dns_names: Vec::new(),
        addresses: Vec::new(),
        not_before: instant(validity.not_before.timestamp())?,
        not_after: instant(validity.not_after.timestamp())?,
    };
    let names = certificate.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => facts.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => facts.addresses.extend(address(bytes)),
            _ => {}
        }
    }
    Ok(facts)
}

pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
