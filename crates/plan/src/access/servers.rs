//! The destinations that a name means, and the inbounds that serve them.

use std::{collections::BTreeSet, sync::Arc};

use policy::{Permissions, PolicySelector};
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
    matching::{self, MemberSelector},
    reachability::explain::{Place, Requirement, Server},
};

use super::{ClientConnection, InboundRequirement, Lookup, MAX_SERVERS};

/// The kinds that a name may mean; the first that exists counts.
const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshMultiZoneService, Kind::MeshExternalService];

/// The destinations that are meant: by identifier, with a port or with all of them, or by name.
pub fn destinations<'a>(mesh: &'a MeshSnapshot, to: &str) -> Result<Vec<&'a Arc<Destination>>, String> {
    let by_id = |id: &DestinationId| mesh.destinations.get(id);
    if let Ok(kri) = to.parse::<Kri>() {
        if let Some(destination) = by_id(&DestinationId::Port(kri.clone())) {
            return Ok(vec![destination]);
        }
        let of_service = |id: &DestinationId| match id {
            DestinationId::Port(port) => kri.section.is_empty() && port.without_section() == kri,
            DestinationId::Tags(_) => false,
        };
        let ports: Vec<_> = mesh.destinations.values().filter(|it| of_service(&it.id)).collect();
        if !ports.is_empty() {
            return Ok(ports);
        }
    }
    let named = KINDS.into_iter().find_map(|kind| mesh.named(kind, to, to));
    let ports: Vec<_> = named.into_iter().flatten().filter_map(by_id).collect();
    if !ports.is_empty() {
        return Ok(ports);
    }
    let service = |destination: &&Arc<Destination>| match &destination.id {
        DestinationId::Tags(tags) => tags.get(labels::SERVICE).is_some_and(|it| it == to),
        DestinationId::Port(_) => false,
    };
    let tagged: Vec<_> = mesh.destinations.values().filter(service).collect();
    match tagged.is_empty() {
        true => Err(format!(
            "mesh {:?} has no destination {to:?}: it is the identifier or the name of a MeshService, a \
             MeshMultiZoneService or a MeshExternalService, or a {} that a proxy calls",
            mesh.name,
            labels::SERVICE
        )),
        false => Ok(tagged),
    }
}

/// The servers of these destinations and what they require, and whether there are more than that.
pub fn servers<'a>(
    lookup: Lookup<'_, '_>,
    mesh: &'a MeshSnapshot,
    destinations: &[&'a Arc<Destination>],
) -> (Vec<Server<'a>>, bool) {
    let routes: Vec<Arc<Resource>> = mesh.routes().cloned().collect();
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    let (mut servers, mut truncated) = (Vec::new(), false);
    for destination in destinations {
        let server_names = server_names(mesh, destination);
        let mut inbounds = inbounds(lookup, mesh, destination);
        truncated |= servers.len() + inbounds.len() > MAX_SERVERS;
        inbounds.truncate(MAX_SERVERS.saturating_sub(servers.len()));
        let mut known: BTreeSet<Permissions> = BTreeSet::new();
        for (dataplane, inbound) in inbounds {
            let connection = ClientConnection::to(mesh, &destination.id);
            let server = super::Server { dataplane, inbound, connection };
            let requires = InboundRequirement::of(mesh, &selector, &server);
            let (permissive, requires) = (requires.is_permissive(), Requirement::from(&requires));
            if let Requirement::Permission(permissions) = &requires {
                known.insert(permissions.clone());
            }
            let server_names = server_names.clone();
            let place = Place::Inbound(dataplane, inbound);
            servers.push(Server { place, requires, permissive, server_names });
        }
        // What the mesh knows of other servers than those.
        let place = if destination.external.is_some() { Place::Egress } else { Place::Unseen };
        let row = mesh.reachability.row(&destination.id).filter(|_| !truncated);
        let rulesets =
            row.into_iter().flat_map(|row| &row.rulesets).filter(|rules| !known.contains(&***rules));
        servers.extend(rulesets.map(|rules| Server {
            place,
            requires: Requirement::Permission(Permissions::clone(rules)),
            permissive: false,
            server_names: server_names.clone(),
        }));
        // Nothing stands between a client and what is outside of the mesh.
        if destination.external.is_some() && mesh.reachability.row(&destination.id).is_none() {
            let (place, requires) = (Place::Egress, Requirement::Nothing);
            servers.push(Server { place, requires, permissive: false, server_names });
        }
    }
    (servers, truncated)
}

/// The server names that clients may ask for; none where no rule asks for one.
fn server_names(mesh: &MeshSnapshot, destination: &Destination) -> Arc<[String]> {
    if let Some(row) = mesh.reachability.row(&destination.id) {
        return row.server_names.iter().cloned().collect();
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
        let all = mesh.dataplanes.values();
        let all = all.flat_map(|it| matching::inbounds(it).iter().map(move |inbound| (it, inbound)));
        let serves = |inbound: &Inbound| {
            inbound.state != InboundState::Ignored && tags::matches(wanted, &inbound.tags)
        };
        return all.filter(|(_, inbound)| serves(inbound)).collect();
    }
    let Some(service) = destination.service.as_ref().and_then(lookup) else {
        return Vec::new();
    };
    if let Some(spec) = service.spec.get::<MeshMultiZoneService>() {
        let MemberSelector::Labels(labels) = MemberSelector::of_multi_zone(spec) else { return Vec::new() };
        let members = mesh.labelled(Kind::MeshService, &labels).flatten();
        let members = members.filter_map(|id| mesh.destinations.get(id));
        let ports = members.filter(|member| member.port == destination.port);
        return ports.flat_map(|member| inbounds(lookup, mesh, member)).collect();
    }
    let Some(spec) = service.spec.get::<MeshService>() else { return Vec::new() };
    let selector = MemberSelector::of_service(service, spec);
    let port = spec.ports.iter().find(|port| port.port == destination.port);
    let Some(target) = port.and_then(|port| port.target_port.as_ref()) else { return Vec::new() };
    let behind = mesh.dataplanes.values().flat_map(|dataplane| {
        selector.behind(dataplane, target).into_iter().map(move |inbound| (dataplane, inbound))
    });
    behind.collect()
}
