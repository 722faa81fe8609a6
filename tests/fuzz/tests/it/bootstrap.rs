//! Requests for a bootstrap.

use fuzz::Mutator;
use resources::format::yaml;
use serde_json::{Value, json};

use crate::target::{Target, feed, request, send, web};

fn valid(dataplane: String) -> Value {
    json!({
        "mesh": "default", "name": "web", "proxyType": "dataplane", "dataplaneToken": "a-token",
        "dataplaneTokenPath": "/tmp/token", "dataplaneResource": dataplane,
        "version": { "kumaDp": { "version": "2.14.3" }, "envoy": { "version": "1.36.0", "kumaDpCompatible": true } },
        "caCert": "", "dynamicMetadata": { "a": "b" }, "dnsPort": 15053, "readinessPort": 9902,
        "appProbeProxyDisabled": true, "operatingSystem": "linux", "features": ["feature-delta-grpc"],
        "resources": { "maxHeapSizeBytes": 1000 }, "workdir": "/tmp/web",
        "metricsResources": { "certPath": "", "keyPath": "" }, "systemCaPath": "/ca", "ipv6Enabled": true,
        "spireResources": { "socketPath": "" }, "dataplaneConfig": { "redirect": {} }
    })
}

async fn one(target: &Target, mut mutator: Mutator) {
    let dataplane = if mutator.once_in(2) { mutator.json(&web()) } else { web() };
    let valid = valid(dataplane.to_string());
    let body = mutator.text(&valid);
    let shown = String::from_utf8_lossy(&body).into_owned();
    let answer = send(&target.proxies, request("POST", "/bootstrap", body)).await;
    match answer.status {
        200 => assert_eq!(yaml::documents(&answer.text).unwrap().len(), 1, "{shown}"),
        // Agents ask again: the Dataplane may be stored later.
        404 => {}
        400 | 413 | 422 => assert!(!answer.text.is_empty(), "no reason: {shown}"),
        status => panic!("{status} {}: {shown}", answer.text),
    }
    // Where it is taken for something else, as for a name, it is quoted like one.
    let is_in_its_place =
        shown.contains(r#""dataplaneToken":"a-token""#) && shown.matches("a-token").count() == 1;
    let is_told = answer.status != 200 && answer.text.contains("a-token");
    assert!(!is_in_its_place || !is_told, "{}", answer.text);
}

#[tokio::test]
async fn every_request_for_a_bootstrap_is_answered_or_refused_with_a_reason() {
    let target = Target::new().await;
    let body = valid(web().to_string()).to_string().into_bytes();
    let answer = send(&target.proxies, request("POST", "/bootstrap", body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    feed(|mutator| one(&target, mutator)).await;
}
