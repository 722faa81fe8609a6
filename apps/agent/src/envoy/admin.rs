//! Envoy's admin interface: whether it is ready, how many connections are open, how to drain it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use crate::http_client::{HttpResponse, MAX_BODY, exchange_within};

/// Envoy answers from its main thread; when that is busy for longer, it is not well.
const PATIENCE: Duration = Duration::from_secs(2);

/// Address of the admin interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    Socket(PathBuf),
    Port(String, u16),
}

impl Admin {
    /// Reads the place out of a bootstrap configuration.
    pub fn of_bootstrap(document: &Value) -> anyhow::Result<Admin> {
        let address = &document["admin"]["address"];
        if let Some(path) = address["pipe"]["path"].as_str() {
            return Ok(Admin::Socket(path.into()));
        }
        let socket = either(address, "socket_address", "socketAddress");
        let port =
            either(socket, "port_value", "portValue").as_u64().and_then(|port| u16::try_from(port).ok());
        match (socket["address"].as_str(), port) {
            (Some(host), Some(port)) => Ok(Admin::Port(host.to_owned(), port)),
            _ => Err(anyhow!("the configuration has no admin address")),
        }
    }

    /// True once Envoy has its first configuration and serves it.
    pub async fn is_ready(&self) -> bool {
        self.ask(Method::GET, "/ready").await.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    /// The listeners of inbounds that Envoy has rejected and has no older version of: those ports are closed.
    pub async fn closed_inbounds(&self) -> anyhow::Result<Vec<String>> {
        // Cheap, and 0 in nearly every proxy; only the other ones write down their listeners.
        let rejected = self.get("/stats?filter=listener_manager.lds.update_rejected").await?;
        if rejected.trim_end().ends_with(": 0") {
            return Ok(Vec::new());
        }
        let listeners = self.get("/config_dump?resource=dynamic_listeners").await?;
        Ok(closed_inbounds(&serde_json::from_str(&listeners).context("Envoy's listeners are not JSON")?))
    }

    /// Fails Envoy's health checks, and asks every connection to go elsewhere.
    pub async fn drain(&self) -> anyhow::Result<()> {
        for path in ["/healthcheck/fail", "/drain_listeners?graceful"] {
            let answer = self.ask(Method::POST, path).await?;
            if answer.status != StatusCode::OK {
                return Err(anyhow!("Envoy answered {} to {path}", answer.status));
            }
        }
        Ok(())
    }

    /// Connections that are open on listeners, the admin interface apart.
    pub async fn open_connections(&self) -> anyhow::Result<u64> {
        let answer = self.ask(Method::GET, "/stats?filter=downstream_cx_active").await?;
        Ok(count_connections(&answer.text()))
    }

    /// The text at a path.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        self.get_within(path, MAX_BODY).await
    }

    /// The text at a path, which has at most `limit` bytes.
    pub async fn get_within(&self, path: &str, limit: usize) -> anyhow::Result<String> {
        let answer = self.ask_within(Method::GET, path, limit).await?;
        if answer.status != StatusCode::OK {
            return Err(anyhow!("Envoy answered {} to {path}", answer.status));
        }
        Ok(answer.text())
    }

    async fn ask(&self, method: Method, path: &str) -> anyhow::Result<HttpResponse> {
        self.ask_within(method, path, MAX_BODY).await
    }

    async fn ask_within(&self, method: Method, path: &str, limit: usize) -> anyhow::Result<HttpResponse> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "envoy")
            .body(Full::new(Bytes::new()))?;
        let exchanged = async {
            match self {
                Admin::Socket(path) => {
                    exchange_within(limit, UnixStream::connect(path).await?, request).await
                }
                Admin::Port(host, port) => {
                    exchange_within(limit, TcpStream::connect((host.as_str(), *port)).await?, request).await
                }
            }
        };
        tokio::time::timeout(PATIENCE, exchanged).await.context("Envoy does not answer")?
    }
}

fn either<'a>(value: &'a Value, one: &str, other: &str) -> &'a Value {
    value.get(one).unwrap_or(&value[other])
}

fn closed_inbounds(listeners: &Value) -> Vec<String> {
    let all = listeners["configs"].as_array().into_iter().flatten();
    let closed = all.filter(|listener| {
        let rejected = &listener["error_state"]["failed_configuration"];
        rejected["traffic_direction"] == "INBOUND" && listener.get("active_state").is_none()
    });
    closed.filter_map(|listener| listener["name"].as_str().map(str::to_owned)).collect()
}

fn count_connections(stats: &str) -> u64 {
    let listeners = stats.lines().filter_map(|line| line.split_once(": ")).filter(|(name, _)| {
        name.starts_with("listener.") && !name.starts_with("listener.admin.") && !name.contains(".worker_")
    });
    listeners.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_admin_address_is_read_from_the_bootstrap() {
        let check = |admin: Value, expect: Option<Admin>| {
            let document = json!({"admin": admin});
            assert_eq!(Admin::of_bootstrap(&document).ok(), expect, "{document}");
        };
        check(json!({"address": {"pipe": {"path": "/w/a.sock"}}}), Some(Admin::Socket("/w/a.sock".into())));
        let port = Some(Admin::Port("127.0.0.1".to_owned(), 9901));
        check(
            json!({"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9901}}}),
            port.clone(),
        );
        check(json!({"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 9901}}}), port);
        check(json!({}), None);
        check(Value::Null, None);
    }

    #[test]
    fn an_inbound_is_closed_when_its_only_version_was_rejected() {
        let rejected =
            |direction: &str| serde_json::json!({"failed_configuration": {"traffic_direction": direction}});
        let listeners = serde_json::json!({"configs": [
            {"name": "closed", "error_state": rejected("INBOUND")},
            {"name": "older", "error_state": rejected("INBOUND"), "active_state": {"version_info": "1"}},
            {"name": "outbound", "error_state": rejected("OUTBOUND")},
            {"name": "works", "active_state": {"version_info": "1"}},
        ]});
        assert_eq!(closed_inbounds(&listeners), ["closed"]);
        assert!(closed_inbounds(&Value::Null).is_empty());
    }

    #[test]
    fn connections_of_workloads_are_counted_once() {
        let stats = "http.web.downstream_cx_active: 3\nlistener.127.0.0.2_80.downstream_cx_active: 2\n\
                     listener.127.0.0.2_80.worker_0.downstream_cx_active: 2\n\
                     listener.admin.downstream_cx_active: 1\nlistener.self_inbound_dp_http.downstream_cx_active: 1";
        assert_eq!(count_connections(stats), 3);
    }
}
