//! What a proxy should have.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

/// The kinds of resources that are discovered, in the order in which they are made before they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    Cluster,
    Endpoint,
    Secret,
    Listener,
    Route,
}

impl Type {
    pub const ALL: [Type; 5] = [Type::Cluster, Type::Endpoint, Type::Secret, Type::Listener, Type::Route];

    pub fn url(self) -> &'static str {
        match self {
            Type::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Type::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Type::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Type::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Type::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub fn by_url(url: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.url() == url)
    }
}

/// One encoded resource, shared by everybody who gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    pub name: Arc<str>,
    /// A hash of the content: the same on every control plane and after every restart.
    pub version: u128,
    /// The protobuf message, without its `Any` around it.
    pub body: Bytes,
}

/// Everything a proxy should have, by type and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    by_type: [BTreeMap<Arc<str>, Arc<Encoded>>; Type::ALL.len()],
}

impl Target {
    pub fn insert(&mut self, kind: Type, resource: Arc<Encoded>) {
        self.by_type[kind as usize].insert(resource.name.clone(), resource);
    }

    pub fn of(&self, kind: Type) -> &BTreeMap<Arc<str>, Arc<Encoded>> {
        &self.by_type[kind as usize]
    }
}
