//! SNI: how a TLS connection between zones says which destination it is for.
//!
//! Three generations exist side by side: the tags of a service (`backend{mesh=default}`), a hash
//! followed by readable parts (`a601e0c00295a9fbe.backend.80.default.ms`), and the KRI written as a
//! host name (`sni.msvc.default.backend.http`).

mod decode;
mod hashed;
mod in_resource;
mod of_kri;
mod tags;

pub use decode::{DecodedSni, HashedSni, decode};
pub use hashed::{hashed, sni_name};
pub use in_resource::{AcceptedSni, Form, Formats, OfZone, Owner, OwnerLocation, SniFormatError, accepted};
pub use of_kri::{from_kri, to_kri, violations};
pub use tags::{from_tags, to_tags};

use super::{Kri, ShortName};
use crate::{Kind, Resource, Spec, kinds::mesh_service::Port};

/// The short name, in KRIs and in hashed SNIs, of the types traffic can be sent to.
const DESTINATIONS: [(Kind, &str, &str); 3] = [
    (Kind::MeshService, "msvc", "ms"),
    (Kind::MeshExternalService, "extsvc", "mes"),
    (Kind::MeshMultiZoneService, "mzsvc", "mzms"),
];

/// True for types of resources that receive traffic.
pub fn is_destination(short: ShortName) -> bool {
    DESTINATIONS.iter().any(|(_, known, _)| *known == short.as_str())
}

/// The ports of a destination, each with its section name; nothing for other kinds.
pub fn sections(spec: &Spec) -> Vec<(u32, String)> {
    let of_ports = |ports: &[Port]| ports.iter().map(|port| (port.port, port.section_name())).collect();
    match spec {
        Spec::MeshService(service) => of_ports(&service.ports),
        Spec::MeshMultiZoneService(service) => of_ports(&service.ports),
        Spec::MeshExternalService(service) => vec![(service.match_.port, service.match_.port.to_string())],
        _ => Vec::new(),
    }
}

/// The SNIs the REST API shows for a destination, sorted by port.
///
/// Ports whose SNI would not be a valid host name are left out, as nothing can be sent to them.
pub fn computed(resource: &Resource) -> Vec<(u32, String)> {
    let Some(kri) = Kri::of(resource, "") else { return Vec::new() };
    let mut snis: Vec<(u32, String)> = sections(&resource.spec)
        .into_iter()
        .filter_map(|(port, section)| Some((port, from_kri(&kri.with_section(&section)).ok()?)))
        .collect();
    snis.sort_by_key(|(port, _)| *port);
    snis
}
