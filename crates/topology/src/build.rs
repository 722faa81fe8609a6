//! Destinations and endpoints out of resources: one pure function per kind of destination.
//!
//! Incremental code only decides which of these functions run; they do not know about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use imbl::OrdSet;
use resources::{
    Labels, Resource, Status,
    kinds::{
        dataplane::{Dataplane, Inbound, InboundState},
        mesh::Mesh,
        mesh_external_service::{MeshExternalService, Tls},
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::{IdentityType, MeshService, MeshServiceStatus, Port, State, TlsStatus},
        service_status::{Address, Vip},
        tags::{self, Tags},
    },
    labels,
    naming::{Kri, SpiffeId, sni},
};

use crate::{
    ClientTls, Destination, DestinationId, Endpoint, Endpoints, External, Identities, Instance, Mtls,
    MtlsMode, Protocol, ZoneRoutes,
    matching::{self, MemberSelector},
    zones::REMOTE,
};

/// Properties of the mesh itself that every destination depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeshFacts<'a> {
    pub mesh: &'a str,
    pub zone: &'a str,
    pub mtls: Option<&'a Mtls>,
    /// Those of proxies, which may have certificates though the mesh has no mTLS.
    pub identities: &'a Identities,
    pub zones: &'a ZoneRoutes,
    pub routing: Routing,
}

/// Settings of the mesh for traffic that crosses zones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Routing {
    /// It goes through an egress of the client's zone.
    pub egress: bool,
    /// Destinations chosen by tags are called in their own zone first.
    pub locality: bool,
}

impl Routing {
    pub(crate) fn of(mesh: &Resource) -> Routing {
        let routing = mesh.spec.get::<Mesh>().and_then(|mesh| mesh.routing.as_ref());
        routing.map_or_else(Routing::default, |routing| Routing {
            egress: routing.zone_egress,
            locality: routing.locality_aware_load_balancing,
        })
    }
}

impl MeshFacts<'_> {
    /// Proxies can prove their identity, without which no traffic crosses zones.
    fn is_secured(&self) -> bool {
        self.mtls.is_some() || self.identities.any_ready()
    }
}

/// Destinations of a subject, with their endpoints.
pub(crate) type BuiltDestinations = BTreeMap<DestinationId, (Arc<Destination>, Arc<Endpoints>)>;

/// A destination and its endpoints.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BuiltPort {
    pub destination: Destination,
    pub endpoints: Endpoints,
}

/// The ports of a MeshService. `members` are the Dataplanes its selector selects.
pub(crate) fn service(
    resource: &Resource,
    members: &[&Arc<Resource>],
    facts: MeshFacts<'_>,
) -> Vec<BuiltPort> {
    let Some(spec) = resource.spec.get::<MeshService>() else { return Vec::new() };
    let none = MeshServiceStatus::default();
    let status = match &resource.status {
        Some(Status::MeshService(status)) => status,
        _ => &none,
    };
    let local = matching::is_local(resource);
    let selector = MemberSelector::of_service(resource, spec, facts.zone);
    let spiffe_ids = spiffe_ids(spec, members, facts.mesh);
    let ready = !local || status.tls.status == TlsStatus::Ready;
    let Some(owner) = Owner::of(resource, &status.vips, &status.addresses) else { return Vec::new() };
    let zone = resource.label(labels::ZONE).filter(|zone| !local && !zone.is_empty());
    let remote = zone.filter(|_| facts.is_secured());
    let remote = remote.map(|zone| sorted(facts.zones.toward(zone, facts.routing.egress)));
    let build = |port: &Port| BuiltPort {
        destination: Destination {
            remote: zone.map(Arc::from),
            ..owner.destination(port, facts, ready, || spiffe_ids.clone())
        },
        endpoints: match &remote {
            Some(remote) => remote.clone(),
            None => endpoints_of_port(&selector, port, members),
        },
    };
    spec.ports.iter().map(build).collect()
}

/// A MeshService that a MeshMultiZoneService selects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub offer: &'a BuiltDestinations,
    /// Traffic is sent to it.
    pub called: bool,
}

impl<'a> Member<'a> {
    /// Returns its destinations at a port.
    fn at(self, port: u32) -> impl Iterator<Item = &'a (Arc<Destination>, Arc<Endpoints>)> {
        self.offer.values().filter(move |(destination, _)| destination.port == port)
    }
}

/// Traffic is sent to a MeshService that is part of another service. Instances of this zone are known by
/// their endpoints; of another zone only its own control plane knows if there is an instance.
pub(crate) fn is_called(service: &Resource) -> bool {
    let state = service.spec.get::<MeshService>().map(|service| &service.state);
    matching::is_local(service) || state != Some(&State::Unavailable)
}

