//! The TLS certificate of the servers, and the certificates their clients may show.

pub mod backup;
pub mod rotation;

use std::{
    fs,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use identity::certificate::{CertificateAndKey, Usage, self_signed};
use jiff::Timestamp;
use runtime::tls::{DerCertificate, ServerTls};
use serving::dp_server;

use crate::{config::Config, files::Draft, storage::create_dir};

/// Advice on a certificate that is refused.
const HINT: &str = "remove both files to have new ones generated";

/// The generated pair, in the work directory.
const CERTIFICATE: &str = "kuma-cp.crt";
const KEY: &str = "kuma-cp.key";

/// Server that shows a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsServer {
    /// The REST API.
    Api,
    /// Proxies connect here, and prove who they are with tokens.
    Proxies,
    /// Zones connect here.
    Zones,
    /// A Prometheus asks here for the pages of proxies.
    Monitoring,
}

impl TlsServer {
    /// As logs name it.
    fn name(self) -> &'static str {
        match self {
            TlsServer::Api => "api_server",
            TlsServer::Proxies => "dp_server",
            TlsServer::Zones => "kds_server",
            TlsServer::Monitoring => "monitoring_assignment_server",
        }
    }

    /// The files of certificate and key that the operator gives; `None` where they are generated.
    fn given(self, config: &Config) -> Option<(PathBuf, PathBuf)> {
        let general = &config.general;
        let https = &config.api_server.https;
        let kds = &config.synchronisation.multizone.global.kds;
        let monitoring = &config.monitoring.server;
        let own = match self {
            TlsServer::Api => Some((&https.tls_cert_file, &https.tls_key_file)),
            TlsServer::Proxies => None,
            TlsServer::Zones => Some((&kds.tls_cert_file, &kds.tls_key_file)),
            TlsServer::Monitoring => Some((&monitoring.tls_cert_file, &monitoring.tls_key_file)),
        };
        let mut chosen = own.into_iter().chain([(&general.tls_cert_file, &general.tls_key_file)]);
        let (certificate, key) = chosen.find(|(certificate, _)| !certificate.is_empty())?;
        Some((PathBuf::from(certificate), PathBuf::from(key)))
    }

    fn files(self, config: &Config) -> (PathBuf, PathBuf) {
        let work_dir = config.work_dir();
        self.given(config).unwrap_or_else(|| (work_dir.join(CERTIFICATE), work_dir.join(KEY)))
    }
}

/// TLS for a server.
pub fn tls(server: TlsServer, config: &Config, now: Timestamp) -> Result<ServerTls> {
    let pair = match server.given(config) {
        Some((certificate, key)) => given(&certificate, &key, now)?,
        None => generated(config, now)?,
    };
    let client_certificates = match server {
        TlsServer::Api => {
            clients(&config.api_server.auth.client_certs_dir, "KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR")?
        }
        TlsServer::Monitoring => clients(
            &config.monitoring.server.client_certs_dir,
            "KUMA_MONITORING_ASSIGNMENT_SERVER_CLIENT_CERTS_DIR",
        )?,
        TlsServer::Proxies | TlsServer::Zones => Vec::new(),
    };
    Ok(ServerTls {
        certificate_pem: pair.certificate,
        key_pem: pair.key,
        min_version: config.general.tls_min_version,
        client_certificates,
    })
}

/// The certificate proxies see, and what it says.
pub fn read_presented(tls: &ServerTls, now: Timestamp) -> Result<dp_server::ShownCertificate> {
    let pair = CertificateAndKey { certificate: tls.certificate_pem.clone(), key: tls.key_pem.clone() };
    Ok(dp_server::ShownCertificate { facts: pair.check(now)?, pem: pair.certificate })
}

