//! The certificate of the control plane is exchanged while it runs.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use control_plane::{boot::Running, config::setting::StoreType};
use identity::certificate::{CertificateAndKey, Usage, self_signed};
use jiff::{SignedDuration, Timestamp};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use runtime::tls::{TrustedServers, certificates, client_config};
use rustls::pki_types::ServerName;
use tempfile::tempdir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::client::{config, start};

/// Files are looked at every five seconds.
const SOON: Duration = Duration::from_secs(60);

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self) -> CertificateAndKey {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        CertificateAndKey { certificate, key: key.serialize_pem() }
    }
}

fn put(folder: &Path, pair: &CertificateAndKey) {
    fs::write(folder.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(folder.join("tls.key"), &pair.key).unwrap();
}

/// Connects as agents do that trust these certificates.
async fn connect(port: u16, trusted: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let trust = TrustedServers::Certificates(certificates(trusted).unwrap());
    let connector = TlsConnector::from(Arc::new(client_config(trust, b"http/1.1").unwrap()));
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// True if a request on this connection is answered.
async fn is_served(connection: &mut TlsStream<TcpStream>) -> bool {
    let request = b"POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    if connection.write_all(request).await.is_err() {
        return false;
    }
    let mut answer = [0; 4096];
    let read = connection.read(&mut answer).await.unwrap_or_default();
    answer[..read].starts_with(b"HTTP/1.1 ")
}

/// Sends SIGHUP to this process, where the control plane runs.
fn hang_up() {
    let sent = Command::new("kill").args(["-HUP", &std::process::id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits until all ports show a certificate that these trust.
async fn wait_until_trusted(running: &Running, trusted: &str) {
    let deadline = Instant::now() + SOON;
    for port in [running.https, running.dp_server].map(|addr| addr.unwrap().port()) {
        while connect(port, trusted).await.is_err() {
            assert!(Instant::now() < deadline, "port {port} still shows another certificate");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_authority_change_without_restart_or_lost_connection() {
    let work = tempdir().unwrap();
    let files = tempdir().unwrap();
    let old = Authority::new("old");
    let new = Authority::new("new");
    put(files.path(), &old.sign());
    let mut settings = config(work.path(), StoreType::Memory);
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    (settings.general.tls_cert_file, settings.general.tls_key_file) = (path("tls.crt"), path("tls.key"));
    let running = start(settings).await;
    let port = running.dp_server.unwrap().port();
    assert!(connect(port, &new.pem).await.is_err(), "the certificate is of the old authority");

    // Agents that trust both authorities, as during the change.
    let both = format!("{}{}", old.pem, new.pem);
    let mut before = connect(port, &both).await.unwrap();
    assert!(is_served(&mut before).await);
    // A certificate without its key is not shown: half of the change is done.
    fs::write(files.path().join("tls.crt"), old.sign().certificate).unwrap();
    put(files.path(), &new.sign());
    wait_until_trusted(&running, &new.pem).await;
    assert!(is_served(&mut before).await, "a connection from before goes on");
    let mut after = connect(port, &both).await.unwrap();
    assert!(is_served(&mut after).await);
    assert!(connect(port, &old.pem).await.is_err(), "agents that trust the old authority only are late");

    // What cannot be used changes nothing, and SIGHUP has files looked at without waiting.
    put(files.path(), &CertificateAndKey { key: "scribble".to_owned(), ..old.sign() });
    hang_up();
    assert!(connect(port, &new.pem).await.is_ok());
    put(files.path(), &old.sign());
    hang_up();
    wait_until_trusted(&running, &old.pem).await;
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_certificate_that_is_not_valid_yet_is_made_again() {
    let work = tempdir().unwrap();
    let later = Timestamp::now() + SignedDuration::from_hours(24);
    let early = self_signed(Usage::Server, &["localhost".to_owned()], &[], later).unwrap();
    let file = work.path().join("kuma-cp.crt");
    fs::write(&file, &early.certificate).unwrap();
    fs::write(work.path().join("kuma-cp.key"), &early.key).unwrap();
    let running = start(config(work.path(), StoreType::Memory)).await;
    let made = fs::read_to_string(&file).unwrap();
    assert_ne!(made, early.certificate);
    wait_until_trusted(&running, &made).await;
    running.finish().await;
}
