//! MeshServices out of the tags of Dataplanes.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use resources::{
    Kind, Labels, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound},
        int_or_string::IntOrString,
        mesh_service::{MeshService, MeshServiceStatus, Port, Selector, Sni, State},
        protocol::Protocol,
    },
    labels,
    naming::{dns, sni},
};

use super::{Desired, GENERATOR, MeshView, Work};

/// Dataplanes with other ports than the service they belong to: nobody can reach those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConflict {
    pub service: String,
    pub dataplanes: Vec<Arc<str>>,
}

/// What one Dataplane says about the ports of a service.
struct Claim<'a> {
    dataplane: &'a Arc<str>,
    ports: Vec<Port>,
}

pub fn generate(
    view: &MeshView<'_>,
    services: &mut BTreeMap<Arc<str>, Work<'_>>,
    desired: &mut Desired,
    now: Timestamp,
) {
    let mut claims = claims(view.dataplanes);
    for (name, work) in services.iter_mut() {
        // What a user made by hand is left alone, also when it has the name of a tag.
        let claims = claims.remove(&**name).unwrap_or_default();
        if !work.is_generated() {
            continue;
        }
        match chosen(&work.spec.ports, &claims) {
            None => expire(work, view, desired, now),
            Some(ports) => {
                report(name, &ports, &claims, desired);
                work.labels.remove(labels::DELETION_GRACE_PERIOD);
                if !same_ports(&work.spec.ports, &ports) {
                    work.spec.ports = with_snis(ports, &work.spec.ports, view, name);
                }
            }
        }
    }
    for (name, claims) in claims {
        let Some(ports) = chosen(&[], &claims) else { continue };
        report(name, &ports, &claims, desired);
        services.insert(name.into(), created(view, name, ports));
    }
}

/// For every service the ports its Dataplanes have, in the order of their names.
fn claims(dataplanes: &[Arc<Resource>]) -> BTreeMap<&str, Vec<Claim<'_>>> {
    let mut sorted: Vec<&Arc<Resource>> = dataplanes.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut claims: BTreeMap<&str, Vec<Claim<'_>>> = BTreeMap::new();
    for resource in sorted {
        let mut by_service: BTreeMap<&str, Vec<Port>> = BTreeMap::new();
        let inbounds = resource.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
        for inbound in inbounds {
            let service = inbound.tags.get(labels::SERVICE).map_or("", String::as_str);
            if dns::is_rfc1035_label(service) {
                let ports = by_service.entry(service).or_default();
                let port = port_of(inbound);
                // Inbounds at two addresses may share their port. Of those the first is the one that is
                // configured, and two ports with one name would have one KRI.
                if !ports.iter().any(|other| other.name == port.name) {
                    ports.push(port);
                }
            }
        }
        for (service, ports) in by_service {
            claims.entry(service).or_default().push(Claim { dataplane: &resource.key.name, ports });
        }
    }
    claims
}

fn port_of(inbound: &Inbound) -> Port {
    let tag = || inbound.tags.get(labels::PROTOCOL).map_or("", String::as_str);
    let protocol = if inbound.protocol.is_empty() { tag() } else { &inbound.protocol };
    let app_protocol = match Protocol::from(protocol) {
        Protocol::Other(_) => Protocol::Tcp,
        known => known,
    };
    Port {
        name: Some(inbound.section_name()),
        port: inbound.port,
        target_port: i32::try_from(inbound.port).ok().map(IntOrString::Int),
        app_protocol,
        snis: Vec::new(),
    }
}

/// The ports of the service: those it has as long as one Dataplane agrees, else those of the first.
/// `None` when there is no Dataplane.
fn chosen(existing: &[Port], claims: &[Claim<'_>]) -> Option<Vec<Port>> {
    let agreed = claims.iter().find(|claim| same_ports(existing, &claim.ports));
    agreed.or(claims.first()).map(|claim| claim.ports.clone())
}

fn same_ports(a: &[Port], b: &[Port]) -> bool {
    let shape = |port: &Port| Port { snis: Vec::new(), ..port.clone() };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| shape(a) == shape(b))
}

fn report(service: &str, ports: &[Port], claims: &[Claim<'_>], desired: &mut Desired) {
    let differing = claims.iter().filter(|claim| !same_ports(ports, &claim.ports));
    let dataplanes: Vec<Arc<str>> = differing.map(|claim| claim.dataplane.clone()).collect();
    if !dataplanes.is_empty() {
        desired.conflicts.push(PortConflict { service: service.to_owned(), dataplanes });
    }
}

/// Starts the grace period of a service that lost its last Dataplane, or ends it.
fn expire(work: &mut Work<'_>, view: &MeshView<'_>, desired: &mut Desired, now: Timestamp) {
    let label = work.labels.get(labels::DELETION_GRACE_PERIOD);
    let started = label.and_then(|started| started.parse::<Timestamp>().ok());
    if started.is_none() {
        work.labels.insert(labels::DELETION_GRACE_PERIOD.to_owned(), now.to_string());
    }
    let ends = started.unwrap_or(now).checked_add(view.deletion_grace_period).unwrap_or(Timestamp::MAX);
    if ends <= now {
        work.delete = true;
    } else {
        desired.look_again = Some(desired.look_again.map_or(ends, |earlier| earlier.min(ends)));
    }
}

fn created<'a>(view: &MeshView<'_>, name: &str, ports: Vec<Port>) -> Work<'a> {
    let mesh = view.mesh.name();
    let labels: [(&str, &str); 6] = [
        (labels::MESH, mesh),
        (labels::DISPLAY_NAME, name),
        (labels::MANAGED_BY, GENERATOR),
        (labels::ENV, labels::ENV_UNIVERSAL),
        (labels::ZONE, view.zone),
        (labels::ORIGIN, labels::ORIGIN_ZONE),
    ];
    let tags = BTreeMap::from([(labels::SERVICE.to_owned(), name.to_owned())]);
    Work {
        existing: None,
        labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<Labels>(),
        spec: MeshService {
            state: State::Unavailable,
            selector: Selector { dataplane_tags: Some(tags), ..Selector::default() },
            ports: with_snis(ports, &[], view, name),
            identities: Vec::new(),
        },
        status: MeshServiceStatus::default(),
        delete: false,
    }
}

/// Ports keep the server names they had: clients of other zones may still dial them.
fn with_snis(mut ports: Vec<Port>, before: &[Port], view: &MeshView<'_>, name: &str) -> Vec<Port> {
    for port in &mut ports {
        let kept = before.iter().find(|p| p.port == port.port && !p.snis.is_empty());
        let computed = || {
            let sni = sni::hashed(name, view.mesh.name(), Kind::MeshService, port.port, &BTreeMap::new());
            sni.map(|value| vec![Sni { value }]).unwrap_or_default()
        };
        port.snis = kept.map_or_else(computed, |before| before.snis.clone());
    }
    ports
}
