//! Names of the mesh for the application: a DNS server on loopback that knows what the control plane says
//! ([`table`]) and asks the machine's resolvers for everything else ([`forward`], [`resolvers`]).
//!
//! It listens on loopback, so no other machine can make it send anything; queries of virtual networks, which arrive at
//! addresses of this machine, are answered when they come from one of those networks. It has a thread of its own: a page of metrics that is being written does not delay the application's queries.

mod answering;
mod dns_metrics;
mod forward;
mod message;
mod resolvers;
mod table;

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use runtime::{Shutdown, metrics::Metrics};
use socket2::{Domain, Socket, Type};
use tokio::sync::mpsc;
use transparent_proxy::Range;

use self::{
    answering::QueryAnswerer, dns_metrics::DnsMetrics, forward::Forwarder, resolvers::Resolvers,
    table::DnsNames,
};
use crate::{
    failure::{Failure, Result},
    readiness::is_absent,
};

/// Path where Envoy hands out the names of the mesh.
pub const PATH: &str = "/dns";
/// The feature of an agent that answers names itself.
pub const FEATURE: &str = "feature-embedded-dns";

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    pub port: u16,
    pub ipv6: bool,
    /// File that lists the machine's resolvers.
    pub resolv_conf: PathBuf,
    /// Log every query.
    pub log_queries: bool,
    /// Virtual networks of this machine whose queries are redirected to it.
    pub networks: Vec<Range>,
}

/// A server that answers.
#[derive(Debug, Clone)]
pub struct DnsServer {
    port: u16,
    names: Arc<DnsNames>,
    dns_metrics: DnsMetrics,
}

/// One address, for queries of either kind.
struct Sockets {
    udp: UdpSocket,
    /// Only queries over UDP are redirected from virtual networks.
    tcp: Option<TcpListener>,
    /// Networks that queries must come from, if not from this machine.
    from: Option<Vec<Range>>,
}

impl DnsServer {
    /// Answers until the shutdown begins.
    pub fn start(plan: &DnsSettings, metrics: &Metrics, shutdown: &Shutdown) -> Result<DnsServer> {
        let sockets = listen(plan)?;
        let own = sockets.iter().filter_map(|sockets| sockets.udp.local_addr().ok()).collect();
        let names = Arc::new(DnsNames::default());
        let dns_metrics = DnsMetrics::register(metrics);
        let resolvers = Resolvers::new(plan.resolv_conf.clone(), own);
        let answering = Arc::new(QueryAnswerer::new(
            names.clone(),
            Forwarder::new(resolvers, dns_metrics.clone()),
            dns_metrics.clone(),
            plan.log_queries,
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the event loop of the DNS server")?;
        let ends = shutdown.clone();
        let run = move || {
            runtime.block_on(async {
                for one in sockets {
                    if let Err(error) = answering.serve(one.udp, one.tcp, one.from) {
                        tracing::error!(%error, "the DNS server cannot serve one of its addresses");
                    }
                }
                ends.begun().await;
            });
        };
        std::thread::Builder::new()
            .name("dns".to_owned())
            .spawn(run)
            .context("cannot start the DNS server")?;
        tracing::info!(port = plan.port, "serving names of the mesh on loopback");
        Ok(DnsServer { port: plan.port, names, dns_metrics })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Takes every document that the control plane has, until there are no more.
    pub async fn follow(self, mut documents: mpsc::Receiver<Option<Bytes>>) {
        while let Some(document) = documents.recv().await {
            // A control plane that says nothing for a while has not taken the names back.
            let Some(document) = document else { continue };
            let names = self.names.clone();
            // Fifty thousand names take their time, which Envoy's supervision must not wait for.
            match tokio::task::spawn_blocking(move || names.take(&document)).await {
                Ok(Ok(taken)) => {
                    self.dns_metrics.entries.set(i64::try_from(taken.names).unwrap_or(i64::MAX));
                    tracing::debug!(?taken, "the names of the mesh changed");
                    if taken.skipped > 0 {
                        let skipped = taken.skipped;
                        tracing::warn!(
                            skipped,
                            "the control plane sent invalid names or addresses; they are ignored"
                        );
                    }
                }
                Ok(Err(error)) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "cannot read the names of the mesh; keeping the last ones");
                }
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}

fn listen(plan: &DnsSettings) -> Result<Vec<Sockets>> {
    let is_shared = !plan.networks.is_empty();
    let bind = |address: IpAddr| bind(SocketAddr::from((address, plan.port)), is_shared);
    let mut sockets = Vec::new();
    match bind(Ipv4Addr::LOCALHOST.into()) {
        Ok(more) => sockets.push(more),
        // A machine with IPv6 only has ::1 instead.
        Err(error) if plan.ipv6 && is_absent(&error) => {
            tracing::debug!(%error, "DNS is answered at ::1 only");
        }
        Err(error) => return Err(in_vain(plan, &error)),
    }
    let has_ipv4 = !sockets.is_empty();
    for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        let of_family = plan.networks.iter().filter(|range| range.is_ipv4() == any.is_ipv4());
        let from: Vec<Range> = of_family.copied().collect();
        if !from.is_empty() && (has_ipv4 || any.is_ipv6()) {
            let udp = shared(SocketAddr::from((any, plan.port))).map_err(|error| in_vain(plan, &error))?;
            sockets.push(Sockets { udp, tcp: None, from: Some(from) });
        }
    }
    if !plan.ipv6 {
        return Ok(sockets);
    }
    match bind(Ipv6Addr::LOCALHOST.into()) {
        Ok(more) => sockets.push(more),
        Err(error) if !has_ipv4 || error.kind() == ErrorKind::AddrInUse => return Err(in_vain(plan, &error)),
        // Without IPv6 no application asks there.
        Err(error) => tracing::debug!(%error, "serving DNS on 127.0.0.1 only"),
    }
    Ok(sockets)
}

fn bind(address: SocketAddr, is_shared: bool) -> std::io::Result<Sockets> {
    // Another agent at this port is noticed by TCP, whose port is not shared.
    let tcp = TcpListener::bind(address)?;
    let udp = if is_shared { shared(address)? } else { UdpSocket::bind(address)? };
    udp.set_nonblocking(true)?;
    tcp.set_nonblocking(true)?;
    Ok(Sockets { udp, tcp: Some(tcp), from: None })
}

/// A socket for a port that is also bound for another address of this machine; the kernel lets sockets of the same
/// user share it, and gives a packet to the one that is bound to its address.
fn shared(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn in_vain(plan: &DnsSettings, error: &std::io::Error) -> Failure {
    let port = plan.port;
    Failure::failed(format!(
        "cannot answer DNS at port {port} of loopback: {error}; every proxy of a machine needs its own \
         --dns-proxy-port, or none with --dns-enabled=false"
    ))
}

#[cfg(test)]
mod tests;