/// The ports of a MeshMultiZoneService. `members` are the MeshServices that it selects: a port leads to the
/// servers of their ports of the same number.
pub(crate) fn multi_zone(
    resource: &Resource,
    members: &[Member<'_>],
    facts: MeshFacts<'_>,
) -> Vec<BuiltPort> {
    let Some(spec) = resource.spec.get::<MeshMultiZoneService>() else { return Vec::new() };
    let (vips, names) = match &resource.status {
        Some(Status::MeshMultiZoneService(status)) => (&status.vips[..], &status.addresses[..]),
        _ => (&[][..], &[][..]),
    };
    let Some(owner) = Owner::of(resource, vips, names) else { return Vec::new() };
    let build = |port: &Port| {
        let served = || members.iter().flat_map(|member| member.at(port.port));
        // One server without a certificate would be lost to clients that send TLS.
        let ready = served().count() > 0 && served().all(|(d, _)| d.tls != ClientTls::Off);
        let spiffe_ids = || {
            let of_service = |(destination, _): &'_ (Arc<Destination>, _)| match &destination.tls {
                ClientTls::Mesh { spiffe_ids, .. } => spiffe_ids.clone(),
                ClientTls::Off => Vec::new(),
            };
            served().flat_map(of_service).collect::<BTreeSet<String>>().into_iter().collect()
        };
        let destination = Destination {
            disagreements: disagreements(port, members),
            ..owner.destination(port, facts, ready, spiffe_ids)
        };
        // The server name says which service of another zone is called, and only TLS has one.
        let callable =
            |endpoint: &&Endpoint| endpoint.instance.is_some() || destination.tls != ClientTls::Off;
        let called = members.iter().filter(|member| member.called).flat_map(|member| member.at(port.port));
        let endpoints = called.flat_map(|(_, endpoints)| endpoints.0.iter().filter(callable).cloned());
        let endpoints = sorted(endpoints.collect());
        let destination = Destination { shared_exit: endpoints.share_exits(), ..destination };
        BuiltPort { endpoints, destination }
    };
    spec.ports.iter().map(build).collect()
}

/// Describes the selected services that lack a port or have it with another protocol.
fn disagreements(port: &Port, members: &[Member<'_>]) -> Arc<[String]> {
    let protocol = Protocol::from(&port.app_protocol);
    let one = |Member { offer, .. }: &Member<'_>| {
        let DestinationId::Port(member) = offer.keys().next()? else { return None };
        let member = member.without_section();
        match offer.values().map(|(destination, _)| destination).find(|it| it.port == port.port) {
            None => Some(format!("{member} has no port {}", port.port)),
            Some(other) if other.protocol != protocol => {
                let other = other.protocol.word();
                let own = protocol.word();
                Some(format!("port {} of {member} speaks {other}, not {own}", port.port))
            }
            Some(_) => None,
        }
    };
    members.iter().filter_map(one).collect()
}

/// Properties that all ports of a resource share.
struct Owner<'r> {
    resource: &'r Resource,
    kri: Kri,
    labels: Arc<Labels>,
    vips: Vec<IpAddr>,
    hostnames: Vec<String>,
}

