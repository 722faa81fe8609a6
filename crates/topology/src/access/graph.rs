//! Access between services, as a graph.
//!
//! Destinations are grouped by service. A client is the service whose identity it has, or else a node of its own. A
//! service that all clients may call has no edges: there would be one from every client.

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    Kind, labels,
    naming::{Kri, SpiffeId},
};

use crate::{ClientClass, ClientTls, Destination, DestinationAccess, DestinationId, MeshSnapshot};

/// Maximum nodes and edges of a graph.
const MAX_NODES: usize = 1000;
const MAX_EDGES: usize = 5000;
/// Maximum clients listed that may not call a service, where all others may.
const MAX_EXCEPTIONS: usize = 20;

/// Services, and who may call them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// Sorted by identifier.
    pub nodes: Vec<GraphNode>,
    /// From a client to a service it may call; none to services that all clients may call.
    pub edges: Vec<Edge>,
    /// Number of services that all clients may call, listed as nodes or not.
    pub callable_by_all: usize,
    /// More nodes or edges exist than are listed.
    pub truncated: bool,
}

/// A service, or a client that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphNode {
    /// The identifier of a service, its tags, or the identity of a client.
    pub id: String,
    pub name: String,
    /// The kind of a service, `kuma.io/service` or `client`.
    pub kind: &'static str,
    /// Number of proxies that call as this service.
    pub dataplanes: usize,
    pub access: NodeAccess,
    /// The clients that may not call it, where all others may.
    pub except: Vec<String>,
}

/// Clients that may call a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeAccess {
    /// All clients, or nothing here decides it.
    Anyone,
    /// All clients but those listed.
    AnyoneExcept,
    /// The clients from which an edge leads here.
    Listed,
    /// It is a client and no service.
    None,
}

/// A client may call a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: String,
    pub to: String,
}

/// The graph of a mesh; with `only`, that service and those beside it.
pub fn of(mesh: &MeshSnapshot, only: Option<&str>) -> Result<Graph, String> {
    let mut services = Services::of(mesh);
    let clients = services.add_clients(mesh);
    let wanted = only.map(|only| services.named(only)).transpose()?;
    let is_wanted = |id: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(id));
    let mut edges = BTreeSet::new();
    let mut truncated = false;
    for (id, service) in &services.nodes {
        let callers: BTreeSet<&str> = match is_wanted(id) {
            true => service.callers(mesh, &clients),
            // Only those that are drawn can call it here.
            false => service.among(mesh, clients.iter().filter(|(_, node)| is_wanted(node))),
        };
        for from in callers {
            truncated |= edges.len() >= MAX_EDGES;
            if edges.len() < MAX_EDGES {
                edges.insert(Edge { from: from.to_owned(), to: id.clone() });
            }
        }
    }
    let callable_by_all = services.nodes.values().filter(|service| service.is_callable_by_all()).count();
    let connected: BTreeSet<&str> =
        edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    let is_drawn = |id: &str| wanted.is_none() || is_wanted(id) || connected.contains(id);
    let drawn: Vec<(&String, &Service<'_>)> = services.nodes.iter().filter(|(id, _)| is_drawn(id)).collect();
    truncated |= drawn.len() > MAX_NODES;
    let nodes: Vec<GraphNode> =
        drawn.into_iter().take(MAX_NODES).map(|(id, service)| service.node(mesh, id, &clients)).collect();
    let listed: BTreeSet<&str> = nodes.iter().map(|node| node.id.as_str()).collect();
    let both = |edge: &Edge| listed.contains(edge.from.as_str()) && listed.contains(edge.to.as_str());
    let edges = edges.into_iter().filter(both).collect();
    Ok(Graph { nodes, edges, callable_by_all, truncated })
}

/// The node of each class of clients.
type Clients<'a> = BTreeMap<&'a ClientClass, String>;

/// A service, or a client that is none.
#[derive(Default)]
struct Service<'a> {
    name: String,
    kind: &'static str,
    dataplanes: usize,
    /// Access to each of its ports; `None` for one that all clients may call.
    ports: Vec<Option<&'a DestinationAccess>>,
}

