//! The destinations that a name means, and the inbounds that serve them.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Inbound, InboundState},
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::MeshService,
        tags,
    },
    labels,
    naming::Kri,
};
use topology::{
    ClientTls, Destination, DestinationId, MeshSnapshot,
    access::{
        Ruleset,
        explain::{AskedServer, EnforcementPoint, Requirement, Serving},
    },
    matching::{self, MemberSelector},
};

use super::{AccessQuestionError, ClientConnection, InboundRequirement, Lookup, MAX_SERVERS};

/// The kinds that a name may mean; the first that exists counts.
const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshMultiZoneService, Kind::MeshExternalService];

/// The destinations that are meant: by identifier, with a port or with all of them, or by name.
pub fn destinations<'a>(
    mesh: &'a MeshSnapshot,
    to: &str,
) -> Result<Vec<&'a Arc<Destination>>, AccessQuestionError> {
    let named = named(mesh, to);
    let found = if named.is_empty() { tagged(mesh, to) } else { named };
    if found.is_empty() {
        Err(AccessQuestionError::UnknownDestination { mesh: mesh.name.clone(), name: to.to_owned() })
    } else {
        Ok(found)
    }
}

/// The ports of a service, by its identifier or its name.
pub(super) fn named<'a>(mesh: &'a MeshSnapshot, to: &str) -> Vec<&'a Arc<Destination>> {
    if let Ok(kri) = to.parse::<Kri>() {
        let first = DestinationId::Port(kri.clone());
        let is_meant = |id: &DestinationId| match id {
            DestinationId::Port(port) if kri.section.is_empty() => port.without_section() == kri,
            DestinationId::Port(port) => *port == kri,
            DestinationId::Tags(_) => false,
        };
        let ports = mesh.destinations.range(first..).take_while(|(id, _)| is_meant(id));
        return ports.map(|(_, destination)| destination).collect();
    }
    let named = KINDS.into_iter().find_map(|kind| mesh.named(kind, to, to));
    named.into_iter().flatten().filter_map(|id| mesh.destinations.get(id)).collect()
}

/// The destinations by tags of a service.
pub(super) fn tagged<'a>(mesh: &'a MeshSnapshot, service: &str) -> Vec<&'a Arc<Destination>> {
    let by_tags = mesh.destinations.range(DestinationId::Tags(Arc::default())..);
    let is_meant = |id: &DestinationId| match id {
        DestinationId::Tags(tags) => tags.get(labels::SERVICE).is_some_and(|it| it == service),
        DestinationId::Port(_) => false,
    };
    by_tags.filter(|(id, _)| is_meant(id)).map(|(_, destination)| destination).collect()
}

/// The servers of these destinations and what they require, and whether there are more than that.
pub fn servers<'a>(
    lookup: Lookup<'_, '_>,
    mesh: &'a MeshSnapshot,
    destinations: &[&'a Arc<Destination>],
) -> (Vec<AskedServer<'a>>, bool) {
    let mut found = Servers { lookup, mesh, servers: Vec::new(), truncated: false };
    for destination in destinations {
        let before = found.servers.len();
        // Nothing stands between a client and what is outside of the mesh, or called without TLS.
        let open = mesh.access.to(&destination.id).is_none();
        let asked = Asked {
            plaintext: open && destination.tls == ClientTls::Off,
            server_names: server_names(mesh, destination),
            connection: ClientConnection::to(mesh, &destination.id),
        };
        found.add(destination, &asked);
        let place = match &destination.external {
            Some(_) if open => Some(EnforcementPoint::Egress),
            None if destination.tls == ClientTls::Off => Some(EnforcementPoint::Unseen),
            Some(_) | None => None,
        };
        if let Some(place) = place.filter(|_| found.servers.len() == before) {
            found.push(place, Requirement::Nothing, &asked);
        }
    }
    (found.servers, found.truncated)
}

