//! MeshServices out of the tags of Dataplanes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Labels, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound},
        int_or_string::IntOrString,
        mesh_service::{MeshService, MeshServiceStatus, Port, ServiceSelector, State},
        protocol::Protocol,
    },
    labels,
    naming::dns,
};

use super::{ServiceContext, ServiceWork, grace::GracePeriod};

/// Dataplanes with other ports than the service they belong to: those ports cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConflict {
    pub service: String,
    pub dataplanes: Vec<Arc<str>>,
}

/// Ports of a service, as one Dataplane describes them.
struct Claim<'a> {
    dataplane: &'a Arc<str>,
    ports: Vec<Port>,
}

/// Plan for the service of a name.
#[derive(Debug, Default)]
pub struct ServiceUpdate {
    /// `None` when there is no such service, and none is wanted.
    pub work: Option<ServiceWork>,
    pub conflict: Option<PortConflict>,
    /// Its grace period, if it has one.
    pub grace: Option<GracePeriod>,
    /// It is deleted without one, because too many young services are in theirs.
    pub crowded_out: bool,
}

impl ServiceUpdate {
    /// The service without what its Dataplanes want of it: a service is generated no more.
    pub fn retired(existing: Option<&Arc<Resource>>) -> ServiceUpdate {
        let mut work = existing.and_then(ServiceWork::on);
        if let Some(work) = work.as_mut().filter(|work| work.is_generated()) {
            work.delete = true;
        }
        ServiceUpdate { work, ..ServiceUpdate::default() }
    }

    /// The service as the Dataplanes want it that have its name as their tag, in the order of their names.
    /// `has_room` lets a young service begin its grace period.
    pub fn of<'a>(
        name: &Arc<str>,
        existing: Option<&Arc<Resource>>,
        dataplanes: impl Iterator<Item = &'a Arc<Resource>>,
        around: &ServiceContext<'_>,
        has_room: bool,
    ) -> ServiceUpdate {
        let work = existing.and_then(ServiceWork::on);
        if work.as_ref().is_some_and(|work| !work.is_generated()) {
            // What a user made by hand is left alone, also when it has the name of a tag.
            return ServiceUpdate { work, ..ServiceUpdate::default() };
        }
        let claims: Vec<Claim<'_>> = dataplanes.map(|dataplane| Claim::of(dataplane, name)).collect();
        let before = work.as_ref().map_or(&[][..], |work| &work.spec.ports);
        let Some(ports) = chosen(before, &claims) else {
            return work.map(|work| expire(work, around, has_room)).unwrap_or_default();
        };
        let conflict = conflict(name, &ports, &claims);
        let work = match work {
            None => created(around, name, ports),
            Some(mut work) => {
                work.labels.remove(labels::DELETION_GRACE_PERIOD);
                if !same_ports(&work.spec.ports, &ports) {
                    let before = std::mem::replace(&mut work.spec.ports, ports);
                    name_ports(&mut work, &before, around, name);
                }
                work
            }
        };
        ServiceUpdate { work: Some(work), conflict, ..ServiceUpdate::default() }
    }
}

/// The services a Dataplane says it is, as far as they are names that a MeshService can have.
pub fn services_of(dataplane: &Resource) -> BTreeSet<&str> {
    let inbounds = dataplane.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
    inbounds.iter().map(service_of).filter(|service| dns::is_rfc1035_label(service)).collect()
}

fn service_of(inbound: &Inbound) -> &str {
    inbound.tags.get(labels::SERVICE).map_or("", String::as_str)
}

impl<'a> Claim<'a> {
    fn of(resource: &'a Resource, service: &str) -> Claim<'a> {
        let mut ports: Vec<Port> = Vec::new();
        let inbounds = resource.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
        for port in inbounds.iter().filter(|inbound| service_of(inbound) == service).map(port_of) {
            // Inbounds at two addresses may share their port. Of those the first is the one that is
            // configured, and two ports with one name would have one KRI.
            if !ports.iter().any(|other| other.name == port.name) {
                ports.push(port);
            }
        }
        Claim { dataplane: &resource.key.name, ports }
    }
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

fn conflict(service: &str, ports: &[Port], claims: &[Claim<'_>]) -> Option<PortConflict> {
    let differing = claims.iter().filter(|claim| !same_ports(ports, &claim.ports));
    let dataplanes: Vec<Arc<str>> = differing.map(|claim| claim.dataplane.clone()).collect();
    (!dataplanes.is_empty()).then(|| PortConflict { service: service.to_owned(), dataplanes })
}

/// Starts the grace period of a service that lost its last Dataplane, or ends it.
fn expire(mut work: ServiceWork, around: &ServiceContext<'_>, has_room: bool) -> ServiceUpdate {
    let Some(existing) = work.existing.as_deref() else { return ServiceUpdate::default() };
    let stored = GracePeriod::stored(existing, around.deletion_grace_period);
    let grace = stored.unwrap_or_else(|| GracePeriod::begin(existing, around));
    if stored.is_none() {
        work.labels.insert(labels::DELETION_GRACE_PERIOD.to_owned(), around.now.to_string());
    }
    let crowded_out = stored.is_none() && grace.is_young && !has_room;
    work.delete = crowded_out || grace.ends <= around.now;
    let grace = (!work.delete).then_some(grace);
    ServiceUpdate { work: Some(work), grace, crowded_out, conflict: None }
}

fn created(around: &ServiceContext<'_>, name: &Arc<str>, ports: Vec<Port>) -> ServiceWork {
    let mesh = around.mesh.name();
    let labels: [(&str, &str); 6] = [
        (labels::MESH, mesh),
        (labels::DISPLAY_NAME, name),
        (labels::MANAGED_BY, labels::MESH_SERVICE_GENERATOR),
        (labels::ENV, around.snis.environment.label()),
        (labels::ZONE, around.zone),
        (labels::ORIGIN, labels::ORIGIN_ZONE),
    ];
    let tags = BTreeMap::from([(labels::SERVICE.to_owned(), name.to_string())]);
    let mut work = ServiceWork {
        existing: None,
        labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<Labels>(),
        spec: MeshService {
            state: State::Unavailable,
            selector: ServiceSelector { dataplane_tags: Some(tags), ..ServiceSelector::default() },
            ports,
            identities: Vec::new(),
        },
        status: MeshServiceStatus::default(),
        delete: false,
    };
    name_ports(&mut work, &[], around, name);
    work
}

/// Writes the server names of the ports: those of `before`, where the ports are the same and their author chose them.
fn name_ports(work: &mut ServiceWork, before: &[Port], around: &ServiceContext<'_>, name: &Arc<str>) {
    let spec = |ports: &[Port]| MeshService { ports: ports.to_vec(), ..MeshService::default() };
    let made =
        |ports: &[Port]| super::created(around, name.clone(), work.labels.clone(), spec(ports).into(), None);
    let mut named = made(&work.spec.ports);
    let before = made(before);
    around.snis.fill(&mut named, Some(&before));
    if let Some(named) = named.spec.get::<MeshService>() {
        work.spec.ports.clone_from(&named.ports);
    }
}
