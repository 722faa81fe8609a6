//! Trusted authorities, and their replacement while all services call each other.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{call, dataplane, with_outbound},
};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::{Value, json};
use testkit::build::mesh;

use crate::world::{World, answered_by, by_reference, by_tags, client, load};

#[test]
fn a_certificate_of_another_mesh_is_refused() {
    let world = World::start(Setup::default());
    let (_app, server, inbound) = world.service("web-1", "web", "http");
    let (_bystander, allowed) = client(&world, "bystander", &[by_reference("web")]);
    assert_eq!(answered_by(allowed, 10001), "web-1");

    world.put("/meshes/other", &mesh("other").services("Exclusive").authority("ca-1", "STRICT").json());
    // The other mesh claims the server as its own, so its proxies do call it.
    let mut claimed = dataplane("web-1", "web", inbound, "http", (own_address(), 9000).into());
    claimed["mesh"] = json!("other");
    world.put("/meshes/other/dataplanes/web-1", &claimed);
    let address = own_address();
    let stranger = dataplane("stranger", "stranger", address, "http", (own_address(), 9000).into());
    let mut stranger = with_outbound(stranger, address, 10001, by_tags("web"));
    stranger["mesh"] = json!("other");
    let _stranger = world.proxy(&stranger);

    let refused = || server.stat(&format!("listener.{inbound}_8080.ssl.connection_error")).unwrap();
    let before = refused();
    let mut last = String::new();
    eventually("the stranger to be refused", || {
        let answer = call(address, 10001);
        assert!(!answer.as_ref().is_ok_and(|answer| answer.status == 200), "let in: {answer:?}");
        last = format!("{answer:?}");
        answer.is_ok_and(|answer| answer.status == 503) && refused() > before
    })
    .unwrap_or_else(|error| {
        panic!("{error}: {last} {}", server.admin("/stats?usedonly&filter=ssl").unwrap())
    });
    assert_eq!(answered_by(allowed, 10001), "web-1");
}

/// Trusts any server: the question is whether the server trusts the client.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn a_forged_certificate_is_refused_by_the_server() {
    let world = World::start(Setup::default());
    let (_app, server, inbound) = world.service("web-1", "web", "http");
    let key = rcgen::KeyPair::generate().unwrap();
    let mut wanted = rcgen::CertificateParams::default();
    // The right name, from an authority of the forger's own.
    wanted.subject_alt_names = vec![rcgen::SanType::URI("spiffe://default/client".try_into().unwrap())];
    let forged = wanted.self_signed(&key).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_client_auth_cert(
            vec![forged.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let connection = ClientConnection::new(Arc::new(config), "web.mesh".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect((inbound, 8080)).unwrap());
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n");
    let mut answer = Vec::new();
    let read = sent.and_then(|()| stream.read_to_end(&mut answer));
    assert!(read.is_err() && answer.is_empty(), "{read:?} {}", String::from_utf8_lossy(&answer));
    let refused = format!("listener.{inbound}_8080.ssl.fail_verify_error");
    eventually("the server to count it", || server.stat(&refused).is_ok_and(|count| count == 1))
        .unwrap_or_else(|error| panic!("{error}: {}", server.admin("/stats?usedonly&filter=ssl").unwrap()));
}

#[test]
fn the_authority_of_a_mesh_is_replaced_without_a_failed_request() {
    let world = World::start(Setup::default());
    let (_app, server, _) = world.service("web-1", "web", "http");
    let (caller, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let issued_by = |backend: &str| {
        for proxy in ["web-1", "client"] {
            world.insight(proxy, |insight| insight["mTLS"]["issuedBackend"] == backend);
        }
    };
    let trusted_roots = |count: usize| {
        eventually(&format!("{count} trusted roots"), || {
            [&server, &caller].iter().all(|proxy| roots(proxy) == count)
        })
        .unwrap_or_else(|error| panic!("{error}: {} {}", roots(&server), roots(&caller)));
    };
    let (calls, failures) = load(address, 10001, || {
        issued_by("ca-1");
        let both =
            || mesh("default").services("Exclusive").authority("ca-1", "STRICT").authority("ca-2", "STRICT");
        world.put("/meshes/default", &both().json());
        trusted_roots(2);
        world.put("/meshes/default", &both().enabled("ca-2").json());
        issued_by("ca-2");
        world.put(
            "/meshes/default",
            &mesh("default").services("Exclusive").authority("ca-2", "STRICT").json(),
        );
        trusted_roots(1);
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}

/// Number of roots of its mesh that a proxy trusts.
fn roots(proxy: &RunningProxy) -> usize {
    let dump = proxy.admin("/config_dump?resource=dynamic_active_secrets").unwrap();
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let secrets = dump["configs"].as_array().into_iter().flatten();
    let bundles = secrets
        .filter_map(|secret| secret["secret"]["validation_context"]["trusted_ca"]["inline_bytes"].as_str());
    let pems = bundles.map(|bundle| String::from_utf8(BASE64_STANDARD.decode(bundle).unwrap()).unwrap());
    pems.map(|pem| pem.matches("BEGIN CERTIFICATE").count()).max().unwrap_or_default()
}

#[test]
fn certificates_are_replaced_before_they_end_without_a_failed_request() {
    let world = World::start(Setup::default());
    let rotation = json!({"rotation": {"expiration": "5s"}});
    let short = json!({"name": "ca-1", "type": "builtin", "mode": "STRICT", "dpCert": rotation});
    world.put("/meshes/default", &mesh("default").services("Exclusive").backend(short).json());
    let (_app, _server, _) = world.service("web-1", "web", "http");
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let (calls, failures) = load(address, 10001, || {
        for proxy in ["web-1", "client"] {
            world.insight(proxy, |insight| {
                insight["mTLS"]["certificateRegenerations"].as_u64().is_some_and(|count| count >= 4)
            });
        }
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}
