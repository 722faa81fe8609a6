//! Servers outside of the mesh that speak TLS, with authorities of their own.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use e2e::proxy::own_address;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use serde_json::json;

/// Authority that signs certificates of servers and clients.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
    der: (CertificateDer<'static>, Vec<u8>),
}

impl Authority {
    pub fn new() -> Authority {
        let mut wanted = CertificateParams::default();
        // Certificates whose subject is their issuer vouch for themselves.
        wanted.distinguished_name.push(DnType::CommonName, "authority");
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority(CertifiedIssuer::self_signed(wanted, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn key(&self) -> String {
        self.0.key().serialize_pem()
    }

    pub fn sign(&self, name: &str, address: Option<Ipv4Addr>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut wanted = CertificateParams::default();
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        wanted.subject_alt_names.extend(address.map(|address| SanType::IpAddress(address.into())));
        let signed = wanted.signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: signed.pem(),
            key: key.serialize_pem(),
            der: (signed.der().clone(), key.serialize_der()),
        }
    }
}

/// Requirements of a server for its clients.
#[derive(Default)]
pub struct Demands<'a> {
    /// A certificate of this authority.
    pub certificate_of: Option<&'a Authority>,
    /// One of these versions; any where it is empty.
    pub versions: &'static [&'static SupportedProtocolVersion],
}

/// Starts a server that `authority` vouches for under `name` and its address. It answers HTTP with the version of TLS
/// and whether the client had a certificate, until the test ends.
pub fn serve(authority: &Authority, name: &str, demands: &Demands<'_>) -> SocketAddr {
    let address = SocketAddr::from((own_address(), 8443));
    let SocketAddr::V4(place) = address else { unreachable!() };
    let Pair { der: (certificate, key), .. } = authority.sign(name, Some(*place.ip()));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = match demands.versions {
        [] => builder.with_safe_default_protocol_versions(),
        versions => builder.with_protocol_versions(versions),
    }
    .unwrap();
    let builder = match demands.certificate_of {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::try_from(key).unwrap();
    let config = Arc::new(builder.with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            // A client that gives up is what some tests want.
            thread::spawn(move || drop(answer(stream, config)));
        }
    });
    address
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        request.extend(byte);
    }
    let body = json!({
        "name": "outside",
        "version": stream.conn.protocol_version().and_then(|version| version.as_str()),
        "certified": stream.conn.peer_certificates().is_some(),
    })
    .to_string();
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {length}\r\n\r\n{body}")?;
    stream.conn.send_close_notify();
    stream.flush()
}