impl<'r> Owner<'r> {
    fn of(resource: &'r Resource, vips: &[Vip], names: &[Address]) -> Option<Owner<'r>> {
        Some(Owner {
            resource,
            kri: resource.kri("")?,
            labels: Arc::new(visible_labels(resource)),
            vips: addresses(vips),
            hostnames: hostnames(names),
        })
    }

    fn destination(
        &self,
        port: &Port,
        facts: MeshFacts<'_>,
        ready: bool,
        spiffe_ids: impl FnOnce() -> Vec<String>,
    ) -> Destination {
        let id = self.kri.with_section(&port.section_name());
        let server_names = server_names(self.resource, &port.section_name());
        let dialled = || server_names.first().cloned().unwrap_or_default();
        Destination {
            tls: client_tls(facts, ready, || (dialled(), spiffe_ids())),
            id: DestinationId::Port(id),
            server_names,
            shared_exit: false,
            remote: None,
            service: Some(self.resource.key.clone()),
            labels: self.labels.clone(),
            port: port.port,
            protocol: Protocol::from(&port.app_protocol),
            vips: self.vips.clone(),
            hostnames: self.hostnames.clone(),
            external: None,
            disagreements: Arc::default(),
            exists: true,
        }
    }
}

/// The one port of a MeshExternalService; nothing when it belongs to another zone. `fill` puts secrets in place of their
/// names.
pub(crate) fn external(
    resource: &Resource,
    facts: MeshFacts<'_>,
    fill: impl FnOnce(&Tls) -> Tls,
) -> Vec<BuiltPort> {
    let (Some(spec), Some(kri)) = (resource.spec.get::<MeshExternalService>(), resource.kri("")) else {
        return Vec::new();
    };
    let zone = resource.label(labels::ZONE).unwrap_or_default();
    if !zone.is_empty() && !facts.zone.is_empty() && zone != facts.zone {
        return Vec::new();
    }
    let (vips, names) = match &resource.status {
        Some(Status::MeshExternalService(status)) => {
            (addresses(std::slice::from_ref(&status.vip)), hostnames(&status.addresses))
        }
        _ => (Vec::new(), Vec::new()),
    };
    let port = spec.match_.port;
    let served = listed(spec);
    let id = kri.with_section(&port.to_string());
    let server_names = server_names(resource, &port.to_string());
    // An egress proves itself by a certificate of the mesh's own authority.
    let through_egress = facts.routing.egress && facts.mtls.is_some();
    let tls = if through_egress {
        ClientTls::Mesh {
            sni: server_names.first().cloned().unwrap_or_default(),
            spiffe_ids: vec![SpiffeId::of_zone_egress(facts.mesh).to_string()],
        }
    } else {
        ClientTls::Off
    };
    let (called, behind_egress) = if through_egress {
        (sorted(facts.zones.exit_endpoints()), Some(Arc::new(served)))
    } else {
        (served, None)
    };
    vec![BuiltPort {
        destination: Destination {
            id: DestinationId::Port(id),
            service: Some(resource.key.clone()),
            labels: Arc::new(visible_labels(resource)),
            port,
            protocol: Protocol::from(&spec.match_.protocol),
            tls,
            server_names,
            shared_exit: false,
            remote: None,
            vips,
            hostnames: names,
            external: Some(External {
                tls: spec.tls.as_ref().filter(|tls| tls.enabled).map(fill),
                behind_egress,
            }),
            disagreements: Arc::default(),
            exists: true,
        },
        endpoints: called,
    }]
}

/// The endpoints that a MeshExternalService lists.
fn listed(spec: &MeshExternalService) -> Endpoints {
    let endpoints = spec.endpoints.iter().flatten().map(|endpoint| Endpoint {
        address: endpoint.address.clone(),
        port: endpoint.port,
        tags: BTreeMap::new(),
        weight: 1,
        priority: endpoint.priority.unwrap_or(0),
        instance: None,
    });
    sorted(endpoints.collect())
}

/// Whatever carries all tags. `members` are the Dataplanes that do, `certified` says which of them
/// have a certificate.
pub(crate) fn tagged(
    wanted: &Arc<Tags>,
    members: &[&Arc<Resource>],
    certified: &OrdSet<Arc<str>>,
    facts: MeshFacts<'_>,
) -> BuiltPort {
    let service = wanted.get(labels::SERVICE).map_or("", String::as_str);
    let mut remote = if facts.is_secured() {
        facts.zones.tagged(facts.mesh, wanted, facts.routing.egress)
    } else {
        Vec::new()
    };
    let exists = !members.is_empty() || !remote.is_empty();
    let ready = exists && members.iter().all(|member| certified.contains(&member.key.name));
    let tls = client_tls(facts, ready, || {
        let mut of_sni = Tags::clone(wanted);
        of_sni.insert("mesh".to_owned(), facts.mesh.to_owned());
        (sni::from_tags(&of_sni), ids_of_tagged(service, members, facts))
    });
    let inbounds = || {
        let all = members
            .iter()
            .copied()
            .flat_map(|member| matching::inbounds(member).iter().map(move |inbound| (member, inbound)));
        all.filter(|(_, inbound)| tags::matches(wanted, &inbound.tags))
    };
    // Readiness must not decide the protocol: a restart of the last instance would change every client.
    let protocols =
        inbounds().filter(|(_, i)| i.state != InboundState::Ignored).map(|(_, i)| matching::protocol(i));
    let word = |tags: &&Tags| tags.get(labels::PROTOCOL).cloned().unwrap_or_default();
    let elsewhere = remote.iter().flat_map(|(_, tags)| tags).map(|tags| Protocol::from_word(&word(tags)));
    let protocol = protocols.chain(elsewhere).reduce(Protocol::shared_with).unwrap_or(Protocol::Tcp);
    let ready_inbounds = inbounds().filter(|(_, inbound)| matching::is_ready(inbound));
    let mut endpoints: Vec<Endpoint> = ready_inbounds.filter_map(|(member, i)| endpoint(member, i)).collect();
    if tls != ClientTls::Off {
        let priority = if facts.routing.locality { REMOTE } else { 0 };
        endpoints.extend(remote.drain(..).map(|(endpoint, _)| Endpoint { priority, ..endpoint }));
    }
    let endpoints = sorted(endpoints);
    BuiltPort {
        destination: Destination {
            id: DestinationId::Tags(wanted.clone()),
            service: None,
            labels: Arc::default(),
            port: 0,
            protocol,
            tls,
            server_names: Arc::default(),
            shared_exit: endpoints.share_exits(),
            remote: None,
            vips: Vec::new(),
            hostnames: Vec::new(),
            external: None,
            disagreements: Arc::default(),
            exists,
        },
        endpoints,
    }
}

/// SPIFFE IDs that servers chosen by tags may present. Those of identities come before any is given, so that clients know
/// them first; those of other zones are not known here.
fn ids_of_tagged(service: &str, members: &[&Arc<Resource>], facts: MeshFacts<'_>) -> Vec<String> {
    let by_identity = members.iter().filter_map(|member| facts.identities.spiffe_id(member, facts.zone));
    let of_service = SpiffeId::of_service(facts.mesh, service);
    let ids: BTreeSet<String> = by_identity.chain([of_service]).map(|id| id.to_string()).collect();
    ids.into_iter().collect()
}

fn client_tls(
    facts: MeshFacts<'_>,
    ready: bool,
    server: impl FnOnce() -> (String, Vec<String>),
) -> ClientTls {
    let strict = facts.mtls.is_some_and(|mtls| mtls.mode == MtlsMode::Strict);
    match strict || facts.is_secured() && ready {
        // A server that need not be strict takes plain traffic, which is safe until all of them have certificates.
        true => {
            let (sni, spiffe_ids) = server();
            ClientTls::Mesh { sni, spiffe_ids }
        }
        false => ClientTls::Off,
    }
}

/// Every server name that leads to a port. Clients dial the first.
fn server_names(resource: &Resource, section: &str) -> Arc<[String]> {
    let accepted = sni::accepted(resource).into_iter();
    accepted.filter(|accepted| accepted.section == section).map(|accepted| accepted.value).collect()
}

/// SPIFFE IDs the server may present. A service without written identities is expected to present those of its
/// Dataplanes.
fn spiffe_ids(spec: &MeshService, members: &[&Arc<Resource>], mesh: &str) -> Vec<String> {
    let written = spec.identities.iter().filter_map(|identity| match identity.type_ {
        IdentityType::ServiceTag => Some(SpiffeId::of_service(mesh, &identity.value).to_string()),
        IdentityType::SpiffeId => Some(identity.value.clone()),
        IdentityType::Other(_) => None,
    });
    let mut ids: BTreeSet<String> = written.collect();
    if ids.is_empty() {
        let observed = members.iter().flat_map(|member| SpiffeId::of_dataplane(member));
        ids.extend(observed.map(|id| id.to_string()));
    }
    ids.into_iter().collect()
}

fn endpoints_of_port(selector: &MemberSelector, port: &Port, members: &[&Arc<Resource>]) -> Endpoints {
    let Some(target) = &port.target_port else { return Endpoints::default() };
    let of_member = |member: &&Arc<Resource>| {
        let serving = selector.serving(member, target);
        serving.into_iter().filter_map(|inbound| endpoint(member, inbound)).collect::<Vec<_>>()
    };
    sorted(members.iter().flat_map(of_member).collect())
}

fn endpoint(member: &Arc<Resource>, inbound: &Inbound) -> Option<Endpoint> {
    let networking = member.spec.get::<Dataplane>()?.networking.as_ref()?;
    let advertised = &networking.advertised_address;
    let address = if advertised.is_empty() { inbound.address_in(networking) } else { advertised };
    Some(Endpoint {
        address: address.to_owned(),
        port: inbound.port,
        tags: inbound.tags.clone(),
        weight: 1,
        priority: 0,
        instance: Some(Instance::of(member)),
    })
}

/// An address and port can be configured once, however many Dataplanes claim it.
fn sorted(mut endpoints: Vec<Endpoint>) -> Endpoints {
    endpoints.sort_by(|a, b| {
        let order = |e: &Endpoint| (e.port, e.priority);
        let place = a.address.cmp(&b.address).then_with(|| order(a).cmp(&order(b)));
        place.then_with(|| a.tags.cmp(&b.tags)).then_with(|| a.labels().cmp(&b.labels()))
    });
    endpoints.dedup_by(|a, b| a.address == b.address && a.port == b.port && other_zone(a) == other_zone(b));
    Endpoints(endpoints)
}

/// Through an egress several zones are at one address, and policies may want some of them only.
fn other_zone(endpoint: &Endpoint) -> Option<&str> {
    endpoint.zone().filter(|_| endpoint.instance.is_none())
}

fn addresses(vips: &[Vip]) -> Vec<IpAddr> {
    vips.iter().filter_map(|vip| vip.ip.parse().ok()).collect()
}

fn hostnames(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(|address| address.hostname.clone()).collect()
}

/// The labels that say something about the service; when it will be deleted is not for clients.
fn visible_labels(resource: &Resource) -> Labels {
    let mut visible = resource.labels.clone();
    visible.remove(labels::DELETION_GRACE_PERIOD);
    visible
}
