//! TLS for servers and clients, on rustls with aws-lc-rs.

mod client;

use std::sync::{Arc, PoisonError, RwLock};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version,
};

pub use self::client::{
    TrustedServers, client_config, client_config_showing, is_ca_as_server, system_bundle,
};
pub use rustls::{ClientConfig, ServerConfig};

use crate::Error;

/// A certificate in its binary form.
pub type DerCertificate = CertificateDer<'static>;

/// The oldest TLS a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

/// Makes aws-lc-rs the process's TLS provider. Calling it again changes nothing.
pub fn install_provider() {
    // An error only says that a provider is there already.
    let _ = aws_lc_rs::default_provider().install_default();
}

/// Certificate, key and settings of a TLS server.
#[derive(Debug, Clone)]
pub struct ServerTls {
    pub certificate_pem: String,
    pub key_pem: String,
    pub min_version: MinVersion,
    /// Certificates (CAs or the clients' own) that clients may identify themselves with. A client may
    /// always stay anonymous; one that shows a certificate must show a good one.
    pub client_certificates: Vec<DerCertificate>,
}

/// Exchanges the certificate that a server shows. Connections that are open keep theirs.
#[derive(Debug, Clone)]
pub struct CertificateSwitch(Arc<CurrentCertificate>);

impl CertificateSwitch {
    /// Shows this certificate from now on; both in PEM. One that cannot be used changes nothing.
    pub fn show(&self, certificate: &str, key: &str) -> Result<(), Error> {
        let usable = Arc::new(usable(certificate, key)?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = usable;
        Ok(())
    }
}

/// The certificate that a server shows at the moment.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn usable(certificate: &str, key: &str) -> Result<CertifiedKey, Error> {
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| Error::Tls(format!("the key is not a PEM private key: {error}")))?;
    let provider = aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| Error::Tls(error.to_string()))
}

impl ServerTls {
    pub fn to_config(&self) -> Result<Arc<ServerConfig>, Error> {
        self.to_switched().map(|(config, _)| config)
    }

    /// As [`ServerTls::to_config`], with the means to exchange the certificate later.
    pub fn to_switched(&self) -> Result<(Arc<ServerConfig>, CertificateSwitch), Error> {
        install_provider();
        let refused = |error: rustls::Error| Error::Tls(error.to_string());
        let versions: &[&rustls::SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&version::TLS12, &version::TLS13],
            MinVersion::Tls13 => &[&version::TLS13],
        };
        let shown = Arc::new(CurrentCertificate(RwLock::new(Arc::new(usable(
            &self.certificate_pem,
            &self.key_pem,
        )?))));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(refused)?;
        let builder = match self.client_certificates.as_slice() {
            [] => builder.with_no_client_auth(),
            known => builder.with_client_cert_verifier(KnownClients::new(known)?),
        };
        let mut config = builder.with_cert_resolver(shown.clone());
        // A session that can be resumed is kept in memory, two for each handshake. Proxies connect once and
        // stay; when they all come back, the process that could remember them has usually been replaced.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(config), CertificateSwitch(shown)))
    }
}

/// The certificates in a PEM text; at least one.
pub fn certificates(pem: &str) -> Result<Vec<DerCertificate>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Error::Tls("no PEM certificate found".to_owned())),
        Err(error) => Err(Error::Tls(format!("the certificate is not valid PEM: {error}"))),
    }
}

/// Accepts clients whose certificate is one of the known ones or signed by one of them. The first
/// case stands apart because a self-signed client certificate may call itself a CA, which the
/// standard verifier refuses as a client's own certificate.
#[derive(Debug)]
struct KnownClients {
    known: Vec<DerCertificate>,
    signed: Arc<dyn ClientCertVerifier>,
}

impl KnownClients {
    fn new(known: &[CertificateDer<'static>]) -> Result<Arc<Self>, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in known {
            roots.add(certificate.clone()).map_err(|error| Error::Tls(error.to_string()))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::Tls(error.to_string()))?;
        Ok(Arc::new(KnownClients { known: known.to_vec(), signed }))
    }
}

impl ClientCertVerifier for KnownClients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if self.known.iter().any(|known| known == end_entity) {
            return Ok(ClientCertVerified::assertion());
        }
        self.signed.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
