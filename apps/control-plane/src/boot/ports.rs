//! The ports of the control plane, and what the operator calls them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use runtime::listen::Listener;

use crate::config::{Config, setting::Mode};

const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Listeners that are bound and do not accept yet; `None` for what is switched off.
pub struct Ports {
    pub http: Option<Listener>,
    pub https: Option<Listener>,
    pub diagnostics: Option<Listener>,
    pub proxies: Option<Listener>,
}

impl Ports {
    /// Binds every port before any is served: a port in use leaves nothing half started.
    pub async fn bind(config: &Config) -> Result<Ports> {
        let server = &config.api_server;
        let http = Port {
            enabled: server.http.enabled,
            addr: (server.http.interface, server.http.port).into(),
            key: "apiServer.http.port",
            env: "KUMA_API_SERVER_HTTP_PORT",
        };
        let https = Port {
            enabled: server.https.enabled,
            addr: (server.https.interface, server.https.port).into(),
            key: "apiServer.https.port",
            env: "KUMA_API_SERVER_HTTPS_PORT",
        };
        let diagnostics = Port {
            enabled: true,
            addr: (config.diagnostics.interface, config.diagnostics.server_port).into(),
            key: "diagnostics.serverPort",
            env: "KUMA_DIAGNOSTICS_SERVER_PORT",
        };
        let proxies = Port {
            // A global control plane has zones, and zones have proxies.
            enabled: config.mode != Mode::Global,
            addr: (EVERYWHERE, config.dp_server.port).into(),
            key: "dpServer.port",
            env: "KUMA_DP_SERVER_PORT",
        };
        Ok(Ports {
            http: http.bind().await?,
            https: https.bind().await?,
            diagnostics: diagnostics.bind().await?,
            proxies: proxies.bind_for_both_families().await?,
        })
    }
}

struct Port {
    enabled: bool,
    addr: SocketAddr,
    key: &'static str,
    env: &'static str,
}

impl Port {
    /// Binds for IPv6 and IPv4, where the machine has both: names often resolve to either.
    async fn bind_for_both_families(self) -> Result<Option<Listener>> {
        if self.enabled
            && let Ok(listener) = Listener::bind((Ipv6Addr::UNSPECIFIED, self.addr.port()).into()).await
        {
            return Ok(Some(listener));
        }
        self.bind().await
    }

    async fn bind(self) -> Result<Option<Listener>> {
        if !self.enabled {
            return Ok(None);
        }
        let bound = Listener::bind(self.addr).await;
        bound.map(Some).with_context(|| format!("{} ({}) can be set to another port", self.key, self.env))
    }
}
