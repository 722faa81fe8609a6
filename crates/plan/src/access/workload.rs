//! The Dataplanes that a name means, and where they are called.

use std::{collections::BTreeSet, sync::Arc};

use policy::Client;
use resources::{
    Key, Kind, Resource,
    kinds::{
        dataplane::{Inbound, InboundState},
        mesh_service::MeshService,
        tags::{self, Tags},
    },
    labels,
    naming::section::name_or_port,
};
use topology::{
    DestinationId, MeshSnapshot,
    matching::{self, MemberSelector},
};

use super::{AccessQuestionError, ClientConnection, Lookup, Server};

/// The error for a port that does not exist lists at most this many ports that do.
const MAX_PORTS: usize = 20;

/// A Dataplane, a MeshService or a `kuma.io/service`, by its name.
#[derive(Debug)]
pub struct NamedWorkload<'a> {
    /// `Dataplane`, `MeshService` or `kuma.io/service`.
    pub kind: &'static str,
    pub name: String,
    pub dataplanes: Vec<&'a Arc<Resource>>,
    service: Option<(&'a Key, &'a MeshService, MemberSelector)>,
}

impl<'a> NamedWorkload<'a> {
    /// Finds a workload in a mesh.
    pub fn find(
        lookup: Lookup<'a, '_>,
        mesh: &'a MeshSnapshot,
        name: &str,
    ) -> Result<NamedWorkload<'a>, AccessQuestionError> {
        if let Some(named) = NamedWorkload::named(lookup, mesh, name) {
            return Ok(named);
        }
        if lookup(&Key::new(Kind::MeshService, &mesh.name, name)).is_some() {
            let mesh = mesh.name.clone();
            return Err(AccessQuestionError::ServiceWithoutDataplane { mesh, name: name.to_owned() });
        }
        let has_tag = |dataplane: &&Arc<Resource>| {
            let services = Client::of_dataplane(dataplane).tags.remove(labels::SERVICE);
            services.is_some_and(|services| services.contains(name))
        };
        let members: Vec<_> = mesh.of_service(name).into_iter().filter(has_tag).collect();
        if members.is_empty() {
            let mesh = mesh.name.clone();
            return Err(AccessQuestionError::UnknownWorkload { mesh, name: name.to_owned() });
        }
        Ok(NamedWorkload { kind: labels::SERVICE, name: name.to_owned(), dataplanes: members, service: None })
    }

    /// A Dataplane of this name, or a MeshService with Dataplanes here.
    pub(super) fn named(
        lookup: Lookup<'a, '_>,
        mesh: &'a MeshSnapshot,
        name: &str,
    ) -> Option<NamedWorkload<'a>> {
        let workload =
            |kind, dataplanes| NamedWorkload { kind, name: name.to_owned(), dataplanes, service: None };
        if let Some(dataplane) = mesh.dataplanes.get(name) {
            return Some(workload(Kind::Dataplane.name(), vec![dataplane]));
        }
        let resource = lookup(&Key::new(Kind::MeshService, &mesh.name, name))?;
        let spec = resource.spec.get::<MeshService>()?;
        let selector = MemberSelector::of_service(resource, spec, &mesh.zone);
        let members = mesh.chosen_by(&selector);
        let service = Some((&resource.key, spec, selector));
        let found = NamedWorkload { service, ..workload(Kind::MeshService.name(), members) };
        (!found.dataplanes.is_empty()).then_some(found)
    }

    /// The destinations that it is called as.
    pub(super) fn destinations(&self, mesh: &MeshSnapshot) -> Vec<DestinationId> {
        match &self.service {
            Some((key, ..)) => mesh.services.get(*key).map(|ports| ports.to_vec()).unwrap_or_default(),
            None if self.kind == labels::SERVICE => vec![DestinationId::Tags(Arc::new(self.tags()))],
            None => Vec::new(),
        }
    }

    /// The tags that choose it by its name.
    fn tags(&self) -> Tags {
        Tags::from([(labels::SERVICE.to_owned(), self.name.clone())])
    }

    /// Returns the inbounds of the workload that are called; only `port` if given. The error lists the ports
    /// that exist.
    pub(super) fn inbounds(
        &self,
        mesh: &MeshSnapshot,
        port: Option<&str>,
    ) -> Result<Vec<Server<'a>>, AccessQuestionError> {
        let NamedWorkload { kind, name, .. } = self;
        let mut servers = match &self.service {
            Some((key, service, selector)) => self.behind(mesh, key, service, selector),
            None if *kind == labels::SERVICE => self.tagged(mesh),
            None => self.listening(|_| true, &ClientConnection::default()),
        };
        if servers.is_empty() {
            let mesh = mesh.name.clone();
            return Err(AccessQuestionError::NoCalls { kind, name: name.clone(), mesh });
        }
        let Some(port) = port else { return Ok(servers) };
        let ports: BTreeSet<String> = servers.iter().map(Server::port).collect();
        servers.retain(|server| server.is_at(port));
        if servers.is_empty() {
            let ports: Vec<String> = ports.into_iter().take(MAX_PORTS).collect();
            return Err(AccessQuestionError::NoCallsAtPort {
                kind,
                name: name.clone(),
                mesh: mesh.name.clone(),
                port: port.to_owned(),
                ports: ports.join(", "),
            });
        }
        Ok(servers)
    }

    /// Inbounds that are part of the mesh, ready or not.
    fn listening(&self, wanted: impl Fn(&Inbound) -> bool, connection: &ClientConnection) -> Vec<Server<'a>> {
        let of_member = |&dataplane: &&'a Arc<Resource>| {
            matching::inbounds(dataplane).iter().map(move |inbound| (dataplane, inbound))
        };
        let inbounds = self.dataplanes.iter().flat_map(of_member);
        inbounds
            .filter(|(_, inbound)| inbound.state != InboundState::Ignored && wanted(inbound))
            .map(|(dataplane, inbound)| Server { dataplane, inbound, connection: connection.clone() })
            .collect()
    }

    fn tagged(&self, mesh: &MeshSnapshot) -> Vec<Server<'a>> {
        let tags = self.tags();
        let connection = ClientConnection::to(mesh, &DestinationId::Tags(Arc::new(tags.clone())));
        self.listening(|inbound| tags::matches(&tags, &inbound.tags), &connection)
    }

    fn behind(
        &self,
        mesh: &MeshSnapshot,
        key: &Key,
        service: &MeshService,
        selector: &MemberSelector,
    ) -> Vec<Server<'a>> {
        let destinations = mesh.services.get(key).map_or(&[][..], |ports| ports);
        let mut servers = Vec::new();
        for port in &service.ports {
            let Some(target) = &port.target_port else { continue };
            let number =
                |id: &&DestinationId| mesh.destinations.get(*id).is_some_and(|d| d.port == port.port);
            let connection = destinations.iter().find(number).map(|id| ClientConnection::to(mesh, id));
            let name = name_or_port(port.name.as_deref(), port.port);
            let connection =
                ClientConnection { port: Some((name, port.port)), ..connection.unwrap_or_default() };
            for &dataplane in &self.dataplanes {
                let serving = selector.serving(dataplane, target).into_iter();
                servers.extend(serving.map(|inbound| Server {
                    dataplane,
                    inbound,
                    connection: connection.clone(),
                }));
            }
        }
        servers
    }
}
