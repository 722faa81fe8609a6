//! TLS handshakes in memory, at noon.

use std::sync::Arc;

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, aws_lc_rs::default_provider, verify_tls12_signature, verify_tls13_signature},
    server::{ParsedCertificate, WebPkiClientVerifier},
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use crate::noon;

/// One end of a connection: what it presents and what it trusts, all PEM.
pub struct Side<'a> {
    pub chain: &'a str,
    pub key: &'a str,
    pub trusts: &'a str,
}

#[derive(Debug)]
struct Noon;

impl TimeProvider for Noon {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(noon().as_second()).unwrap();
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

/// Checks who signed, as Envoy does in a mesh; who is called is checked by Envoy, by URIs.
#[derive(Debug)]
struct AnyName(RootCertStore, Arc<CryptoProvider>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let leaf = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.1.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&leaf, &self.0, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.1.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.1.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.1.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
}

fn roots(pem: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    certificates(pem).into_iter().for_each(|root| roots.add(root).unwrap());
    roots
}

fn key(side: &Side<'_>) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(side.key.as_bytes()).unwrap()
}

/// Connects both sides with mutual TLS. `host` is the name or address the client expects, if any.
pub fn handshake(client: &Side<'_>, server: &Side<'_>, host: Option<&str>) -> Result<(), Error> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(server.trusts).into(), provider.clone());
    let config = ServerConfig::builder_with_details(provider.clone(), Arc::new(Noon))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(certificates(server.chain), key(server))?;
    let mut accepting = ServerConnection::new(config.into())?;

    let trusted = roots(client.trusts);
    let verifier: Arc<dyn ServerCertVerifier> = match host {
        Some(_) => {
            WebPkiServerVerifier::builder_with_provider(trusted.into(), provider.clone()).build().unwrap()
        }
        None => Arc::new(AnyName(trusted, provider.clone())),
    };
    let config = ClientConfig::builder_with_details(provider, Arc::new(Noon))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(certificates(client.chain), key(client))?;
    let name = ServerName::try_from(host.unwrap_or("service").to_owned()).unwrap();
    let mut calling = ClientConnection::new(config.into(), name)?;

    while calling.is_handshaking() || accepting.is_handshaking() {
        let mut wire = Vec::new();
        calling.write_tls(&mut wire).unwrap();
        accepting.read_tls(&mut wire.as_slice()).unwrap();
        accepting.process_new_packets()?;
        let mut wire = Vec::new();
        accepting.write_tls(&mut wire).unwrap();
        calling.read_tls(&mut wire.as_slice()).unwrap();
        calling.process_new_packets()?;
    }
    Ok(())
}
