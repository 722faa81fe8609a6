//! Who could call whom that cannot now, and the other way round.
//!
//! Both sides of a change are asked the question that `access` answers, of the same permissions: for every service of
//! which a server's permissions may change, with every client of the mesh; and for every client that comes or goes,
//! with every service. Clients with one certificate are one client, and a service is all inbounds of one name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Inbound, InboundState},
        tags::Tags,
    },
    labels,
    naming::Kri,
};
use topology::{ClientClass, DestinationId, MeshSnapshot, MeshUpdate, State, matching};

use super::{
    CallerGroup, Check, ClientConnection, Group, InboundRequirement, Server, Verdict, check, grouped,
};
use crate::effective;

/// Maximum edges listed of each sort, and maximum checks made for them.
const MAX_EDGES: usize = 500;
const MAX_CHECKS: usize = 100_000;
/// For how many inbounds it is worked out who may call them, before and after together.
const MAX_SERVERS: usize = 4000;

/// A service as a client sees it: its name and the inbound.
type Service = (String, String);

/// Who could call whom because of a change, and who could not any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EdgeChanges {
    pub opened: Vec<EdgeChange>,
    pub closed: Vec<EdgeChange>,
    /// Whether there may be more than is listed.
    pub truncated: bool,
}

/// A client and a service, and whether calls between them are allowed on both sides of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeChange {
    pub mesh: Arc<str>,
    /// The `kuma.io/service` of the client, or the name of its Dataplane.
    pub from: String,
    /// The `kuma.io/service` of the server, or the name of its Dataplane.
    pub to: String,
    /// The inbound that is called, by name or port.
    pub inbound: String,
    /// `None` where one of both does not exist.
    pub before: Option<Verdict>,
    pub after: Option<Verdict>,
    /// The rule that decides afterwards.
    pub rule: Option<Kri>,
    pub reason: String,
}

/// The edges that these updates of a state open and close.
pub fn edges(before: &State, updates: &[MeshUpdate]) -> EdgeChanges {
    let mut edges = EdgeChanges::default();
    for update in updates {
        let before = before.mesh(&update.mesh).map(|mesh| &**mesh);
        let after = update.snapshot.as_deref();
        let touched = Touched::by(update, before, after);
        if !touched.is_empty() {
            in_mesh(&update.mesh, before, after, &touched, &mut edges);
        }
    }
    edges
}

/// Whose permissions, and whose certificates, may be others.
#[derive(Default)]
struct Touched {
    whole_mesh: bool,
    servers: BTreeSet<Arc<str>>,
    clients: BTreeSet<Arc<str>>,
}

impl Touched {
    fn by(update: &MeshUpdate, before: Option<&MeshSnapshot>, after: Option<&MeshSnapshot>) -> Touched {
        let affected = &update.affected;
        let mut touched = Touched { whole_mesh: affected.whole_mesh, ..Touched::default() };
        touched.servers.extend(affected.proxies.iter().cloned());
        touched.clients.extend(affected.proxies.iter().cloned());
        for change in &affected.policies {
            for (mesh, policy) in [(before, &change.old), (after, &change.new)] {
                let (Some(mesh), Some(policy)) = (mesh, policy) else { continue };
                match policy.resource.kind() {
                    Kind::MeshTrafficPermission => {
                        let selected = effective::selected(mesh, &policy.resource);
                        touched.servers.extend(selected.into_iter().map(|d| d.key.name.clone()));
                    }
                    // A permission may be for the proxies that a route selects, which is old and rare.
                    Kind::MeshHTTPRoute => touched.whole_mesh |= by_route(mesh),
                    _ => {}
                }
            }
        }
        touched
    }

    fn is_empty(&self) -> bool {
        !self.whole_mesh && self.servers.is_empty() && self.clients.is_empty()
    }
}

