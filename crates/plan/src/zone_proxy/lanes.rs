//! Which server names lead where.

use std::{collections::BTreeMap, sync::Arc};

use policy::Permissions;
use resources::kinds::mesh_load_balancing_strategy::HashPolicy;
use topology::Protocol;

use crate::Security;

/// Connections that ask for one of these server names go to one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    /// What clients dial comes first.
    pub server_names: Vec<String>,
    pub cluster: String,
    /// The prefix of its statistics.
    pub stats: String,
    /// How often a connection is attempted; once where it is not said.
    pub attempts: Option<u32>,
    /// Whether connections are counted by server name, too. Where names may change it has to be seen which are
    /// asked for.
    pub counted: bool,
    /// Set where the mesh ends: its TLS is taken off. Everything else is passed on unread.
    pub end: Option<Arc<LaneEnd>>,
}

/// What happens to connections where the mesh ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneEnd {
    pub mesh: Arc<str>,
    /// Of the filter chain, and of the routes of requests.
    pub name: String,
    pub protocol: Protocol,
    pub security: Security,
    /// `None` where everything of the mesh may pass.
    pub permissions: Option<Permissions>,
    /// What decides which endpoint gets a request or a connection.
    pub hashed: Vec<HashPolicy>,
    pub ipv6: bool,
}

/// The lanes of all meshes with every server name once: a proxy can lead it to one place only. What clients dial wins
/// over what is merely accepted, and of several the first; a lane that has no name left is not there.
pub fn merged<'l>(lanes: impl Iterator<Item = &'l Lane> + Clone) -> Vec<Lane> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, lane) in lanes.clone().enumerate() {
        if let Some(dialled) = lane.server_names.first() {
            owners.entry(dialled).or_insert(index);
        }
    }
    for (index, lane) in lanes.clone().enumerate() {
        for name in &lane.server_names {
            owners.entry(name).or_insert(index);
        }
    }
    let own = |(index, lane): (usize, &Lane)| Lane {
        server_names: lane
            .server_names
            .iter()
            .filter(|name| owners[name.as_str()] == index)
            .cloned()
            .collect(),
        ..lane.clone()
    };
    lanes.enumerate().map(own).filter(|lane| !lane.server_names.is_empty()).collect()
}
