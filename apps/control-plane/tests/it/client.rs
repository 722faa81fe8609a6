//! A control plane started in this process, and a client for it.

use std::{net::IpAddr, path::Path};

use control_plane::{
    boot::{self, Running},
    config::{Config, setting::StoreType},
};
use serde_json::Value;
use ureq::{
    Agent,
    tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig},
};

/// A configuration for tests: its own directory, free ports, this machine only.
pub fn config(work_dir: &Path, kind: StoreType) -> Config {
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let mut config = Config::default();
    config.general.work_dir = work_dir.to_str().unwrap().to_owned();
    config.store.kind = kind;
    (config.api_server.http.interface, config.api_server.http.port) = (local, 0);
    (config.api_server.https.interface, config.api_server.https.port) = (local, 0);
    (config.diagnostics.interface, config.diagnostics.server_port) = (local, 0);
    (config.monitoring.server.interface, config.monitoring.server.port) = (local, 0);
    config.serving.dp_server.port = 0;
    config
}

pub async fn start(config: Config) -> Running {
    boot::start(config).await.unwrap()
}

/// Reason for which a control plane refuses to start.
pub async fn refusal(config: Config) -> String {
    format!("{:#}", boot::start(config).await.unwrap_err())
}

/// An agent that trusts one certificate and may show another.
pub fn agent(trusted: Option<&str>, identity: Option<(&str, &str)>) -> Agent {
    runtime::tls::install_provider();
    let certificate = |pem: &str| Certificate::from_pem(pem.as_bytes()).unwrap();
    let mut tls = TlsConfig::builder();
    if let Some(pem) = trusted {
        tls = tls.root_certs(RootCerts::new_with_certs(&[certificate(pem)]));
    }
    if let Some((pem, key)) = identity {
        let key = PrivateKey::from_pem(key.as_bytes()).unwrap();
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&[certificate(pem)], key)));
    }
    let config = Agent::config_builder().http_status_as_error(false).tls_config(tls.build());
    config.build().new_agent()
}

/// Status and body of a GET.
pub async fn get_with(agent: Agent, url: String) -> (u16, String) {
    let call = move || {
        let mut answer = agent.get(&url).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    tokio::task::spawn_blocking(call).await.unwrap()
}

pub async fn get(running: &Running, path: &str) -> Value {
    let (status, body) = get_with(agent(None, None), format!("http://{}{path}", running.http.unwrap())).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The names in a list.
pub async fn names(running: &Running, path: &str) -> Vec<String> {
    let list = get(running, path).await;
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

pub async fn put(running: &Running, path: &str, body: Value) -> u16 {
    let url = format!("http://{}{path}", running.http.unwrap());
    let call = move || agent(None, None).put(&url).send_json(&body).unwrap().status().as_u16();
    tokio::task::spawn_blocking(call).await.unwrap()
}

/// Status and document of a POST.
pub async fn post(running: &Running, path: &str, body: Value) -> (u16, Value) {
    let url = format!("http://{}{path}", running.http.unwrap());
    let call = move || {
        let mut answer = agent(None, None).post(&url).send_json(&body).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    let (status, body) = tokio::task::spawn_blocking(call).await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}
