//! What traffic can be sent to.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use resources::naming::Kri;

/// Which destination: one port of a resource, or whatever carries all these tags.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DestinationId {
    /// A port of a MeshService, MeshExternalService or MeshMultiZoneService; the KRI has a section.
    Port(Kri),
    /// Inbounds with these tags, `kuma.io/service` among them.
    Tags(Arc<BTreeMap<String, String>>),
}

/// How an application protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http,
    Http2,
    Grpc,
    Kafka,
    Tcp,
}

/// One destination, as every client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    pub id: DestinationId,
    /// The name before KRIs: `<mesh>_<name>_<namespace>_<zone>_<short>_<port>`, or the service tag.
    pub legacy_name: String,
    pub port: u32,
    pub protocol: Protocol,
    pub tls: ClientTls,
    pub vips: Vec<IpAddr>,
    pub hostnames: Vec<String>,
    /// Set for destinations outside the mesh.
    pub external: Option<External>,
}

/// How a client secures its connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientTls {
    /// Plain: mTLS is off, or the destination is not ready for it.
    Off,
    /// Mutual TLS of the mesh: the server must prove one of these SPIFFE ids.
    Mesh { sni: String, spiffe_ids: Vec<String> },
}

/// What lies outside the mesh (MeshExternalService).
#[derive(Debug, Clone, PartialEq)]
pub struct External {
    pub tls: Option<resources::kinds::mesh_external_service::Tls>,
}
