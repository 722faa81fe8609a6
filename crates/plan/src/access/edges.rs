//! Calls that a change allows or denies.
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
        target_ref::TargetRefKind,
    },
    labels,
    naming::Kri,
};
use topology::{Affected, AllMeshes, ClientClass, DestinationId, MeshSnapshot, MeshUpdate, matching};

use super::{
    AccessCheck, AccessVerdict, CallerGroup, ClientConnection, Group, InboundRequirement, Server, check,
    grouped,
};
use crate::{
    budget::{Budget, Spent},
    effective,
};

/// Maximum edges listed of each sort.
const MAX_EDGES: usize = 500;
/// Resolving a policy takes as long as looking at about so many rules.
const POLICY: usize = 20;

/// A service as a client sees it: its name and the inbound.
type Service = (String, String);

/// Calls that a change allows (`opened`) and calls that it denies (`closed`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EdgeChanges {
    pub opened: Vec<EdgeChange>,
    pub closed: Vec<EdgeChange>,
    /// More edges may exist than are listed.
    pub truncated: bool,
    /// Number of services that were not looked at.
    pub left_out: usize,
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
    pub before: Option<AccessVerdict>,
    pub after: Option<AccessVerdict>,
    /// The rule that decides afterwards.
    pub rule: Option<Kri>,
    pub reason: String,
}

/// The edges that these updates of a state open and close, as far as the budget goes.
pub fn edges(before: &AllMeshes, updates: &[MeshUpdate], budget: &Budget) -> EdgeChanges {
    let mut edges = EdgeChanges::default();
    for update in updates {
        let before = before.mesh(&update.mesh).map(|mesh| &**mesh);
        let after = update.snapshot.as_deref();
        let touched = ChangedDataplanes::by(update, before, after, budget);
        if !touched.is_empty() {
            in_mesh(&update.mesh, before, after, &touched, budget, &mut edges);
        }
    }
    edges
}

/// Dataplanes whose permissions (`servers`) or certificates (`clients`) may change.
#[derive(Default)]
struct ChangedDataplanes {
    whole_mesh: bool,
    servers: BTreeSet<Arc<str>>,
    clients: BTreeSet<Arc<str>>,
}

