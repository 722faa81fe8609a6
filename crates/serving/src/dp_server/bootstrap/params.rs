//! Settings of the control plane for bootstraps.

use std::{io, net::IpAddr, time::Duration};

use tokio::{net::lookup_host, sync::Semaphore};

use crate::Config;

/// Names that are looked up at a time: a resolver that hangs must not use up the threads of the process.
const LOOKUPS: usize = 8;
/// Time limit for looking up a name; an agent waits for the answer.
const LOOKUP: Duration = Duration::from_secs(2);
/// Used when no number of connections is set.
const GATEWAY_CONNECTIONS: u32 = 50_000;

/// A template for the agent's DNS server that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read bootstrapServer.params.corefileTemplatePath {path}")]
pub struct UnreadTemplate {
    path: String,
    #[source]
    cause: io::Error,
}

/// The same for every proxy.
#[derive(Debug)]
pub struct Params {
    pub admin_address: String,
    pub admin_port: u16,
    /// Makes Envoy's admin interface listen at a socket in the agent's work folder.
    pub admin_socket: bool,
    pub admin_access_log_path: String,
    pub readiness_port: u16,
    /// Empty: the host that the agent used.
    pub xds_host: String,
    pub xds_port: u16,
    pub connect_timeout: Duration,
    pub max_message_bytes: u32,
    pub corefile_template: Option<String>,
    pub reloadable_tokens: bool,
    pub gateway_connections: u64,
    pub health_discovery: bool,
    lookups: Semaphore,
}

impl Params {
    /// `port` is where proxies connect, unless the settings name another.
    pub fn of(config: &Config, port: u16) -> Result<Params, UnreadTemplate> {
        let params = &config.bootstrap_server.params;
        let connections = match config.proxy.gateway.global_downstream_max_connections {
            0 => GATEWAY_CONNECTIONS,
            some => some,
        };
        Ok(Params {
            admin_address: params.admin_address.clone(),
            admin_port: params.admin_port,
            admin_socket: params.envoy_admin_unix_socket,
            admin_access_log_path: params.admin_access_log_path.clone(),
            readiness_port: params.readiness_port,
            xds_host: params.xds_host.clone(),
            xds_port: if params.xds_port == 0 { port } else { params.xds_port },
            connect_timeout: params.xds_connect_timeout.to_std().unwrap_or_default(),
            max_message_bytes: params.xds_grpc_max_receive_message_bytes,
            corefile_template: corefile_template(&params.corefile_template_path)?,
            reloadable_tokens: config.dp_server.authn.enable_reloadable_tokens,
            gateway_connections: connections.into(),
            health_discovery: config.dp_server.hds.enabled,
            lookups: Semaphore::new(LOOKUPS),
        })
    }

    /// True if a host name has addresses of IPv4 only. Envoy asks for IPv6 first and waits for the answer; when that is
    /// known to be in vain, it need not.
    pub async fn ipv4_only(&self, host: &str) -> bool {
        if host == "localhost" || host.parse::<IpAddr>().is_ok() {
            return false;
        }
        let lookup = async {
            let _place = self.lookups.acquire().await.ok()?;
            lookup_host((host, 0)).await.ok().map(|found| found.map(|addr| addr.ip()).collect::<Vec<_>>())
        };
        match tokio::time::timeout(LOOKUP, lookup).await {
            Ok(Some(addresses)) => !addresses.is_empty() && addresses.iter().all(IpAddr::is_ipv4),
            _ => false,
        }
    }
}

fn corefile_template(path: &str) -> Result<Option<String>, UnreadTemplate> {
    if path.is_empty() {
        return Ok(None);
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(cause) => Err(UnreadTemplate { path: path.to_owned(), cause }),
    }
}
