//! May one workload call another? Asked of the same permissions that proxies enforce.
//!
//! Clients with the same certificate, and inbounds with the same permissions, give the same answer, so
//! they are one client and one server here: a service costs what differs, not how many instances it has.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use api::inspect::reach::{Action, Check, Party, Question, Reach, Verdict};
use plan::{Effective, ServerTls};
use policy::{Client, Effect, Permissions};
use resources::{
    Key, Kind, Resource,
    kinds::{
        dataplane::{Inbound, InboundState},
        mesh_service::MeshService,
        tags::{self, Tags},
    },
    labels,
    naming::{SpiffeId, section::name_or_port},
};
use store::Snapshot;
use topology::{
    ClientClass, ClientTls, DestinationId, MeshSnapshot,
    matching::{self, MemberSelector},
    reachability::explain,
};

use super::reachability::explained;

/// The tags and the identities in a certificate.
pub(crate) type Certificate = (BTreeMap<String, BTreeSet<String>>, BTreeSet<SpiffeId>);

/// Maximum checks of one answer.
const MAX_CHECKS: usize = 1000;
/// Maximum inbounds of one answer.
const MAX_SERVERS: usize = 1000;
/// The error for a port that does not exist lists at most this many ports that do.
const MAX_PORTS: usize = 20;

/// Answers the question, or says why it makes no sense.
pub fn answer(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    question: &Question,
    trims: impl Fn(&Resource, &[DestinationId]) -> bool,
) -> Result<Reach, String> {
    let from = Workload::find(snapshot, mesh, &question.from)?;
    let to = Workload::find(snapshot, mesh, &question.to)?;
    let (callers, called, ids) = (from.party(), to.party(), to.destinations(mesh));
    let mut servers = to.inbounds(mesh, question.port.as_deref())?;
    let mut truncated = servers.len() > MAX_SERVERS;
    servers.truncate(MAX_SERVERS);
    let clients = grouped(from.dataplanes.into_iter().map(|d| (certificate(mesh, d), d)));
    let routes: Vec<Arc<Resource>> = mesh.routes().cloned().collect();
    let selector = policy::PolicySelector { routes: &routes, ..policy::PolicySelector::default() };
    let servers: Vec<(InboundRequirement, Server<'_>)> = servers
        .into_iter()
        .map(|server| (InboundRequirement::of(mesh, &selector, &server), server))
        .collect();
    let asked: Vec<explain::Server<'_>> =
        servers.iter().map(|(requires, server)| server.asked(requires)).collect();
    let servers = grouped(servers.into_iter());
    let pairs = || clients.iter().flat_map(|client| servers.iter().map(move |server| (client, server)));
    truncated |= pairs().nth(MAX_CHECKS).is_some();
    let checks: Vec<Check> = pairs().take(MAX_CHECKS).map(|(client, server)| check(client, server)).collect();
    let verdict = match (checks.iter().any(|check| check.allowed), checks.iter().all(|check| check.allowed)) {
        (_, true) => Verdict::Allowed,
        (true, false) => Verdict::Mixed,
        (false, false) => Verdict::Denied,
    };
    // Explained for a client that gets in, if there is one.
    let gets_in = checks.iter().position(|check| check.allowed).map(|at| at / servers.len().max(1));
    let client = clients.get(gets_in.unwrap_or(0)).or(clients.first());
    let client =
        client.ok_or_else(|| format!("{} {:?} has no Dataplane here", callers.kind, callers.name))?;
    let (tags, spiffe_ids) = client.key.clone();
    let certificate = Client { tags, spiffe_ids, sni: None };
    let trims = trims(client.first, &ids);
    let call = explain::Call { mesh, client: &certificate, destination: &called.name, trims };
    let reachability = explained(explain::explain(&call, &asked), truncated);
    Ok(Reach { from: callers, to: called, verdict, checks, truncated, reachability })
}

/// A first value, and how many there are like it.
pub(crate) struct Group<K, V> {
    pub(crate) key: K,
    pub(crate) first: V,
    size: usize,
}

/// Values with equal keys together, in the order in which the keys came.
pub(crate) fn grouped<K: Hash + Eq + Clone, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<Group<K, V>> {
    let mut index: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<Group<K, V>> = Vec::new();
    for (key, first) in pairs {
        match index.get(&key).and_then(|&at| groups.get_mut(at)) {
            Some(group) => group.size += 1,
            None => {
                index.insert(key.clone(), groups.len());
                groups.push(Group { key, first, size: 1 });
            }
        }
    }
    groups
}

/// What was meant by a name.
struct Workload<'a> {
    kind: &'static str,
    name: String,
    dataplanes: Vec<&'a Arc<Resource>>,
    service: Option<(&'a Key, &'a MeshService, MemberSelector)>,
}

