//! TLS for clients: which servers they trust.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WantsClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use super::DerCertificate;
use crate::Error;

/// Files in which distributions keep the certificates of public authorities.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The machine's bundle of trusted certificates.
pub fn system_bundle() -> Option<&'static str> {
    SYSTEM_BUNDLES.iter().copied().find(|path| Path::new(path).is_file())
}

/// Servers that a client trusts.
#[derive(Debug, Clone)]
pub enum TrustedServers {
    /// Those with one of these certificates, or one that they signed.
    Certificates(Vec<DerCertificate>),
    /// Those that the machine trusts.
    Machine,
    Anybody,
}

/// TLS to trusted servers; `alpn` is the protocol.
pub fn client_config(trust: TrustedServers, alpn: &[u8]) -> Result<ClientConfig, Error> {
    let mut config = trusting(trust)?.with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

/// The same for a client that shows a certificate; both in PEM.
pub fn client_config_showing(
    certificate: &str,
    key: &str,
    trust: TrustedServers,
    alpn: &[u8],
) -> Result<ClientConfig, Error> {
    let chain = super::certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::Tls(format!("the key is not a PEM private key: {error}")))?;
    let shown = trusting(trust)?.with_client_auth_cert(chain, key);
    let mut config = shown.map_err(|error| Error::Tls(error.to_string()))?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

fn trusting(trust: TrustedServers) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let certificates =
        match trust {
            TrustedServers::Certificates(certificates) => Some(certificates),
            TrustedServers::Machine => {
                let pem = system_bundle().and_then(|path| std::fs::read_to_string(path).ok());
                let found = pem.and_then(|pem| super::certificates(&pem).ok());
                Some(found.ok_or_else(|| {
                    Error::Tls("this machine has no bundle of trusted certificates".to_owned())
                })?)
            }
            TrustedServers::Anybody => None,
        };
    let trusted = certificates.map(|known| PinnedVerifier::by(known, provider.clone())).transpose()?;
    let verifier = Arc::new(Verifier { trusted, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(format!("cannot set up TLS: {error}")))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}

/// Checks that a server has the key of its certificate and, unless every server is trusted, that a
/// known authority vouches for the certificate.
#[derive(Debug)]
struct Verifier {
    trusted: Option<PinnedVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let signed =
            trusted.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match signed {
            Err(error) if trusted.knows(end_entity, &error) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts what a known certificate signed, and a known certificate itself. The second case stands
/// apart because control planes that make their own certificate let it call itself a CA, which the
/// standard verifier refuses as a server's own certificate.
#[derive(Debug)]
struct PinnedVerifier {
    certificates: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl PinnedVerifier {
    fn by(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<PinnedVerifier, Error> {
        let mut roots = RootCertStore::empty();
        // A bundle may have a certificate or two that cannot be used; the rest still counts.
        roots.add_parsable_certificates(certificates.iter().cloned());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::Tls(format!("the CA certificate cannot be used: {error}")))?;
        Ok(PinnedVerifier { certificates, signed })
    }

    /// True if the certificate is a known one that was refused only for calling itself a CA. That error
    /// arises after the check of the time and before the check of the name.
    fn knows(&self, end_entity: &CertificateDer<'_>, error: &rustls::Error) -> bool {
        self.certificates.iter().any(|known| known == end_entity) && is_ca_as_server(error)
    }
}

/// True if a server was refused because it shows the certificate of a CA as its own.
pub fn is_ca_as_server(error: &rustls::Error) -> bool {
    // The crate that says so is no dependency, so its name for it is all there is.
    format!("{error:?}").contains("CaUsedAsEndEntity")
}
