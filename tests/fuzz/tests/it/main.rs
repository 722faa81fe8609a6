//! A bounded number of inputs for each target, the same in every run.

use fuzz::{Target, Until, attack, server::Server};

async fn withstands(target: Target, inputs: u64) {
    let server = Server::start().await.unwrap();
    let sent = attack(&server, target, 1, Until::Inputs(inputs)).await;
    assert_eq!(sent.unwrap_or_else(|error| panic!("{error:#}")), inputs);
    server.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_bodies() {
    withstands(Target::Rest, 3_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_requests() {
    withstands(Target::Discovery, 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_requests() {
    withstands(Target::Bootstrap, 1_000).await;
}
