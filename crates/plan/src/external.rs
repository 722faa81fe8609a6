//! Destinations outside the mesh: how their TLS is verified, with everything the proxy needs to do it.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use resources::kinds::{
    mesh_external_service::{self as service, DataSource, SanMatchType, Verification, VerificationMode},
    tls,
};
use topology::{Destination, Endpoints};

/// Destination outside of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct External {
    pub tls: Option<ExternalTls>,
}

/// TLS that the proxy originates on behalf of the application.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExternalTls {
    /// The server name to ask for; `None` for the name of whichever endpoint is called.
    pub server_name: Option<String>,
    /// The certificate must have one of these; empty when that is not checked.
    pub names: Vec<San>,
    pub authorities: ExternalAuthorities,
    /// Certificate and key of the proxy, in PEM.
    pub client: Option<(String, String)>,
    pub min: Option<TlsVersion>,
    pub max: Option<TlsVersion>,
    pub allow_renegotiation: bool,
}

impl std::fmt::Debug for ExternalTls {
    /// The client's key does not belong into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExternalTls { server_name, names, authorities, .. } = self;
        let mut shown = f.debug_struct("ExternalTls");
        shown.field("server_name", server_name).field("names", names).field("authorities", authorities);
        shown.finish_non_exhaustive()
    }
}

/// Authorities that must have signed the certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExternalAuthorities {
    Anyone,
    Pem(String),
    /// A file on the proxy's machine.
    File(String),
}

/// A name the certificate may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum San {
    Dns(String),
    DnsPrefix(String),
    Ip(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsVersion {
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

/// Reason that TLS to a destination outside of the mesh cannot be set up. `field` is one of `tls.verification`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExternalTlsError {
    #[error(
        "its certificate cannot be verified: the proxy found no authorities on its machine; give \
         tls.verification.caCert"
    )]
    NoAuthorities,
    #[error("tls.verification.{field}.inline is not base64: {cause}")]
    NotBase64 { field: &'static str, cause: base64::DecodeError },
    #[error("tls.verification.{field}.inline is not text in PEM form")]
    NotText { field: &'static str },
    #[error(
        "tls.verification.{field} refers to secret {secret:?}, which does not exist in the mesh or is one of its \
         signing keys; create another secret"
    )]
    NoSecret { field: &'static str, secret: String },
    #[error("tls.verification.{field} is empty; give secret, inline or inlineString")]
    Empty { field: &'static str },
    #[error("tls.verification.{field} is not in PEM form: it has no line with {line:?}")]
    NotPem { field: &'static str, line: &'static str },
}

/// `None` for destinations in the mesh; the error is the reason why this one cannot be offered.
pub(crate) fn plan(
    destination: &Destination,
    endpoints: &Endpoints,
    system_ca_path: Option<&str>,
) -> Result<Option<External>, ExternalTlsError> {
    match &destination.external {
        Some(external) if external.behind_egress.is_none() => {
            behind_egress(destination, endpoints, system_ca_path).map(Some)
        }
        // To its clients it is the egress.
        Some(_) | None => Ok(None),
    }
}

/// Plans the connection of the proxy at the end of the mesh to a destination outside.
pub(crate) fn behind_egress(
    destination: &Destination,
    endpoints: &Endpoints,
    system_ca_path: Option<&str>,
) -> Result<External, ExternalTlsError> {
    let asked = destination.external.as_ref().and_then(|external| external.tls.as_ref());
    let tls = match asked {
        Some(tls) if tls.enabled => Some(originate(tls, endpoints, system_ca_path)?),
        _ => None,
    };
    Ok(External { tls })
}

fn originate(
    tls: &service::Tls,
    endpoints: &Endpoints,
    system_ca_path: Option<&str>,
) -> Result<ExternalTls, ExternalTlsError> {
    let secured = Verification::default();
    let verification = tls.verification.as_ref().unwrap_or(&secured);
    let skips_authority = matches!(verification.mode, VerificationMode::SkipCa | VerificationMode::SkipAll);
    let skips_names = skips_authority || matches!(verification.mode, VerificationMode::SkipSan);
    let authorities = match (&verification.ca_cert, system_ca_path) {
        _ if skips_authority => ExternalAuthorities::Anyone,
        (Some(given), _) => ExternalAuthorities::Pem(pem("caCert", given, CERTIFICATE)?),
        (None, Some(path)) => ExternalAuthorities::File(path.to_owned()),
        (None, None) => return Err(ExternalTlsError::NoAuthorities),
    };
    let client = match (&verification.client_cert, &verification.client_key) {
        (Some(certificate), Some(key)) => {
            Some((pem("clientCert", certificate, CERTIFICATE)?, pem("clientKey", key, KEY)?))
        }
        _ => None,
    };
    let version = tls.version.as_ref();
    Ok(ExternalTls {
        server_name: verification.server_name.clone(),
        names: if skips_names { Vec::new() } else { names(verification, endpoints) },
        authorities,
        client,
        min: version.and_then(|v| v.min.as_ref()).and_then(tls_version),
        max: version.and_then(|v| v.max.as_ref()).and_then(tls_version),
        allow_renegotiation: tls.allow_renegotiation,
    })
}

/// Returns the names to verify: those that the user lists, else the server name, else the addresses that are
/// called.
fn names(verification: &Verification, endpoints: &Endpoints) -> Vec<San> {
    let listed = verification.subject_alt_names.as_deref().unwrap_or_default();
    if !listed.is_empty() {
        let name = |listed: &service::SanMatch| match listed.type_ {
            SanMatchType::Prefix => San::DnsPrefix(listed.value.clone()),
            SanMatchType::Exact | SanMatchType::Other(_) => exact(&listed.value),
        };
        return listed.iter().map(name).collect();
    }
    match &verification.server_name {
        Some(name) => vec![exact(name)],
        None => endpoints.0.iter().map(|endpoint| exact(&endpoint.address)).collect(),
    }
}

fn exact(name: &str) -> San {
    match name.parse::<std::net::IpAddr>() {
        Ok(ip) => San::Ip(ip.to_string()),
        Err(_) => San::Dns(name.to_owned()),
    }
}

pub(crate) fn tls_version(version: &tls::TlsVersion) -> Option<TlsVersion> {
    match version {
        tls::TlsVersion::Tls10 => Some(TlsVersion::Tls10),
        tls::TlsVersion::Tls11 => Some(TlsVersion::Tls11),
        tls::TlsVersion::Tls12 => Some(TlsVersion::Tls12),
        tls::TlsVersion::Tls13 => Some(TlsVersion::Tls13),
        tls::TlsVersion::Auto | tls::TlsVersion::Other(_) => None,
    }
}

/// Texts in the first line of each in PEM form.
const CERTIFICATE: &str = "CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// The text of a certificate or a key. A proxy would refuse what is neither.
fn pem(field: &'static str, source: &DataSource, line: &'static str) -> Result<String, ExternalTlsError> {
    let text = match (&source.inline, &source.inline_string, &source.secret) {
        (Some(encoded), ..) => {
            let bytes = BASE64.decode(encoded);
            let bytes = bytes.map_err(|cause| ExternalTlsError::NotBase64 { field, cause })?;
            String::from_utf8(bytes).map_err(|_| ExternalTlsError::NotText { field })?
        }
        (_, Some(text), _) => text.clone(),
        (.., Some(secret)) => {
            return Err(ExternalTlsError::NoSecret { field, secret: secret.clone() });
        }
        _ => return Err(ExternalTlsError::Empty { field }),
    };
    if text.contains(line) { Ok(text) } else { Err(ExternalTlsError::NotPem { field, line }) }
}