/// Connection of clients that call a destination by its own name, not by the name of one of its members.
struct Asked {
    /// Servers that are not known here ask for no certificate, whatever they ask of clients of one of its members.
    plaintext: bool,
    server_names: Arc<[String]>,
    connection: ClientConnection,
}

struct Servers<'a, 's, 'l> {
    lookup: Lookup<'s, 'l>,
    mesh: &'a MeshSnapshot,
    servers: Vec<AskedServer<'a>>,
    truncated: bool,
}

impl<'a> Servers<'a, '_, '_> {
    fn push(&mut self, place: EnforcementPoint<'a>, requires: Requirement, asked: &Asked) {
        let server_names = asked.server_names.clone();
        self.servers.push(AskedServer { place, requires, permissive: false, server_names });
    }

    fn add(&mut self, destination: &'a Arc<Destination>, asked: &Asked) {
        if let Some(members) = members(self.lookup, self.mesh, destination) {
            members.into_iter().for_each(|member| self.add(member, asked));
            return;
        }
        let mesh = self.mesh;
        let mut inbounds = inbounds(self.lookup, mesh, destination);
        self.truncated |= self.servers.len() + inbounds.len() > MAX_SERVERS;
        inbounds.truncate(MAX_SERVERS.saturating_sub(self.servers.len()));
        let mut known: BTreeSet<Ruleset> = BTreeSet::new();
        for (dataplane, inbound) in inbounds {
            let server = super::Server { dataplane, inbound, connection: asked.connection.clone() };
            let requires = InboundRequirement::of(mesh, &server);
            let permissive = requires.is_permissive();
            let requires = Requirement::from(&requires);
            if let Requirement::Permission(ruleset) = &requires {
                known.insert(ruleset.clone());
            }
            let place = EnforcementPoint::Inbound(dataplane, inbound);
            let server_names = asked.server_names.clone();
            self.servers.push(AskedServer { place, requires, permissive, server_names });
        }
        // What the mesh knows of other servers than those.
        let place =
            if destination.external.is_some() { EnforcementPoint::Egress } else { EnforcementPoint::Unseen };
        match mesh.access.to(&destination.id) {
            Some(_) if self.truncated || asked.plaintext => {}
            Some(access) => {
                for ruleset in access.rulesets.iter().filter(|ruleset| !known.contains(*ruleset)) {
                    self.push(place, Requirement::Permission(ruleset.clone()), asked);
                }
            }
            // Another zone has permissions that are not known here.
            None => {
                let guarded = |zone: &Arc<str>| mesh.zones.has_own_permissions(zone);
                if destination.tls != ClientTls::Off && other_zones(mesh, destination).iter().any(guarded) {
                    self.push(EnforcementPoint::Unseen, Requirement::Unknown, asked);
                }
            }
        }
    }
}

/// The other zones that serve a destination.
fn other_zones(mesh: &MeshSnapshot, destination: &Destination) -> BTreeSet<Arc<str>> {
    match &destination.id {
        DestinationId::Port(_) => destination.remote.iter().cloned().collect(),
        DestinationId::Tags(wanted) => {
            let found =
                [false, true].map(|through_egress| mesh.zones.tagged(&mesh.name, wanted, through_egress));
            let zones = found.iter().flatten().filter_map(|(endpoint, _)| endpoint.zone());
            zones.map(Arc::from).collect()
        }
    }
}

/// Returns the ways in which these destinations select the proxies that serve them, each way once.
pub fn serving(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    destinations: &[&Arc<Destination>],
) -> Vec<Serving> {
    let mut found: Vec<Serving> = Vec::new();
    for destination in destinations {
        let members = members(lookup, mesh, destination);
        let parts = members.unwrap_or_else(|| vec![destination]);
        for part in parts {
            let new = choosing(lookup, mesh, part).into_iter().filter(|it| !found.contains(it));
            let new: Vec<Serving> = new.collect();
            found.extend(new);
        }
    }
    found
}

