//! Destinations of traffic.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use resources::{Key, Labels, kinds::protocol, naming::Kri};

use crate::Endpoints;

/// Identity of a destination: one port of a resource, or everything that carries all these tags.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DestinationId {
    /// A port of a MeshService, MeshExternalService or MeshMultiZoneService; the KRI has a section.
    Port(Kri),
    /// Inbounds with these tags, `kuma.io/service` among them.
    Tags(Arc<BTreeMap<String, String>>),
}

/// Application protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http,
    Http2,
    Grpc,
    Kafka,
    Tcp,
}

impl Protocol {
    /// By its word in tags and ports; what is unknown or left out is proxied as TCP.
    pub fn from_word(word: &str) -> Protocol {
        Protocol::from(&protocol::Protocol::from(word))
    }

    /// Its word in tags and ports.
    pub fn word(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Http2 => "http2",
            Protocol::Grpc => "grpc",
            Protocol::Kafka => "kafka",
            Protocol::Tcp => "tcp",
        }
    }

    /// Returns the protocol that both can be proxied as: gRPC is HTTP/2, and everything is TCP.
    #[must_use]
    pub fn shared_with(self, other: Protocol) -> Protocol {
        match (self, other) {
            (a, b) if a == b => a,
            (Protocol::Grpc, Protocol::Http2) | (Protocol::Http2, Protocol::Grpc) => Protocol::Http2,
            _ => Protocol::Tcp,
        }
    }
}

impl From<&protocol::Protocol> for Protocol {
    fn from(protocol: &protocol::Protocol) -> Protocol {
        match protocol {
            protocol::Protocol::Http => Protocol::Http,
            protocol::Protocol::Http2 => Protocol::Http2,
            protocol::Protocol::Grpc => Protocol::Grpc,
            protocol::Protocol::Kafka => Protocol::Kafka,
            protocol::Protocol::Tcp | protocol::Protocol::Other(_) => Protocol::Tcp,
        }
    }
}

/// One destination, as every client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    pub id: DestinationId,
    /// The resource this is a port of; `None` when it is chosen by tags.
    pub service: Option<Key>,
    /// The labels of that resource, by which references and policies may choose it.
    pub labels: Arc<Labels>,
    /// 0 when the destination is chosen by tags, which have no port.
    pub port: u32,
    pub protocol: Protocol,
    pub tls: ClientTls,
    /// The server names by which it is reached from other zones: clients dial the first, servers accept all. Empty when
    /// it is chosen by tags, whose name is made of them.
    pub server_names: Arc<[String]>,
    /// One egress stands for several zones that serve it: whichever of them fails, it seems to be the egress.
    pub shared_exit: bool,
    /// The other zone that it is a service of.
    pub remote: Option<Arc<str>>,
    pub vips: Vec<IpAddr>,
    pub hostnames: Vec<String>,
    /// Set for destinations outside the mesh.
    pub external: Option<External>,
    /// Ports that members of a MeshMultiZoneService lack or have with another protocol than it says.
    pub disagreements: Arc<[String]>,
    /// The destination exists: a resource always does, tags do when a Dataplane has them, ready or not.
    pub exists: bool,
}

/// TLS of a client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientTls {
    /// Plain: mTLS is off, or the destination is not ready for it.
    Off,
    /// Mutual TLS of the mesh: the server must prove one of these SPIFFE ids.
    Mesh { sni: String, spiffe_ids: Vec<String> },
}

/// Destination outside of the mesh (MeshExternalService).
#[derive(Debug, Clone, PartialEq)]
pub struct External {
    /// TLS that the proxy originates; `None` when the service speaks plain.
    pub tls: Option<resources::kinds::mesh_external_service::Tls>,
    /// Servers behind the egress, where clients call the egress instead.
    pub behind_egress: Option<Arc<Endpoints>>,
}