/// Proxies that are sent to another host must find it in the certificate.
pub fn check_xds_host(host: &str, certificate: &dp_server::ShownCertificate) -> Result<()> {
    if host.is_empty() || certificate.check_host(host).is_ok() {
        return Ok(());
    }
    anyhow::bail!(
        "bootstrapServer.params.xdsHost (KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST): {host:?} is not in the certificate that \
         proxies see, which is for {}; change the host, or set general.tlsCertFile and general.tlsKeyFile to a \
         certificate for it",
        certificate.known_names().join(", ")
    )
}

fn given(certificate: &Path, key: &Path, now: Timestamp) -> Result<CertificateAndKey> {
    let pair = CertificateAndKey { certificate: read(certificate)?, key: read(key)? };
    pair.check(now)
        .with_context(|| format!("{} and {} cannot be used", certificate.display(), key.display()))?;
    Ok(pair)
}

/// The pair in the work directory; made at the first start and reused ever after, unless the clock was set back to
/// before it was made.
fn generated(config: &Config, now: Timestamp) -> Result<CertificateAndKey> {
    let work_dir = &config.work_dir();
    let certificate = work_dir.join(CERTIFICATE);
    let key = work_dir.join(KEY);
    // The certificate is written last, so without it there was no complete pair.
    if certificate.exists() {
        let pair = CertificateAndKey { certificate: read(&certificate)?, key: read(&key).context(HINT)? };
        if pair.is_early(now) {
            return generate(&certificate, &key, &config.serving.bootstrap_server.params.xds_host, now);
        }
        pair.check(now).with_context(|| {
            format!("{} and {} cannot be used; {HINT}", certificate.display(), key.display())
        })?;
        return Ok(pair);
    }
    create_dir(work_dir, "KUMA_GENERAL_WORK_DIR")?;
    generate(&certificate, &key, &config.serving.bootstrap_server.params.xds_host, now)
}

fn generate(certificate: &Path, key: &Path, xds_host: &str, now: Timestamp) -> Result<CertificateAndKey> {
    let (names, addresses) = own_names(xds_host);
    let pair = self_signed(Usage::Server, &names, &addresses, now)?;
    write(key, &pair.key, 0o600)?;
    write(certificate, &pair.certificate, 0o644)?;
    tracing::info!(file = %certificate.display(), "TLS certificate generated");
    Ok(pair)
}

/// Everything this machine may be called by: what it calls itself, and the host that proxies are sent to.
fn own_names(xds_host: &str) -> (Vec<String>, Vec<IpAddr>) {
    let mut names = vec!["localhost".to_owned()];
    let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    addresses.extend(xds_host.parse::<IpAddr>());
    for host in [hostname(), xds_host.to_owned()] {
        // A host name that is no DNS name cannot be asked for, so it need not be in the certificate.
        let is_name = resources::naming::dns::is_rfc1123_subdomain(&host.to_lowercase());
        if is_name && host.parse::<IpAddr>().is_err() && !names.contains(&host) {
            names.push(host);
        }
    }
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    for address in interfaces.filter_map(|interface| interface.address) {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()));
        addresses.extend(v4.or(v6));
    }
    addresses.sort();
    addresses.dedup();
    (names, addresses)
}

pub fn hostname() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}

/// The certificates in a directory.
fn clients(directory: &str, variable: &str) -> Result<Vec<DerCertificate>> {
    if directory.is_empty() {
        return Ok(Vec::new());
    }
    let failed = || format!("cannot read client certificates from {directory} ({variable})");
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("pem" | "crt" | "cer")) {
            let read = runtime::tls::certificates(&read(&path)?);
            found.extend(read.with_context(|| path.display().to_string())?);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file that is complete or not there.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let attempt = || -> io::Result<()> {
        let draft = Draft::of(path, mode)?;
        draft.file().write_all(text.as_bytes())?;
        draft.finish()
    };
    let hint = "is the work directory (KUMA_GENERAL_WORK_DIR) writable?";
    attempt().with_context(|| format!("cannot write {}; {hint}", path.display()))
}
