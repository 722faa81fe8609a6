//! Pages of metrics as somebody finds them who scrapes proxies, connected or not.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use resources::{
    Resource,
    kinds::{
        dataplane::{Dataplane, Inbound},
        mesh_metric::{Conf, Prometheus, TlsMode},
    },
};
use topology::MeshSnapshot;

/// Page of metrics of a Dataplane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapePage {
    /// The client that it is for; `None` for any.
    pub client: Option<String>,
    pub secure: bool,
    pub address: SocketAddr,
    pub path: String,
}

/// Pages that the MeshMetrics in effect give a Dataplane, as its plan has them. Nothing is asked of the proxy: one that
/// is away has the same.
pub fn scrape_pages(snapshot: &MeshSnapshot, dataplane: &Resource) -> Vec<ScrapePage> {
    let Some(conf) = super::conf(snapshot, dataplane) else { return Vec::new() };
    let networking = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref());
    let Some(networking) = networking else { return Vec::new() };
    let Ok(ip) = networking.address.parse::<IpAddr>() else { return Vec::new() };
    let of_inbound = |inbound: &Inbound| {
        let own = inbound.address.parse().unwrap_or(ip);
        Some((own, u16::try_from(inbound.port).ok()?))
    };
    let mut taken: BTreeSet<(IpAddr, u16)> = networking.inbound.iter().filter_map(of_inbound).collect();
    let mut clients = BTreeSet::new();
    let mut pages = Vec::new();
    for page in prometheus(&conf) {
        let Some(port) = u16::try_from(page.port()).ok().filter(|port| *port != 0) else { continue };
        // The first page of a client and the first at a port are the ones that the proxy has.
        if clients.insert(page.client_id.as_deref()) && taken.insert((ip, port)) {
            pages.push(ScrapePage {
                client: page.client_id.clone(),
                secure: page.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::ProvidedTls),
                address: SocketAddr::new(ip, port),
                path: super::path_of(page),
            });
        }
    }
    pages
}

/// The clients that a conf has pages for.
pub fn scrape_clients(conf: &Conf) -> BTreeSet<&str> {
    prometheus(conf).filter_map(|page| page.client_id.as_deref()).collect()
}

fn prometheus(conf: &Conf) -> impl Iterator<Item = &Prometheus> {
    conf.backends().iter().filter_map(|backend| backend.prometheus.as_ref())
}