fn choosing(lookup: Lookup<'_, '_>, mesh: &MeshSnapshot, destination: &Destination) -> Vec<Serving> {
    if let DestinationId::Tags(tags) = &destination.id {
        let of_this_mesh = !tags.contains_key(labels::MESH);
        let selector = || MemberSelector::Tags(tags.clone());
        let zones = other_zones(mesh, destination).into_iter().map(Some).chain([None]);
        return zones.filter(|_| of_this_mesh).map(|zone| Serving { selector: selector(), zone }).collect();
    }
    let stored = destination.service.as_ref().and_then(lookup);
    let selector = stored.and_then(|stored| {
        let spec = stored.spec.get::<MeshService>()?;
        Some(match &destination.remote {
            Some(_) => MemberSelector::of(&spec.selector),
            None => MemberSelector::of_service(stored, spec, &mesh.zone),
        })
    });
    selector.map(|selector| Serving { selector, zone: destination.remote.clone() }).into_iter().collect()
}

/// The ports of MeshServices that a port of a MeshMultiZoneService consists of; `None` for what is none.
fn members<'a>(
    lookup: Lookup<'_, '_>,
    mesh: &'a MeshSnapshot,
    destination: &Destination,
) -> Option<Vec<&'a Arc<Destination>>> {
    let service = destination.service.as_ref().filter(|key| key.kind == Kind::MeshMultiZoneService)?;
    let spec = lookup(service)?.spec.get::<MeshMultiZoneService>()?;
    let MemberSelector::Labels(labels) = MemberSelector::of_multi_zone(spec) else { return Some(Vec::new()) };
    let members = mesh.labelled(Kind::MeshService, &labels).flatten();
    let members = members.filter_map(|id| mesh.destinations.get(id));
    Some(members.filter(|member| member.port == destination.port).collect())
}

/// The server names that clients may ask for; none where no rule asks for one.
fn server_names(mesh: &MeshSnapshot, destination: &Destination) -> Arc<[String]> {
    if let Some(access) = mesh.access.to(&destination.id) {
        return access.server_names.iter().cloned().collect();
    }
    match &destination.tls {
        ClientTls::Mesh { sni, .. } => Arc::new([sni.clone()]),
        ClientTls::Off => Arc::default(),
    }
}

/// The inbounds of this zone that serve a destination, ready or not.
pub fn inbounds<'a>(
    lookup: Lookup<'_, '_>,
    mesh: &'a MeshSnapshot,
    destination: &Destination,
) -> Vec<(&'a Arc<Resource>, &'a Inbound)> {
    if let DestinationId::Tags(wanted) = &destination.id {
        let all = mesh.chosen_by(&MemberSelector::Tags(wanted.clone())).into_iter();
        let all = all.flat_map(|it| matching::inbounds(it).iter().map(move |inbound| (it, inbound)));
        let serves = |inbound: &Inbound| {
            inbound.state != InboundState::Ignored && tags::matches(wanted, &inbound.tags)
        };
        return all.filter(|(_, inbound)| serves(inbound)).collect();
    }
    if let Some(members) = members(lookup, mesh, destination) {
        return members.into_iter().flat_map(|member| inbounds(lookup, mesh, member)).collect();
    }
    let Some(service) = destination.service.as_ref().and_then(lookup) else { return Vec::new() };
    let Some(spec) = service.spec.get::<MeshService>() else { return Vec::new() };
    let selector = MemberSelector::of_service(service, spec, &mesh.zone);
    let port = spec.ports.iter().find(|port| port.port == destination.port);
    let Some(target) = port.and_then(|port| port.target_port.as_ref()) else { return Vec::new() };
    let behind = mesh.chosen_by(&selector).into_iter().flat_map(|dataplane| {
        selector.behind(dataplane, target).into_iter().map(move |inbound| (dataplane, inbound))
    });
    behind.collect()
}
