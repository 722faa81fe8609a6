//! Filter chains: server names and the clusters they lead to.

use std::{collections::BTreeMap, sync::Arc};

use policy::Permissions;
use resources::kinds::mesh_load_balancing_strategy::HashPolicy;
use topology::Protocol;

use crate::Security;

/// Connections that ask for one of these server names go to one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterChain {
    /// Server names; clients dial the first.
    pub server_names: Vec<String>,
    pub cluster: String,
    /// The prefix of its statistics.
    pub stats: String,
    /// Limit of attempts to connect; `None` means one.
    pub attempts: Option<u32>,
    /// Connections are counted by server name, too. Where names may change, statistics must show which names
    /// clients ask for.
    pub counted: bool,
    /// Terminates the mesh's TLS. `None` forwards connections without reading them.
    pub tls: Option<Arc<TlsTermination>>,
}

/// Treatment of connections where the mesh ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TlsTermination {
    pub mesh: Arc<str>,
    /// Of the filter chain, and of the routes of requests.
    pub name: String,
    pub protocol: Protocol,
    pub security: Security,
    /// `None` where everything of the mesh may pass.
    pub permissions: Option<Permissions>,
    /// Hash policies that choose the endpoint of a request or a connection.
    pub hashed: Vec<HashPolicy>,
    pub ipv6: bool,
}

/// Merges the filter_chains of all meshes, with every server name once: a proxy can lead it to one place only. A name
/// that clients dial wins over one that is merely accepted, and of several the first; a chain that has no name
/// left is not there.
pub fn merged<'l>(filter_chains: impl Iterator<Item = &'l FilterChain> + Clone) -> Vec<FilterChain> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, chain) in filter_chains.clone().enumerate() {
        if let Some(dialled) = chain.server_names.first() {
            owners.entry(dialled).or_insert(index);
        }
    }
    for (index, chain) in filter_chains.clone().enumerate() {
        for name in &chain.server_names {
            owners.entry(name).or_insert(index);
        }
    }
    let own = |(index, chain): (usize, &FilterChain)| FilterChain {
        server_names: chain
            .server_names
            .iter()
            .filter(|name| owners[name.as_str()] == index)
            .cloned()
            .collect(),
        ..chain.clone()
    };
    filter_chains.enumerate().map(own).filter(|chain| !chain.server_names.is_empty()).collect()
}