fn by_route(mesh: &MeshSnapshot) -> bool {
    let permission = |key: &&resources::Key| key.kind == Kind::MeshTrafficPermission;
    mesh.selections.referring_to_routes().any(|key| permission(&key))
}

/// The clients of one name, each certificate once.
type Clients<'a> = Vec<CallerGroup<'a>>;

/// The clients and servers of a mesh on one side of a change.
#[derive(Default)]
struct Side<'a> {
    clients: BTreeMap<String, Clients<'a>>,
    servers: BTreeMap<Service, Vec<Server<'a>>>,
}

impl<'a> Side<'a> {
    fn of(mesh: Option<&'a MeshSnapshot>) -> Side<'a> {
        let Some(mesh) = mesh else { return Side::default() };
        let mut side = Side::default();
        let certified =
            mesh.dataplanes.values().map(|dataplane| (ClientClass::of(mesh, dataplane), dataplane));
        for client in grouped(certified) {
            side.clients.entry(client_name(&client)).or_default().push(client);
        }
        for dataplane in mesh.dataplanes.values() {
            for inbound in matching::inbounds(dataplane) {
                if inbound.state == InboundState::Ignored {
                    continue;
                }
                let service = (server_name(dataplane, inbound), inbound.section_name());
                let connection = match inbound.tags.get(labels::SERVICE) {
                    Some(name) => {
                        let tags = Tags::from([(labels::SERVICE.to_owned(), name.clone())]);
                        ClientConnection::to(mesh, &DestinationId::Tags(Arc::new(tags)))
                    }
                    None => ClientConnection::default(),
                };
                side.servers.entry(service).or_default().push(Server { dataplane, inbound, connection });
            }
        }
        side
    }

    /// What the certificates of a client say.
    fn certificates(&self, name: &str) -> BTreeSet<&ClientClass> {
        self.clients.get(name).into_iter().flatten().map(|client| &client.key).collect()
    }

    /// The services that some of these Dataplanes belong to.
    fn services_of(&self, names: &BTreeSet<Arc<str>>) -> BTreeSet<Service> {
        let of = |servers: &[Server<'_>]| servers.iter().any(|s| names.contains(&s.dataplane.key.name));
        self.servers.iter().filter(|(_, servers)| of(servers)).map(|(service, _)| service.clone()).collect()
    }
}

fn client_name(client: &CallerGroup<'_>) -> String {
    let services = client.key.client().tags.get(labels::SERVICE).into_iter().flatten();
    let names: Vec<&str> = services.map(String::as_str).collect();
    if names.is_empty() { client.first.name().to_owned() } else { names.join(",") }
}

fn server_name(dataplane: &Resource, inbound: &Inbound) -> String {
    inbound.tags.get(labels::SERVICE).cloned().unwrap_or_else(|| dataplane.name().to_owned())
}

/// What servers of a service ask of clients, each answer once.
struct ServerRequirements<'a> {
    groups: BTreeMap<Service, Vec<Group<InboundRequirement, Server<'a>>>>,
}

impl<'a> ServerRequirements<'a> {
    fn of(
        mesh: Option<&MeshSnapshot>,
        side: &mut Side<'a>,
        services: &BTreeSet<Service>,
    ) -> ServerRequirements<'a> {
        let mut groups = BTreeMap::new();
        let Some(mesh) = mesh else { return ServerRequirements { groups } };
        for service in services {
            let Some(servers) = side.servers.remove(service) else { continue };
            let asked = servers.into_iter().map(|server| (InboundRequirement::of(mesh, &server), server));
            groups.insert(service.clone(), grouped(asked));
        }
        ServerRequirements { groups }
    }

