//! Names of the mesh for the application: a DNS server on loopback that knows what the control plane says
//! ([`table`]) and asks the machine's resolvers for everything else ([`forward`], [`resolvers`]).
//!
//! It listens on loopback only, so no other machine can make it send anything. It has a thread of
//! its own: a page of metrics that is being written does not delay the application's queries.

mod answering;
mod forward;
mod measured;
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
use tokio::sync::mpsc;

use self::{
    answering::Answering, forward::Forwarder, measured::Measured, resolvers::Resolvers, table::Names,
};
use crate::failure::{Failure, Result};

/// Where Envoy hands out the names of the mesh.
pub const PATH: &str = "/dns";
/// The feature of an agent that answers names itself.
pub const FEATURE: &str = "feature-embedded-dns";

/// How the server is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub port: u16,
    pub ipv6: bool,
    /// Where the machine's resolvers are listed.
    pub resolv_conf: PathBuf,
    /// Say every query in the log.
    pub log_queries: bool,
}

/// A server that answers.
#[derive(Debug, Clone)]
pub struct Server {
    port: u16,
    names: Arc<Names>,
    measured: Measured,
}

/// One address, for queries of either kind.
struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Server {
    /// Answers until the shutdown begins.
    pub fn start(plan: &Plan, metrics: &Metrics, shutdown: &Shutdown) -> Result<Server> {
        let sockets = listen(plan)?;
        let own = sockets.iter().filter_map(|sockets| sockets.udp.local_addr().ok()).collect();
        let (names, measured) = (Arc::new(Names::default()), Measured::register(metrics));
        let resolvers = Resolvers::new(plan.resolv_conf.clone(), own);
        let answering = Arc::new(Answering::new(
            names.clone(),
            Forwarder::new(resolvers, measured.clone()),
            measured.clone(),
            plan.log_queries,
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the event loop of the DNS server")?;
        let ends = shutdown.clone();
        let run = move || {
            runtime.block_on(async {
                for one in sockets {
                    if let Err(error) = answering.serve(one.udp, one.tcp) {
                        tracing::error!(%error, "the DNS server does not answer at one of its addresses");
                    }
                }
                ends.begun().await;
            });
        };
        std::thread::Builder::new()
            .name("dns".to_owned())
            .spawn(run)
            .context("cannot start the DNS server")?;
        tracing::info!(port = plan.port, "names of the mesh are answered on loopback");
        Ok(Server { port: plan.port, names, measured })
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
                    self.measured.entries.set(i64::try_from(taken.names).unwrap_or(i64::MAX));
                    tracing::debug!(?taken, "the names of the mesh changed");
                    if taken.skipped > 0 {
                        let skipped = taken.skipped;
                        tracing::warn!(skipped, "the control plane sent names or addresses that are none");
                    }
                }
                Ok(Err(error)) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the names of the mesh cannot be read; the last ones stay");
                }
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}

fn listen(plan: &Plan) -> Result<Vec<Sockets>> {
    let mut sockets =
        vec![bind(Ipv4Addr::LOCALHOST.into(), plan.port).map_err(|error| in_vain(plan, &error))?];
    if !plan.ipv6 {
        return Ok(sockets);
    }
    match bind(Ipv6Addr::LOCALHOST.into(), plan.port) {
        Ok(more) => sockets.push(more),
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(in_vain(plan, &error)),
        // Without IPv6 no application asks there.
        Err(error) => tracing::debug!(%error, "DNS is answered at 127.0.0.1 only"),
    }
    Ok(sockets)
}

fn bind(address: IpAddr, port: u16) -> std::io::Result<Sockets> {
    let address = SocketAddr::from((address, port));
    let (udp, tcp) = (UdpSocket::bind(address)?, TcpListener::bind(address)?);
    udp.set_nonblocking(true)?;
    tcp.set_nonblocking(true)?;
    Ok(Sockets { udp, tcp })
}

fn in_vain(plan: &Plan, error: &std::io::Error) -> Failure {
    let port = plan.port;
    Failure::failed(format!(
        "cannot answer DNS at port {port} of loopback: {error}; every proxy of a machine needs its own \
         --dns-proxy-port, or none with --dns-enabled=false"
    ))
}

#[cfg(test)]
mod tests;