impl<'a> Workload<'a> {
    fn find(snapshot: &'a Snapshot, mesh: &'a MeshSnapshot, name: &str) -> Result<Workload<'a>, String> {
        let workload = |kind, dataplanes| Workload { kind, name: name.to_owned(), dataplanes, service: None };
        if let Some(dataplane) = mesh.dataplanes.get(name) {
            return Ok(workload(Kind::Dataplane.name(), vec![dataplane]));
        }
        let stored = snapshot.get(&Key::new(Kind::MeshService, &mesh.name, name));
        if let Some((resource, spec)) = stored.and_then(|r| Some((r, r.spec.get::<MeshService>()?))) {
            let selector = MemberSelector::of_service(resource, spec);
            let members: Vec<_> = mesh.dataplanes.values().filter(|d| selector.selects(d)).collect();
            if members.is_empty() {
                return Err(format!("MeshService {name:?} of mesh {:?} has no Dataplane here", mesh.name));
            }
            let service = Some((&resource.key, spec, selector));
            return Ok(Workload { service, ..workload(Kind::MeshService.name(), members) });
        }
        let has_tag = |dataplane: &&Arc<Resource>| {
            let services = Client::of_dataplane(dataplane).tags.remove(labels::SERVICE);
            services.is_some_and(|services| services.contains(name))
        };
        let members: Vec<_> = mesh.dataplanes.values().filter(has_tag).collect();
        if members.is_empty() {
            return Err(format!(
                "mesh {:?} has no Dataplane and no MeshService of the name {name:?}, and no Dataplane with \
                 the tag {}={name}",
                mesh.name,
                labels::SERVICE
            ));
        }
        Ok(workload(labels::SERVICE, members))
    }

    /// The destinations that it is called as.
    fn destinations(&self, mesh: &MeshSnapshot) -> Vec<DestinationId> {
        match &self.service {
            Some((key, ..)) => mesh.services.get(*key).map(|ports| ports.to_vec()).unwrap_or_default(),
            None if self.kind == labels::SERVICE => {
                vec![DestinationId::Tags(Arc::new(Tags::from([(
                    labels::SERVICE.to_owned(),
                    self.name.clone(),
                )])))]
            }
            None => Vec::new(),
        }
    }

    fn party(&self) -> Party {
        Party { kind: self.kind, name: self.name.clone(), dataplanes: self.dataplanes.len() }
    }

    /// Where the workload is called; only at `port` when one is given.
    fn inbounds(self, mesh: &MeshSnapshot, port: Option<&str>) -> Result<Vec<Server<'a>>, String> {
        let Workload { kind, name, .. } = &self;
        let mut servers = match &self.service {
            Some((key, service, selector)) => self.behind(mesh, key, service, selector),
            None if *kind == labels::SERVICE => self.tagged(mesh),
            None => self.listening(|_| true, &ClientConnection::default()),
        };
        if servers.is_empty() {
            let reason = "it is a gateway, or none of its inbounds is ready";
            return Err(format!("{kind} {name:?} of mesh {:?} takes no calls now: {reason}", mesh.name));
        }
        let Some(port) = port else { return Ok(servers) };
        let ports: BTreeSet<String> = servers.iter().map(Server::port).collect();
        servers.retain(|server| server.is_at(port));
        if servers.is_empty() {
            let ports: Vec<String> = ports.into_iter().take(MAX_PORTS).collect();
            return Err(format!(
                "{kind} {name:?} of mesh {:?} takes no calls at port {port:?} now; it does at {}",
                mesh.name,
                ports.join(", ")
            ));
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
        let tags = Tags::from([(labels::SERVICE.to_owned(), self.name.clone())]);
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
            let mut connection =
                destinations.iter().find(number).map(|id| ClientConnection::to(mesh, id)).unwrap_or_default();
            connection.port = Some((name_or_port(port.name.as_deref(), port.port), port.port));
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

/// How clients come to a server.
#[derive(Clone, Default)]
pub(crate) struct ClientConnection {
    /// Clients come without TLS, because not every server is ready for it.
    plain: bool,
    /// The server name they ask for.
    sni: Option<String>,
    /// Name and number of the service's port.
    port: Option<(String, u32)>,
}

impl ClientConnection {
    pub(crate) fn to(mesh: &MeshSnapshot, destination: &DestinationId) -> ClientConnection {
        match mesh.destinations.get(destination).map(|destination| &destination.tls) {
            Some(ClientTls::Mesh { sni, .. }) => {
                ClientConnection { sni: Some(sni.clone()), ..ClientConnection::default() }
            }
            Some(ClientTls::Off) => ClientConnection { plain: true, ..ClientConnection::default() },
            None => ClientConnection::default(),
        }
    }
}

/// An inbound that is called.
pub(crate) struct Server<'a> {
    pub(crate) dataplane: &'a Arc<Resource>,
    pub(crate) inbound: &'a Inbound,
    pub(crate) connection: ClientConnection,
}

