//! Bodies of `POST /bootstrap`.

use anyhow::ensure;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rand::rngs::StdRng;
use resources::format::yaml;
use serde_json::{Value, json};

use crate::{
    mutate,
    server::{Server, collect, is_sound},
};

/// Sends one request, and reads the configuration if there is one.
pub async fn input(server: &Server, random: &mut StdRng) -> anyhow::Result<()> {
    let body = mutate::text(&mutate::json(example(&server.token), random), random);
    let request = Request::post("https://localhost/bootstrap")
        .header("content-type", "application/json")
        .header("accept", "text/x-yaml")
        .body(Full::new(body.into()).boxed())?;
    let answer = collect(server.connect().await?.send_request(request).await?).await?;
    if answer.status == StatusCode::NOT_FOUND {
        // Agents know what it means: their Dataplane is not stored yet.
        return Ok(());
    }
    is_sound(&answer)?;
    if answer.status.is_success() {
        let documents = yaml::from_bytes(&answer.body);
        ensure!(
            documents.is_ok_and(|all| all.len() == 1 && all[0].value["node"]["id"].is_string()),
            "not a bootstrap: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    Ok(())
}

/// What an agent asks that brings its Dataplane along.
pub fn example(token: &str) -> Value {
    json!({
        "mesh": "default", "name": "fuzzed", "proxyType": "dataplane", "dataplaneToken": token,
        "dataplaneResource": dataplane().to_string(), "workdir": "/tmp/kuma-dp", "ipv6Enabled": true,
        "version": {"kumaDp": {"version": "2.14.3"}, "envoy": {"version": "1.40.0"}},
        "dynamicMetadata": {"a": "b"}, "dnsPort": 15053, "readinessPort": 9902, "operatingSystem": "linux",
        "features": ["feature-delta-grpc"], "resources": {"maxHeapSizeBytes": 0}, "caCert": "",
        "metricsResources": {"certPath": "", "keyPath": ""}, "systemCaPath": "",
    })
}

pub fn dataplane() -> Value {
    json!({
        "type": "Dataplane", "mesh": "default", "name": "fuzzed", "labels": {"app": "fuzzed"},
        "networking": {
            "address": "127.0.0.1",
            "inbound": [{"port": 8080, "servicePort": 80, "tags": {"kuma.io/service": "fuzzed", "kuma.io/protocol": "http"}}],
            "outbound": [{"port": 10001, "tags": {"kuma.io/service": "fuzzed"}}],
        }
    })
}
