//! Targets of calls: workloads of this zone, and services or tags that clients call by name.

use std::sync::Arc;

use resources::labels;
use topology::{Destination, DestinationId, MeshSnapshot};

use super::{AccessQuestionError, Lookup, NamedWorkload, Ports, Server, servers};

/// Target of calls that a name or an identifier stands for.
#[derive(Debug)]
pub enum CallTarget<'a> {
    /// Dataplanes of this zone.
    Workload(NamedWorkload<'a>),
    /// Ports of a service, or tags: served in this zone, in others or outside of the mesh.
    Destinations { kind: &'static str, name: String, ports: Vec<&'a Arc<Destination>> },
}

impl<'a> CallTarget<'a> {
    /// A Dataplane, a service with instances here, any other service, or a value of `kuma.io/service`: the first of
    /// these that there is.
    pub fn find(
        lookup: Lookup<'a, '_>,
        mesh: &'a MeshSnapshot,
        name: &str,
    ) -> Result<CallTarget<'a>, AccessQuestionError> {
        if let Some(workload) = NamedWorkload::named(lookup, mesh, name) {
            return Ok(CallTarget::Workload(workload));
        }
        let of = |ports: Vec<&'a Arc<Destination>>| {
            let service = ports.first().and_then(|port| port.service.as_ref());
            let kind = service.map_or(labels::SERVICE, |key| key.kind.name());
            CallTarget::Destinations { kind, name: name.to_owned(), ports }
        };
        let found = servers::named(mesh, name);
        if !found.is_empty() {
            return Ok(of(found));
        }
        NamedWorkload::find(lookup, mesh, name).map(CallTarget::Workload).or_else(|error| {
            let found = servers::tagged(mesh, name);
            if found.is_empty() { Err(error) } else { Ok(of(found)) }
        })
    }

    pub fn name(&self) -> &str {
        match self {
            CallTarget::Workload(workload) => &workload.name,
            CallTarget::Destinations { name, .. } => name,
        }
    }

    /// Its kind, and how many Dataplanes of this zone it consists of, if that is known without looking.
    pub fn party(&self) -> (&'static str, Option<usize>) {
        match self {
            CallTarget::Workload(workload) => (workload.kind, Some(workload.dataplanes.len())),
            CallTarget::Destinations { kind, .. } => (kind, None),
        }
    }

    /// Returns the ports that are called; only `port` if given. The error lists the ports that exist.
    pub(super) fn at(
        &self,
        mesh: &'a MeshSnapshot,
        port: Option<&str>,
    ) -> Result<Ports<'a>, AccessQuestionError> {
        match self {
            CallTarget::Workload(workload) => {
                let servers = workload.inbounds(mesh, port)?;
                let at_port = |id: &DestinationId| {
                    let destination = mesh.destinations.get(id)?;
                    let at = |server: &Server<'_>| server.service_port() == Some(destination.port);
                    let is_whole = port.is_none() || matches!(id, DestinationId::Tags(_));
                    let is_called = is_whole || servers.iter().any(at);
                    is_called.then_some(destination)
                };
                let destinations = workload.destinations(mesh).iter().filter_map(at_port).collect();
                Ok(Ports { servers: Some(servers), destinations })
            }
            CallTarget::Destinations { kind, name, ports } => {
                let destinations = at_port(ports, port).ok_or_else(|| {
                    let known: Vec<String> = ports.iter().map(|port| section(port)).collect();
                    AccessQuestionError::OtherPorts {
                        kind,
                        name: name.clone(),
                        mesh: mesh.name.clone(),
                        port: port.unwrap_or_default().to_owned(),
                        ports: known.join(", "),
                    }
                })?;
                Ok(Ports { servers: None, destinations })
            }
        }
    }
}

/// Those of the ports that are meant; `None` where there is no such port.
fn at_port<'a>(ports: &[&'a Arc<Destination>], port: Option<&str>) -> Option<Vec<&'a Arc<Destination>>> {
    let Some(wanted) = port else { return Some(ports.to_vec()) };
    let is_meant = |port: &&&'a Arc<Destination>| section(port) == wanted || port.port.to_string() == wanted;
    let meant: Vec<&'a Arc<Destination>> = ports.iter().filter(is_meant).copied().collect();
    (!meant.is_empty()).then_some(meant)
}

/// Returns the name of a port.
fn section(destination: &Destination) -> String {
    match &destination.id {
        DestinationId::Port(kri) => kri.section.clone(),
        DestinationId::Tags(_) => "all ports, which its tags do not tell apart".to_owned(),
    }
}
