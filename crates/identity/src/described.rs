//! Description of a certificate for people. Keys are not part of it.

use jiff::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

use crate::Error;

/// A certificate without its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateDescription {
    /// As in `O=Kuma, CN=localhost`; empty where only the alternative names say who it is.
    pub subject: String,
    pub issuer: String,
    /// The subject alternative names: `spiffe://…`, host names and addresses.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl CertificateDescription {
    /// Every certificate in a PEM text, in its order.
    pub fn all_of_pem(pem: &str) -> Result<Vec<CertificateDescription>, Error> {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .map(|der| {
                let der =
                    der.map_err(|error| Error::Certificate(format!("the certificate is not PEM: {error}")))?;
                CertificateDescription::of_der(&der)
            })
            .collect()
    }

    pub fn of_der(der: &[u8]) -> Result<CertificateDescription, Error> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| Error::Certificate(format!("the certificate is not X.509: {error}")))?;
        let instant = |seconds: i64| {
            Timestamp::from_second(seconds).map_err(|error| Error::Certificate(error.to_string()))
        };
        let validity = certificate.validity();
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|extension| &extension.value.general_names);
        Ok(CertificateDescription {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names: names.filter_map(name).collect(),
            not_before: instant(validity.not_before.timestamp())?,
            not_after: instant(validity.not_after.timestamp())?,
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            crate::certificate::address(bytes).map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{LIFETIME, Usage, self_signed};

    #[test]
    fn a_certificate_says_whose_it_is_and_how_long_it_is_valid() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let addresses = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let pair = self_signed(Usage::Server, &["cp.example".to_owned()], &addresses, now).unwrap();
        let text = format!("{}{}", pair.certificate, pair.certificate);
        let all = CertificateDescription::all_of_pem(&text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].subject, "O=Kuma, CN=cp.example");
        assert_eq!(all[0].issuer, all[0].subject);
        assert_eq!(all[0].names, ["cp.example", "127.0.0.1", "::1"]);
        assert_eq!(all[0].not_after, now + jiff::SignedDuration::try_from(LIFETIME).unwrap());
        // A key is passed over.
        assert_eq!(CertificateDescription::all_of_pem(&pair.key).unwrap(), []);
        assert!(CertificateDescription::of_der(b"no certificate").is_err());
    }
}