impl<'a> Server<'a> {
    /// What it requires, for an explanation.
    fn asked(&self, requires: &InboundRequirement) -> explain::Server<'a> {
        explain::Server {
            place: explain::Place::Inbound(self.dataplane, self.inbound),
            requires: explain::Requirement::from(requires),
            server_names: self.connection.sni.iter().cloned().collect(),
        }
    }

    /// What clients call it: the port of the service, or else the inbound.
    fn port(&self) -> String {
        let of_service = self.connection.port.as_ref().map(|(name, _)| name.clone());
        of_service.unwrap_or_else(|| self.inbound.section_name())
    }

    fn is_at(&self, port: &str) -> bool {
        let of_service = self.connection.port.as_ref();
        self.inbound.section_name() == port
            || of_service.is_some_and(|(name, number)| name == port || number.to_string() == port)
    }
}

/// What a server asks of its clients.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum InboundRequirement {
    /// Nothing, because there is no mTLS to tell clients apart by.
    Nothing,
    /// Nothing of clients without TLS, and these clients come without.
    NothingPlain,
    Permission {
        permissions: Permissions,
        sni: Option<String>,
        permissive: bool,
    },
}

impl InboundRequirement {
    pub(crate) fn of(
        mesh: &MeshSnapshot,
        selector: &policy::PolicySelector<'_>,
        server: &Server<'_>,
    ) -> InboundRequirement {
        let effective = Effective::of(mesh, server.dataplane);
        let tls = effective.server_tls(server.inbound);
        if tls == ServerTls::Off {
            return InboundRequirement::Nothing;
        }
        if server.connection.plain {
            return InboundRequirement::NothingPlain;
        }
        let policies = mesh.policies_of(Kind::MeshTrafficPermission);
        InboundRequirement::Permission {
            permissions: policy::permission::resolve(policies, server.dataplane, server.inbound, selector),
            sni: server.connection.sni.clone(),
            permissive: tls == ServerTls::Permissive,
        }
    }
}

impl From<&InboundRequirement> for explain::Requirement {
    fn from(requires: &InboundRequirement) -> explain::Requirement {
        match requires {
            InboundRequirement::Nothing | InboundRequirement::NothingPlain => explain::Requirement::Nothing,
            InboundRequirement::Permission { permissions, .. } => {
                explain::Requirement::Permission(permissions.clone())
            }
        }
    }
}

/// What the certificate of a proxy says: who it is by its identity, or by the mesh.
pub(crate) fn certificate(mesh: &MeshSnapshot, dataplane: &Resource) -> Certificate {
    let Client { tags, spiffe_ids, .. } = ClientClass::of(mesh, dataplane).client().clone();
    (tags, spiffe_ids)
}

/// Whether a client may call a server.
pub(crate) fn check(
    client: &Group<Certificate, &Arc<Resource>>,
    server: &Group<InboundRequirement, Server<'_>>,
) -> Check {
    let (tags, spiffe_ids) = client.key.clone();
    let mut certificate = Client { tags, spiffe_ids, sni: None };
    let spiffe_id = certificate.spiffe_ids.first().map(SpiffeId::to_string).unwrap_or_default();
    let (effect, rule, reason) = match &server.key {
        InboundRequirement::Nothing => {
            (Effect::Allow, None, "allowed: the mesh has no mTLS, so nobody is asked".to_owned())
        }
        InboundRequirement::NothingPlain => {
            let reason = "allowed: mTLS is PERMISSIVE and not every server has a certificate yet, so clients come \
                          without TLS and nobody is asked";
            (Effect::Allow, None, reason.to_owned())
        }
        InboundRequirement::Permission { permissive, .. } if spiffe_id.is_empty() => {
            (Effect::Deny, None, without_identity() + besides(*permissive))
        }
        InboundRequirement::Permission { permissions, sni, permissive } => {
            certificate.sni.clone_from(sni);
            let decision = permissions.decide(&certificate);
            let besides = besides(*permissive && !decision.is_allowed());
            (decision.effect, decision.origin, permissions.explain(&certificate) + besides)
        }
    };
    let kri = |resource: &Resource, section: &str| resource.kri(section).map(|kri| kri.to_string());
    let section = server.first.inbound.section_name();
    Check {
        client: kri(client.first, "").unwrap_or_default(),
        clients: client.size,
        spiffe_id,
        server: kri(server.first.dataplane, &section).unwrap_or_default(),
        servers: server.size,
        action: match effect {
            Effect::Allow => Action::Allow,
            Effect::Deny => Action::Deny,
            Effect::AllowWithShadowDeny => Action::AllowWithShadowDeny,
        },
        allowed: effect != Effect::Deny,
        rule: rule.map(|rule| rule.to_string()),
        reason,
    }
}

fn without_identity() -> String {
    let (tag, label) = (labels::SERVICE, labels::WORKLOAD);
    format!(
        "denied: the client's certificate names no service, because none of its inbounds has the tag {tag} and it \
         has no label {label}"
    )
}

/// What is to be known about a server that refuses.
fn besides(permissive: bool) -> &'static str {
    if permissive { "; mTLS is PERMISSIVE, so whoever comes without TLS gets in all the same" } else { "" }
}
