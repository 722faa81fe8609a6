//! The smallest HTTP/1.1 client: writes text, reads text.

use std::{net::SocketAddr, sync::Arc};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

pub struct Pair {
    pub certificate: String,
    pub key: String,
}

pub fn self_signed() -> Pair {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    Pair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

impl Pair {
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

pub async fn tls(
    addr: SocketAddr,
    server: &Pair,
    identity: Option<&Pair>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(server.der()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
        }
    };
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The client's side of a handshake that is not sent yet.
pub fn handshake(server: &Pair) -> ClientConnection {
    runtime::tls::install_provider();
    let mut roots = RootCertStore::empty();
    roots.add(server.der()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Sends a request and returns everything until the server closes the connection.
pub async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer).unwrap())
}
