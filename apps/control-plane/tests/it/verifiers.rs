//! Verifiers of tokens that ask another server, which takes a while.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serving::dp_server::credentials::{Credentials, SignedTokens, VerifiedClaims, Verifier};
use store::Snapshot;
use tokio::sync::Notify;
use tonic::Code;

use crate::proxies::ProxyServer;

/// A verifier that says nothing before it is let go on.
struct Slow {
    tokens: SignedTokens,
    asked: Notify,
    answered: Notify,
}

#[async_trait]
impl Verifier for Slow {
    async fn verify(
        &self,
        snapshot: &Snapshot,
        mesh: &str,
        token: &str,
    ) -> Result<VerifiedClaims, identity::Error> {
        self.asked.notify_one();
        self.answered.notified().await;
        self.tokens.verify(snapshot, mesh, token).await
    }

    fn claimed_mesh(&self, token: &str) -> Option<String> {
        self.tokens.claimed_mesh(token)
    }
}

#[tokio::test]
async fn no_proxy_is_let_in_or_held_up_while_a_token_is_verified_elsewhere() {
    let tokens = SignedTokens { zone: "default".into() };
    let slow = Arc::new(Slow { tokens, asked: Notify::new(), answered: Notify::new() });
    let verifier = slow.clone();
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let server = server.with(|context| context.authentication.verifier = verifier);
    let token = server.token("default").await;
    let snapshot = server.world.store.snapshot().unwrap();
    for (token, expected) in [(token.as_str(), None), ("no token", Some(Code::Unauthenticated))] {
        let mut verifying = Box::pin(Credentials::verify(&server.context, &snapshot, "default", Some(token)));
        tokio::select! {
            biased;
            _ = &mut verifying => panic!("let in before the verifier has answered"),
            () = slow.asked.notified() => {}
        }
        // A proxy without a token is answered meanwhile.
        let other = Credentials::verify(&server.context, &snapshot, "default", None).await;
        assert_eq!(other.unwrap_err().code(), Code::Unauthenticated);
        slow.answered.notify_one();
        assert_eq!(verifying.await.err().map(|status| status.code()), expected);
    }
}