    /// May the client call the service? `None` where there is no such service.
    fn verdict(
        &self,
        clients: Option<&Clients<'_>>,
        service: &Service,
        checks: &mut usize,
    ) -> Option<(Verdict, Check)> {
        let (clients, servers) = (clients?, self.groups.get(service)?);
        let pairs = clients.iter().flat_map(|client| servers.iter().map(move |server| (client, server)));
        let made: Vec<Check> = pairs.map(|(client, server)| check(client, server)).collect();
        *checks += made.len();
        let verdict = Verdict::of(&made);
        // A denial explains what is mixed.
        let worst = made.into_iter().min_by_key(Check::is_allowed)?;
        Some((verdict, worst))
    }
}

fn in_mesh(
    name: &Arc<str>,
    before: Option<&MeshSnapshot>,
    after: Option<&MeshSnapshot>,
    touched: &Touched,
    edges: &mut EdgeChanges,
) {
    let (mut old, mut new) = (Side::of(before), Side::of(after));
    let mut asking = old.services_of(&touched.servers);
    asking.extend(new.services_of(&touched.servers));
    // Clients with other certificates than before. Another instance of one that stays is nothing new.
    let names: BTreeSet<&String> = old.clients.keys().chain(new.clients.keys()).collect();
    let others = |name: &&&String| old.certificates(name) != new.certificates(name);
    let calling: BTreeSet<String> = names.iter().filter(others).map(|name| (*name).clone()).collect();
    let names: BTreeSet<String> = names.into_iter().cloned().collect();
    let mut services = asking.clone();
    if touched.whole_mesh || !calling.is_empty() {
        services.extend(old.servers.keys().chain(new.servers.keys()).cloned());
    }
    // A service that is not looked at is left out on both sides.
    let size = |side: &Side<'_>, service: &Service| side.servers.get(service).map_or(0, Vec::len);
    let mut room = MAX_SERVERS;
    services.retain(|service| {
        let servers = size(&old, service) + size(&new, service);
        let fits = servers <= room;
        room -= if fits { servers } else { 0 };
        edges.truncated |= !fits;
        fits
    });
    let asked_before = ServerRequirements::of(before, &mut old, &services);
    let asked_after = ServerRequirements::of(after, &mut new, &services);
    let mut checks = 0;
    for service in &services {
        let wanted = |client: &&String| {
            touched.whole_mesh || asking.contains(service) || calling.contains(client.as_str())
        };
        for client in names.iter().filter(wanted) {
            if checks > MAX_CHECKS {
                edges.truncated = true;
                return;
            }
            let was = asked_before.verdict(old.clients.get(client), service, &mut checks);
            let is = asked_after.verdict(new.clients.get(client), service, &mut checks);
            add(name, client, service, was, is, edges);
        }
    }
}

/// How much a verdict lets through.
fn rank(verdict: Option<Verdict>) -> u8 {
    match verdict {
        None | Some(Verdict::Denied) => 0,
        Some(Verdict::Mixed) => 1,
        Some(Verdict::Allowed) => 2,
    }
}

fn add(
    mesh: &Arc<str>,
    client: &str,
    (service, inbound): &Service,
    was: Option<(Verdict, Check)>,
    is: Option<(Verdict, Check)>,
    edges: &mut EdgeChanges,
) {
    let verdict = |of: &Option<(Verdict, Check)>| of.as_ref().map(|(verdict, _)| *verdict);
    let (before, after) = (verdict(&was), verdict(&is));
    let list = match rank(after).cmp(&rank(before)) {
        std::cmp::Ordering::Equal => return,
        std::cmp::Ordering::Greater => &mut edges.opened,
        std::cmp::Ordering::Less => &mut edges.closed,
    };
    if list.len() >= MAX_EDGES {
        edges.truncated = true;
        return;
    }
    let (rule, reason) = match is {
        Some((_, check)) => (check.rule, check.reason),
        None => (None, "there would be no such client, or no such service".to_owned()),
    };
    list.push(EdgeChange {
        mesh: mesh.clone(),
        from: client.to_owned(),
        to: service.clone(),
        inbound: inbound.clone(),
        before,
        after,
        rule,
        reason,
    });
}
