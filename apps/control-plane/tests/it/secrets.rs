//! Certificates of many proxies: each is signed once, and what a mesh trusts is encoded once for all.

use std::time::Duration;

use plan::{AuthoritiesSecret, CertificateSecret, SecretNames};
use resources::{Key, Kind};
use serde_json::json;
use serving::dp_server::{proxy::IdentifiedProxy, secrets::IssuedSecrets};
use xds::{Target, Type};

use crate::{
    proxies::ProxyServer,
    world::{dataplane, mesh, resource},
};

const PROXIES: u64 = 20;

fn names(scheme: &str) -> SecretNames {
    SecretNames {
        identity: CertificateSecret::OfMesh(format!("{scheme}-identity")),
        authorities: AuthoritiesSecret::OfMesh(format!("{scheme}-authorities")),
    }
}

fn key(i: u64) -> Key {
    Key::new(Kind::Dataplane, "default", &format!("web-{i}"))
}

async fn issue(server: &ProxyServer, i: u64, scheme: &str) -> IssuedSecrets {
    let proxy = IdentifiedProxy::identify(&format!("default.web-{i}"), json!({})).unwrap();
    let credentials = server.authenticated().await;
    server.context.issuer.issue(&server.context, &proxy, &credentials, &names(scheme)).await.unwrap()
}

/// The secrets as they are sent, by name.
fn sent(issued: &IssuedSecrets) -> Vec<(String, u128)> {
    let mut target = Target::default();
    issued.add_to(&mut target);
    target.of(Type::Secret).values().map(|secret| (secret.name.to_string(), secret.version)).collect()
}

#[tokio::test]
async fn a_proxy_costs_a_signature_and_what_the_mesh_trusts_is_shared() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    server.world.put([mesh("default", "STRICT")]).await;
    let all = (0..PROXIES).map(|i| dataplane("default", &key(i).name, "127.0.2.1", "web", &[]));
    server.world.put(all).await;
    // The first one makes the authority of the mesh.
    issue(&server, 0, "older").await;
    server.world.push.caught_up().await;
    let before = server.world.encoded();
    let signed = || server.context.issuer.signed();
    let mut first = Vec::new();
    for i in 0..PROXIES {
        first.push(sent(&issue(&server, i, "older").await));
    }
    assert_eq!(signed(), PROXIES);
    assert_eq!(server.world.encoded_since(&before), [(Type::Secret, PROXIES - 1)], "certificates only");

    // A secret that has nothing to do with it, such as a revoked token.
    let revoked = Key::new(Kind::Secret, "default", "dataplane-token-revocations-default");
    server.world.put([resource(revoked, &[], json!({ "data": "c2VjcmV0" }))]).await;
    for i in 0..PROXIES {
        assert_eq!(sent(&issue(&server, i, "older").await), first[i as usize]);
    }
    assert_eq!(signed(), PROXIES);
    assert_eq!(server.world.encoded_since(&before), [(Type::Secret, PROXIES - 1)]);

    server.context.issuer.forget(&key(3));
    assert_eq!(sent(&issue(&server, 3, "older").await), first[3], "signed again, the same");
    assert_eq!(signed(), PROXIES + 1);

    let renamed = sent(&issue(&server, 3, "unified").await);
    assert_eq!(
        renamed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["unified-authorities", "unified-identity"]
    );
}

#[tokio::test]
async fn the_key_of_an_authority_is_made_once_and_while_others_are_served() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    server.world.put([mesh("default", "STRICT")]).await;
    server.world.put((0..3).map(|i| dataplane("default", &key(i).name, "127.0.2.1", "web", &[]))).await;
    let secret = identity::ca::builtin::key_secret("default", "ca-1");
    let stored = || server.world.store.snapshot().unwrap().get(&secret).cloned();
    let mut first = Box::pin(issue(&server, 0, "older"));
    // One look at it: a key that is made on this thread would be there after that.
    tokio::select! {
        biased;
        _ = &mut first => panic!("it has waited for no other thread"),
        () = std::future::ready(()) => {}
    }
    assert!(stored().is_none());
    let (_, _, _) = tokio::join!(first, issue(&server, 1, "older"), issue(&server, 2, "older"));
    assert_eq!(stored().unwrap().modified, stored().unwrap().created);
    assert_eq!(server.context.issuer.signed(), 3, "one authority, so that nothing was signed twice");
}
