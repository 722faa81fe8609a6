//! The TLS side of a connection.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use store::Error;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{PostgresTls, TlsMode};

/// Whatever the mode, so that one type of connection serves all; unused when TLS is disabled.
pub(crate) fn connector(tls: &PostgresTls) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| Error::Unavailable(format!("cannot set up TLS: {why}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.mode {
        TlsMode::Disable | TlsMode::VerifyNone => Arc::new(Lenient { provider, roots: None }),
        TlsMode::VerifyCa => Arc::new(Lenient { provider, roots: Some(roots(tls)?) }),
        TlsMode::VerifyFull => WebPkiServerVerifier::builder_with_provider(Arc::new(roots(tls)?), provider)
            .build()
            .map_err(|why| {
                Error::Unavailable(format!(
                    "store.postgres.tls.caPath cannot be used to verify the server: {why}"
                ))
            })?,
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = match (&tls.cert_path, &tls.key_path) {
        (Some(certificate), Some(key)) => {
            let bad = |why: &dyn std::fmt::Display| unreadable("key", key, why);
            let key = PrivateKeyDer::from_pem_file(key).map_err(|why| bad(&why))?;
            builder
                .with_client_auth_cert(certificates("certificate", certificate)?, key)
                .map_err(|why| unreadable("certificate", certificate, &why))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(Error::Unavailable(
                "store.postgres.tls.certPath and store.postgres.tls.keyPath belong together: set both or neither"
                    .into(),
            ));
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(tls: &PostgresTls) -> Result<RootCertStore, Error> {
    let Some(path) = &tls.ca_path else {
        return Err(Error::Unavailable(
            "store.postgres.tls.mode verifyCa and verifyFull need store.postgres.tls.caPath \
             (KUMA_STORE_POSTGRES_TLS_CA_PATH): the certificates to trust, as PEM"
                .into(),
        ));
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA certificate", path)? {
        roots.add(certificate).map_err(|why| unreadable("CA certificate", path, &why))?;
    }
    Ok(roots)
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|why| unreadable(what, path, &why))?;
    if found.is_empty() {
        return Err(unreadable(what, path, &"there is no certificate in it"));
    }
    Ok(found)
}

fn unreadable(what: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Unavailable(format!("cannot read the {what} for PostgreSQL from {}: {why}", path.display()))
}

/// Accepts any name, and with no roots any certificate; signatures are always checked.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    roots: Option<RootCertStore>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
