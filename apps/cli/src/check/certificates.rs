//! Certificates that end soon: the control plane's own, and those of authorities that proxies trust.

use std::{net::TcpStream, sync::Arc, time::Duration};

use contract::resource::{ShownResource, SpecForm};
use identity::described::CertificateDescription;
use jiff::{SignedDuration, Timestamp};
use resources::{Kind, kinds::mesh_trust::MeshTrust};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{CheckReport, CheckStatus};
use crate::{cell::line, client::ApiClient, pages, types::Type};

/// Certificates that end within this time are mentioned.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);
const PATIENCE: Duration = Duration::from_secs(5);

/// Says how long something is valid.
pub fn judge(report: &mut CheckReport, subject: &'static str, whose: &str, until: Timestamp, hint: &str) {
    let now = Timestamp::now();
    if until <= now {
        report.add(CheckStatus::Fail, subject, format!("{whose} expired at {until}"), hint);
    } else if until < now + SOON {
        report.add(CheckStatus::Warn, subject, format!("{whose} expires at {until}"), hint);
    } else {
        report.ok(subject, format!("{whose} is valid until {until}"));
    }
}

/// The certificate that the control plane shows. Whether it is trusted was decided by the requests before.
pub fn of_control_plane(client: &ApiClient, report: &mut CheckReport) {
    let Some(rest) = client.address().strip_prefix("https://") else { return };
    let authority = rest.split('/').next().unwrap_or_default();
    match shown(authority) {
        Ok(certificate) => {
            let hint = "replace it: docs/guide/certificates.md says how";
            judge(report, "certificates", "the control plane's certificate", certificate.not_after, hint);
        }
        Err(reason) => {
            let message = format!("the control plane's certificate could not be read: {reason}");
            report.add(CheckStatus::Warn, "certificates", message, "");
        }
    }
}

fn shown(authority: &str) -> Result<CertificateDescription, String> {
    let host = authority.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let (host, address) = match host {
        Some((host, _)) => (host, authority.to_owned()),
        None => (authority, format!("{authority}:443")),
    };
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|e| e.to_string())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyVerifier(provider)))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    while connection.is_handshaking() && connection.peer_certificates().is_none() {
        connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let certificate = connection.peer_certificates().and_then(<[_]>::first).ok_or("none was shown")?;
    CertificateDescription::of_der(certificate).map_err(|error| error.to_string())
}

/// Accepts every certificate, because it only reads them: nothing is sent on such a connection.
#[derive(Debug)]
struct AcceptAnyVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The authorities of MeshTrusts. Those of meshes are among the findings.
pub fn of_trusts(client: &ApiClient, report: &mut CheckReport) {
    let found = match pages::all(client, &Type::of_kind(Kind::MeshTrust).collection(None), "") {
        Ok(found) => found,
        Err(failure) => return report.failed("certificates", &failure),
    };
    for trust in &found.items {
        let trust: ShownResource<SpecForm<MeshTrust>> = ShownResource::read(trust);
        let whose = format!(
            "an authority of MeshTrust {:?} in mesh {:?}",
            line(&trust.metadata.name),
            line(&trust.metadata.mesh)
        );
        let pems = trust.of.spec.ca_bundles.iter().filter_map(|bundle| Some(&bundle.pem.as_ref()?.value));
        let until = pems
            .flat_map(|pem| CertificateDescription::all_of_pem(pem).unwrap_or_default())
            .map(|it| it.not_after)
            .min();
        if let Some(until) = until {
            judge(
                report,
                "certificates",
                &whose,
                until,
                "add a bundle with a new authority, then rotate to it",
            );
        }
    }
}
