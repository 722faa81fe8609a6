//! The ports of the control plane, and what the operator calls them.

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use runtime::{
    files,
    listen::{self, Listener, Tally},
    metrics::Metrics,
};
use settings::EVERYWHERE;

use super::{serves_alone, std_duration};
use crate::config::{Config, setting::Mode};

/// Open files other than connections to our ports: the database, or connections to it, and logs.
const OTHER_FILES: u64 = 512;

/// Connections at a time, each with a zone behind it, ...
const ZONES: usize = 4096;
/// ... and those of other instances, which ask one question each.
const PEERS: usize = 64;

/// Usual limit of open files for a process.
const USUAL_FILES: u64 = 1024;

/// Listeners that are bound and do not accept yet; `None` for what is switched off.
pub struct Ports {
    pub http: Option<Listener>,
    pub https: Option<Listener>,
    pub diagnostics: Option<Listener>,
    pub proxies: Option<Listener>,
    pub zones: Option<Listener>,
    /// For other instances on the same store.
    pub peers: Option<Listener>,
    /// For a Prometheus.
    pub monitoring: Option<Listener>,
    pub shares: Shares,
}

/// Largest number of connections at each port. Together they fit into what the process may open, so that a
/// port that is flooded leaves the others theirs: health above all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of HTTP, and of HTTPS.
    pub api: usize,
    pub diagnostics: usize,
    pub monitoring: usize,
    /// None on a global control plane.
    pub proxies: usize,
    /// None anywhere else.
    pub zones: usize,
    /// None where no other process uses the store.
    pub peers: usize,
}

impl Shares {
    fn of(files: u64, mode: Mode, proxies: u32, alone: bool) -> Shares {
        let left = files - OTHER_FILES.min(files / 2);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let api = (left / 8).clamp(2, 4096);
        let diagnostics = (left / 8).clamp(2, 256);
        let monitoring = (left / 16).clamp(1, 256);
        let rest = left.saturating_sub(2 * api + diagnostics + monitoring).max(1);
        let peers = if alone { 0 } else { (rest / 8).clamp(1, PEERS) };
        let rest = rest.saturating_sub(peers).max(1);
        if mode == Mode::Global {
            return Shares { api, diagnostics, monitoring, proxies: 0, zones: rest.min(ZONES), peers };
        }
        Shares { api, diagnostics, monitoring, proxies: rest.min(count(proxies)), zones: 0, peers }
    }
}

impl Ports {
    /// Binds every port before any is served: a port in use leaves nothing half started.
    pub async fn bind(config: &Config, metrics: &Metrics) -> Result<Ports> {
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
            addr: (config.serving.dp_server.interface, config.serving.dp_server.port).into(),
            key: "dpServer.port",
            env: "KUMA_DP_SERVER_PORT",
        };
        let zones = Port {
            enabled: config.mode == Mode::Global,
            addr: (
                config.synchronisation.multizone.global.kds.interface,
                config.synchronisation.multizone.global.kds.grpc_port,
            )
                .into(),
            key: "multizone.global.kds.grpcPort",
            env: "KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT",
        };
        let peers = Port {
            // Only instances that share a store ask each other.
            enabled: !serves_alone(config),
            addr: (EVERYWHERE, config.synchronisation.inter_cp.server.port).into(),
            key: "interCp.server.port",
            env: "KUMA_INTER_CP_SERVER_PORT",
        };
        let assignments = &config.monitoring.server;
        let monitoring = Port {
            enabled: assignments.enabled,
            addr: (assignments.interface, assignments.port).into(),
            key: "monitoringAssignmentServer.port",
            env: "KUMA_MONITORING_ASSIGNMENT_SERVER_PORT",
        };
        let api = Tally::register(metrics, "api_server");
        let counted = |listener: Option<Listener>, tally: Tally| listener.map(|it| it.counted(tally));
        Ok(Ports {
            http: counted(http.bind().await?, api.clone()),
            https: counted(https.bind().await?, api),
            diagnostics: counted(diagnostics.bind().await?, Tally::register(metrics, "diagnostics")),
            proxies: counted(proxies.bind_for_both_families().await?, Tally::register(metrics, "dp_server")),
            zones: counted(zones.bind_for_both_families().await?, Tally::register(metrics, "kds_server")),
            peers: counted(
                peers.bind_for_both_families().await?,
                Tally::register(metrics, "inter_cp_server"),
            ),
            monitoring: counted(
                monitoring.bind_for_both_families().await?,
                Tally::register(metrics, "monitoring_assignment_server"),
            ),
            shares: shares(config),
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
    /// Binds for IPv6 and IPv4, where the machine has both and all addresses are meant: names often resolve to either.
    async fn bind_for_both_families(self) -> Result<Option<Listener>> {
        if self.enabled
            && self.addr.ip().is_unspecified()
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

/// Raises what the process may open, and shares it out.
fn shares(config: &Config) -> Shares {
    let proxies = config.serving.dp_server.limits.max_connections;
    let files = files::allow_all().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit of open files");
        USUAL_FILES
    });
    let shares = Shares::of(files, config.mode, proxies, serves_alone(config));
    if shares.proxies < count(proxies) && config.mode != Mode::Global {
        let connections = shares.proxies;
        tracing::warn!(
            files,
            connections,
            wanted = proxies,
            "this process may open fewer files than dpServer.limits.maxConnections needs, so fewer proxies \
            can connect: raise its limit (ulimit -n, LimitNOFILE) or lower the setting"
        );
    }
    shares
}

/// The limits of a port of the API.
pub fn api_limits(config: &Config, connections: usize) -> listen::Limits {
    let server = &config.api_server;
    listen::Limits {
        connections,
        // One client does not keep out the others.
        per_peer: connections.div_ceil(2),
        header_read: std_duration(server.read_header_timeout),
        idle: std_duration(server.idle_timeout),
        // The API answers in its own words when it is late; this is for what it cannot see.
        request: std_duration(server.read_timeout) + std_duration(server.write_timeout),
        ..listen::Limits::default()
    }
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_ports_fit_into_what_the_process_may_open() {
        let files = [64, 100, 1024, 4096, 20_000, 1 << 20];
        let modes = [(Mode::Zone, true), (Mode::Zone, false), (Mode::Global, true), (Mode::Global, false)];
        for (files, (mode, alone)) in files.into_iter().flat_map(|files| modes.map(|mode| (files, mode))) {
            let shares = Shares::of(files, mode, 16_384, alone);
            let all = 2 * shares.api + shares.diagnostics + shares.monitoring;
            let all = all + shares.proxies + shares.zones + shares.peers;
            assert!(all as u64 <= files - OTHER_FILES.min(files / 2), "{files}: {shares:?}");
            assert!(shares.diagnostics >= 2, "{files}: {shares:?}");
            assert_eq!((shares.proxies == 0, shares.zones > 0), (mode == Mode::Global, mode == Mode::Global));
            assert_eq!(shares.peers == 0, alone, "{files}: {shares:?}");
        }
        let zone =
            Shares { api: 4096, diagnostics: 256, monitoring: 256, proxies: 16_384, zones: 0, peers: 0 };
        assert_eq!(Shares::of(1 << 20, Mode::Zone, 16_384, true), zone);
        let global =
            Shares { api: 4096, diagnostics: 256, monitoring: 256, proxies: 0, zones: 4096, peers: 64 };
        assert_eq!(Shares::of(1 << 20, Mode::Global, 16_384, false), global);
        assert_eq!(Shares::of(1 << 20, Mode::Zone, 1, true).proxies, 1);
    }
}