impl ChangedDataplanes {
    fn by(
        update: &MeshUpdate,
        before: Option<&MeshSnapshot>,
        after: Option<&MeshSnapshot>,
        budget: &Budget,
    ) -> ChangedDataplanes {
        let Affected {
            whole_mesh,
            policies,
            proxies,
            // Access is between Dataplanes: destinations, names and addresses decide nothing of it.
            destinations: _,
            services: _,
            endpoints: _,
            virtual_hosts: _,
            globals: _,
            zones: _,
            // Consequences of the permissions and Dataplanes above.
            access_rules: _,
            reachability: _,
            reachability_by_default: _,
        } = &update.affected;
        let mut touched = ChangedDataplanes { whole_mesh: *whole_mesh, ..ChangedDataplanes::default() };
        touched.servers.extend(proxies.iter().cloned());
        touched.clients.extend(proxies.iter().cloned());
        for change in policies {
            for (mesh, policy) in [(before, &change.old), (after, &change.new)] {
                let (Some(mesh), Some(policy)) = (mesh, policy) else { continue };
                match policy.resource.kind() {
                    Kind::MeshTrafficPermission if policy.view.top.kind == TargetRefKind::Mesh => {
                        touched.whole_mesh = true;
                    }
                    Kind::MeshTrafficPermission => {
                        match effective::selected_within(mesh, policy, budget) {
                            Ok(some) => touched.servers.extend(some.into_iter().map(|d| d.key.name.clone())),
                            // Any of them may be one that is not looked for any more.
                            Err(Spent) => touched.whole_mesh = true,
                        }
                    }
                    // A permission may be for the proxies that a route selects, which is old and rare.
                    Kind::MeshHTTPRoute => touched.whole_mesh |= by_route(mesh),
                    _ => {}
                }
            }
            if touched.whole_mesh {
                break;
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
struct GraphSide<'a> {
    clients: BTreeMap<String, Clients<'a>>,
    servers: BTreeMap<Service, Vec<Server<'a>>>,
}

impl<'a> GraphSide<'a> {
    fn of(mesh: Option<&'a MeshSnapshot>) -> GraphSide<'a> {
        let Some(mesh) = mesh else { return GraphSide::default() };
        let mut side = GraphSide::default();
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

    /// Returns the client classes that the certificates of a client belong to.
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

/// The servers of a service, those that ask the same of clients together. `None` where there is no such service.
type Servers<'a> = Option<Vec<Group<InboundRequirement, Server<'a>>>>;

/// Takes the servers of a service out of a side. They are kept while the service is looked at: each may ask by a
/// thousand rules.
fn servers<'a>(
    mesh: Option<&MeshSnapshot>,
    side: &mut GraphSide<'a>,
    service: &Service,
    budget: &Budget,
) -> Result<Servers<'a>, Spent> {
    let (Some(mesh), Some(servers)) = (mesh, side.servers.remove(service)) else { return Ok(None) };
    let mut asked = Vec::with_capacity(servers.len());
    for server in servers {
        let policies = mesh.candidates(server.dataplane).count();
        budget.spend(POLICY * (1 + policies))?;
        let requires = InboundRequirement::of(mesh, &server);
        budget.spend(requires.rules())?;
        asked.push((requires, server));
    }
    Ok(Some(grouped(asked.into_iter())))
}

/// May the client call the service? `None` where one of both does not exist.
fn verdict(
    clients: Option<&Clients<'_>>,
    servers: &Servers<'_>,
    budget: &Budget,
) -> Result<Option<(AccessVerdict, AccessCheck)>, Spent> {
    let (Some(clients), Some(servers)) = (clients, servers) else { return Ok(None) };
    let mut made = Vec::new();
    for client in clients {
        for server in servers {
            budget.spend(1 + server.key.rules())?;
            made.push(check(client, server));
        }
    }
    let verdict = AccessVerdict::of(&made);
    // A denial explains what is mixed.
    let worst = made.into_iter().min_by_key(AccessCheck::is_allowed);
    Ok(worst.map(|worst| (verdict, worst)))
}

fn ask_the_same(these: &Servers<'_>, those: &Servers<'_>) -> bool {
    match (these, those) {
        (Some(these), Some(those)) => {
            these.iter().map(|group| &group.key).eq(those.iter().map(|group| &group.key))
        }
        (these, those) => these.is_none() && those.is_none(),
    }
}

fn in_mesh(
    name: &Arc<str>,
    before: Option<&MeshSnapshot>,
    after: Option<&MeshSnapshot>,
    touched: &ChangedDataplanes,
    budget: &Budget,
    edges: &mut EdgeChanges,
) {
    let mut change =
        SideBySide { name, before, after, old: GraphSide::of(before), new: GraphSide::of(after) };
    let old = &change.old;
    let new = &change.new;
    let mut asking = old.services_of(&touched.servers);
    asking.extend(new.services_of(&touched.servers));
    // Clients with other certificates than before. Another instance of one that stays is nothing new.
    let names: BTreeSet<&String> = old.clients.keys().chain(new.clients.keys()).collect();
    let others = |name: &&&String| old.certificates(name) != new.certificates(name);
    let calling: BTreeSet<String> = names.iter().filter(others).map(|name| (*name).clone()).collect();
    let names: BTreeSet<String> = names.into_iter().cloned().collect();
    let mut services = asking;
    if touched.whole_mesh || !calling.is_empty() {
        services.extend(old.servers.keys().chain(new.servers.keys()).cloned());
    }
    for (at, service) in services.iter().enumerate() {
        if change.look_at(service, &names, &calling, budget, edges).is_err() {
            edges.left_out += services.len() - at;
            edges.truncated = true;
            return;
        }
    }
}

/// Both sides of a change of a mesh.
struct SideBySide<'a> {
    name: &'a Arc<str>,
    before: Option<&'a MeshSnapshot>,
    after: Option<&'a MeshSnapshot>,
    old: GraphSide<'a>,
    new: GraphSide<'a>,
}

impl SideBySide<'_> {
    fn look_at(
        &mut self,
        service: &Service,
        names: &BTreeSet<String>,
        calling: &BTreeSet<String>,
        budget: &Budget,
        edges: &mut EdgeChanges,
    ) -> Result<(), Spent> {
        let asked_before = servers(self.before, &mut self.old, service, budget)?;
        let asked_after = servers(self.after, &mut self.new, service, budget)?;
        // Servers that ask the same as before answer the same, except to clients that are others.
        let clients = if ask_the_same(&asked_before, &asked_after) { calling } else { names };
        for client in clients {
            let was = verdict(self.old.clients.get(client), &asked_before, budget)?;
            let is = verdict(self.new.clients.get(client), &asked_after, budget)?;
            add(self.name, client, service, was, is, edges);
        }
        Ok(())
    }
}

/// Orders verdicts by the calls that they allow.
fn rank(verdict: Option<AccessVerdict>) -> u8 {
    match verdict {
        None | Some(AccessVerdict::Denied) => 0,
        Some(AccessVerdict::Mixed) => 1,
        Some(AccessVerdict::Allowed) => 2,
    }
}

fn add(
    mesh: &Arc<str>,
    client: &str,
    (service, inbound): &Service,
    was: Option<(AccessVerdict, AccessCheck)>,
    is: Option<(AccessVerdict, AccessCheck)>,
    edges: &mut EdgeChanges,
) {
    let verdict = |of: &Option<(AccessVerdict, AccessCheck)>| of.as_ref().map(|(verdict, _)| *verdict);
    let before = verdict(&was);
    let after = verdict(&is);
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