impl Service<'_> {
    fn is_callable_by_all(&self) -> bool {
        self.ports.iter().any(|access| access.is_none_or(|access| access.default))
    }

    /// The clients that may call it, where not all clients may.
    fn callers<'c>(&self, mesh: &MeshSnapshot, clients: &'c Clients<'_>) -> BTreeSet<&'c str> {
        if self.is_callable_by_all() {
            return BTreeSet::new();
        }
        let ports = self.ports.iter().flatten();
        let allowed = ports.flat_map(|access| mesh.access.exceptions(access));
        allowed.filter_map(|class| clients.get(class).map(String::as_str)).collect()
    }

    /// Those of these clients that may call it, where not all clients may.
    fn among<'c>(
        &self,
        mesh: &MeshSnapshot,
        clients: impl Iterator<Item = (&'c &'c ClientClass, &'c String)>,
    ) -> BTreeSet<&'c str> {
        if self.is_callable_by_all() {
            return BTreeSet::new();
        }
        let ports = || self.ports.iter().flatten();
        let allowed = |class: &ClientClass| ports().any(|access| mesh.access.allows(access, class));
        clients.filter(|(class, _)| allowed(class)).map(|(_, node)| node.as_str()).collect()
    }

    fn node(&self, mesh: &MeshSnapshot, id: &str, clients: &Clients<'_>) -> GraphNode {
        let mut except = BTreeSet::new();
        // One port that is open to all clients is enough.
        if self.is_callable_by_all() && self.ports.iter().all(Option::is_some) {
            let ports = || self.ports.iter().flatten();
            let refused = |class: &ClientClass| !ports().any(|access| mesh.access.allows(access, class));
            let exceptions = ports().flat_map(|access| mesh.access.exceptions(access));
            let named = exceptions.filter(|class| refused(class)).filter_map(|class| clients.get(class));
            except.extend(named.take(MAX_EXCEPTIONS).cloned());
        }
        let access = match (self.ports.is_empty(), self.is_callable_by_all(), except.is_empty()) {
            (true, ..) => NodeAccess::None,
            (_, true, true) => NodeAccess::Anyone,
            (_, true, false) => NodeAccess::AnyoneExcept,
            (_, false, _) => NodeAccess::Listed,
        };
        GraphNode {
            id: id.to_owned(),
            name: self.name.clone(),
            kind: self.kind,
            dataplanes: self.dataplanes,
            access,
            except: except.into_iter().collect(),
        }
    }
}

/// The nodes, and which identities they have.
#[derive(Default)]
struct Services<'a> {
    nodes: BTreeMap<String, Service<'a>>,
    identities: BTreeMap<String, String>,
}

impl<'a> Services<'a> {
    fn of(mesh: &'a MeshSnapshot) -> Services<'a> {
        let mut services = Services::default();
        for destination in mesh.destinations.values().filter(|destination| destination.exists) {
            let (id, name, kind) = named(destination);
            let access = mesh.access.to(&destination.id);
            let service = services.nodes.entry(id.clone()).or_default();
            (service.name, service.kind) = (name, kind);
            service.ports.push(access);
            services.identify(destination, id);
        }
        services
    }

    /// The SPIFFE IDs that servers of a MeshService, or of tags, present are those that the service has as a client.
    fn identify(&mut self, destination: &Destination, id: String) {
        let ClientTls::Mesh { spiffe_ids, .. } = &destination.tls else { return };
        let is_service = destination.service.as_ref().is_some_and(|key| key.kind == Kind::MeshService);
        for identity in spiffe_ids {
            match is_service {
                true => drop(self.identities.insert(identity.clone(), id.clone())),
                false if destination.service.is_none() => {
                    self.identities.entry(identity.clone()).or_insert_with(|| id.clone());
                }
                false => {}
            }
        }
    }

    /// Adds the clients; those that are no service are nodes of their own.
    fn add_clients<'m>(&mut self, mesh: &'m MeshSnapshot) -> Clients<'m> {
        let mut clients = Clients::new();
        for (class, count) in mesh.access.classes() {
            let ids = || class.client().spiffe_ids.iter().map(SpiffeId::to_string);
            let known = ids().find_map(|id| self.identities.get(&id).cloned());
            let node =
                known.or_else(|| ids().next()).unwrap_or_else(|| "clients without an identity".to_owned());
            let service = self.nodes.entry(node.clone()).or_insert_with(|| Service {
                name: node.rsplit('/').next().unwrap_or_default().to_owned(),
                kind: "client",
                ..Service::default()
            });
            service.dataplanes += count;
            clients.insert(class, node);
        }
        clients
    }

    /// The nodes that a name or an identifier means.
    fn named(&self, wanted: &str) -> Result<BTreeSet<String>, String> {
        let kri = wanted.parse::<Kri>().ok().map(|kri| kri.without_section().to_string());
        let is_meant = |(id, service): &(&String, &Service<'_>)| {
            service.name == wanted || *id == wanted || Some(*id) == kri.as_ref()
        };
        let found: BTreeSet<String> = self.nodes.iter().filter(is_meant).map(|(id, _)| id.clone()).collect();
        if found.is_empty() {
            Err(format!("the mesh has no service and no client of the name {wanted:?}"))
        } else {
            Ok(found)
        }
    }
}

/// Identifier, name and kind of the service that a destination belongs to.
fn named(destination: &Destination) -> (String, String, &'static str) {
    match (&destination.id, &destination.service) {
        (DestinationId::Port(kri), service) => {
            let kind = service.as_ref().map_or("", |key| key.kind.name());
            (kri.without_section().to_string(), kri.name.clone(), kind)
        }
        (DestinationId::Tags(tags), _) => {
            let service = tags.get(labels::SERVICE).cloned().unwrap_or_default();
            (format!("{}={service}", labels::SERVICE), service, labels::SERVICE)
        }
    }
}
