//! A certificate authority for one cluster, with a server and a client certificate.

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Paths of a cluster's PEM files.
#[derive(Debug, Clone)]
pub struct Certificates {
    pub ca: PathBuf,
    /// Names `127.0.0.1` and `localhost`.
    pub server: PathBuf,
    pub server_key: PathBuf,
    /// Its common name is the database user.
    pub client: PathBuf,
    pub client_key: PathBuf,
}

impl Certificates {
    pub fn in_directory(directory: &Path) -> Certificates {
        let file = |name: &str| directory.join(name);
        Certificates {
            ca: file("ca.crt"),
            server: file("server.crt"),
            server_key: file("server.key"),
            client: file("client.crt"),
            client_key: file("client.key"),
        }
    }

    /// Writes fresh certificates into a directory.
    pub fn generate(directory: &Path, client_name: &str) -> Result<Certificates> {
        let files = Certificates::in_directory(directory);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kuma tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        write(&files.ca, &params.self_signed(&key)?.pem())?;
        let ca = Issuer::new(params, key);

        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        issue(&ca, "server", &names, &files.server, &files.server_key)?;
        issue(&ca, client_name, &[], &files.client, &files.client_key)?;
        Ok(files)
    }

    pub fn files(&self) -> [&Path; 5] {
        [&self.ca, &self.server, &self.server_key, &self.client, &self.client_key]
    }
}

fn issue(
    ca: &Issuer<'_, KeyPair>,
    name: &str,
    alternatives: &[String],
    certificate: &Path,
    key: &Path,
) -> Result<()> {
    let mut params = CertificateParams::new(alternatives)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let pair = KeyPair::generate()?;
    write(certificate, &params.signed_by(&pair, ca)?.pem())?;
    write(key, &pair.serialize_pem())
}

fn write(path: &Path, pem: &str) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, pem.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}
