//! May one workload call another? Decided by the same permissions that proxies enforce.
//!
//! Clients with the same certificate, and inbounds with the same permissions, get the same answer, so
//! they are one client and one server here: a service costs what differs, not how many instances it has.

mod called;
mod decision;
mod edges;
mod error;
mod servers;
mod shadowed;
mod workload;

use std::{collections::HashMap, hash::Hash, sync::Arc};

use policy::{Client, Effect, Permissions};
use resources::{
    Key, Resource,
    kinds::dataplane::Inbound,
    labels,
    naming::{Kri, SpiffeId},
};
use topology::{
    ClientClass, ClientTls, Destination, DestinationId, MeshSnapshot,
    access::explain::{self, Call, Explanation, Requirement, ServerDecision},
};

use crate::{Effective, ServerTls};

pub use called::CallTarget;
pub use decision::{CallDecision, call_decision, why_not_offered};
pub use edges::{EdgeChange, EdgeChanges, edges};
pub use error::AccessQuestionError;
pub use servers::{destinations, inbounds, servers, serving};
pub use shadowed::ShadowedClients;
pub use workload::NamedWorkload;

/// Finds a resource by its key. The services that a mesh offers are in its snapshot, their selectors are not.
pub type Lookup<'a, 'l> = &'l dyn Fn(&Key) -> Option<&'a Arc<Resource>>;

/// Maximum checks of one answer.
const MAX_CHECKS: usize = 1000;
/// Maximum inbounds of one answer.
const MAX_SERVERS: usize = 1000;

/// Decision about calls from clients to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessVerdict {
    Allowed,
    /// Some may, or all may call some.
    Mixed,
    Denied,
}

impl AccessVerdict {
    /// Without any check nothing is denied.
    pub fn of(checks: &[AccessCheck]) -> AccessVerdict {
        match checks.iter().filter(|check| check.is_allowed()).count() {
            allowed if allowed == checks.len() => AccessVerdict::Allowed,
            0 => AccessVerdict::Denied,
            _ => AccessVerdict::Mixed,
        }
    }
}

/// Decision about clients with one certificate at servers with one requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessCheck {
    /// One of the clients with the same certificate.
    pub client: Option<Kri>,
    pub clients: usize,
    /// Empty where the certificate names no identity.
    pub spiffe_id: String,
    /// One of the inbounds that require the same, with its Dataplane; in words where it is not one of this zone.
    pub server: String,
    pub servers: usize,
    pub effect: Effect,
    /// The rule that decides; `None` where no rule is about the client.
    pub rule: Option<Kri>,
    pub reason: String,
}

impl AccessCheck {
    pub fn is_allowed(&self) -> bool {
        self.effect != Effect::Deny
    }
}

/// Decision about calls from one workload to another, with the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessDecision {
    pub verdict: AccessVerdict,
    pub checks: Vec<AccessCheck>,
    /// More clients or servers exist than were checked.
    pub truncated: bool,
    pub explanation: Explanation,
}

/// Decides whether a workload may call a port of something, or all of its ports. `trims` returns true if the
/// proxy of a client has no outbounds for these destinations. The error explains a question that makes no
/// sense.
pub fn between(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    (from, to): (&NamedWorkload<'_>, &CallTarget<'_>),
    port: Option<&str>,
    trims: impl FnOnce(&Resource, &[DestinationId]) -> bool,
) -> Result<AccessDecision, AccessQuestionError> {
    let clients: Vec<CallerGroup<'_>> =
        grouped(from.dataplanes.iter().map(|&dataplane| (ClientClass::of(mesh, dataplane), dataplane)));
    let Ports { servers: own, destinations } = to.at(mesh, port)?;
    // Tags do not tell ports apart: what is asked about one port is answered by its inbounds.
    let by_tags = || destinations.iter().any(|destination| matches!(destination.id, DestinationId::Tags(_)));
    let (servers, mut truncated) = if destinations.is_empty() || port.is_some() && by_tags() {
        let servers = own.iter().flatten().take(MAX_SERVERS);
        let servers = servers.map(|server| server.to_explain(&InboundRequirement::of(mesh, server)));
        (servers.collect(), own.as_ref().is_some_and(|own| own.len() > MAX_SERVERS))
    } else {
        servers(lookup, mesh, &destinations)
    };
    let ids: Vec<DestinationId> = destinations.iter().map(|destination| destination.id.clone()).collect();
    let serving = serving(lookup, mesh, &destinations);
    let call = |client, trims| Call {
        mesh,
        client,
        destination: to.name(),
        destinations: &ids,
        serving: &serving,
        trims,
    };
    let checks = match own {
        Some(own) => {
            truncated |= own.len() > MAX_SERVERS;
            let own = own.into_iter().take(MAX_SERVERS);
            let own = grouped(own.map(|server| (InboundRequirement::of(mesh, &server), server)));
            let pairs = || clients.iter().flat_map(|client| own.iter().map(move |server| (client, server)));
            truncated |= pairs().nth(MAX_CHECKS).is_some();
            pairs().take(MAX_CHECKS).map(|(client, server)| check(client, server)).collect()
        }
        None => {
            let mut checks: Vec<AccessCheck> = Vec::new();
            for client in &clients {
                let answers = explain::explain(&call(&client.key, false), &servers).answers;
                checks.extend(answers.into_iter().map(|answer| of_answer(client, answer)));
            }
            truncated |= checks.len() > MAX_CHECKS;
            checks.truncate(MAX_CHECKS);
            checks
        }
    };
    // Explained for a client that gets in, if there is one.
    let gets_in = checks.iter().find(|check: &&AccessCheck| check.is_allowed()).map(|check| &check.client);
    let client = clients.iter().find(|client| gets_in == Some(&client.first.kri(""))).or(clients.first());
    let client = client
        .ok_or_else(|| AccessQuestionError::NoDataplane { kind: from.kind, name: from.name.clone() })?;
    let trims = trims(client.first, &ids);
    let explanation = explain::explain(&call(&client.key, trims), &servers);
    Ok(AccessDecision { verdict: AccessVerdict::of(&checks), checks, truncated, explanation })
}

/// Clients with one certificate.
type CallerGroup<'a> = Group<ClientClass, &'a Arc<Resource>>;

/// Ports that are called.
#[derive(Debug)]
struct Ports<'a> {
    /// The inbounds of a workload of this zone that take calls now; `None` for what is asked as a destination.
    servers: Option<Vec<Server<'a>>>,
    /// Destinations as which clients call it; none for a Dataplane.
    destinations: Vec<&'a Arc<Destination>>,
}

/// A first value, and how many there are like it.
#[derive(Debug)]
struct Group<K, V> {
    key: K,
    first: V,
    size: usize,
}

/// Values with equal keys together, in the order in which the keys came.
fn grouped<K: Hash + Eq + Clone, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<Group<K, V>> {
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

/// Connection of clients to a server.
#[derive(Debug, Clone, Default)]
struct ClientConnection {
    /// Clients connect without TLS, because not every server is ready for it.
    plain: bool,
    /// The server name they ask for.
    sni: Option<String>,
    /// Name and number of the service's port.
    port: Option<(String, u32)>,
}

impl ClientConnection {
    fn to(mesh: &MeshSnapshot, destination: &DestinationId) -> ClientConnection {
        match mesh.destinations.get(destination).map(|destination| &destination.tls) {
            Some(ClientTls::Mesh { sni, .. }) => {
                ClientConnection { sni: Some(sni.clone()), ..ClientConnection::default() }
            }
            Some(ClientTls::Off) => ClientConnection { plain: true, ..ClientConnection::default() },
            None => ClientConnection::default(),
        }
    }
}

/// An inbound, and how clients connect to it.
#[derive(Debug)]
struct Server<'a> {
    dataplane: &'a Arc<Resource>,
    inbound: &'a Inbound,
    connection: ClientConnection,
}

impl<'a> Server<'a> {
    fn to_explain(&self, requires: &InboundRequirement) -> explain::AskedServer<'a> {
        explain::AskedServer {
            place: explain::EnforcementPoint::Inbound(self.dataplane, self.inbound),
            requires: Requirement::from(requires),
            permissive: requires.is_permissive(),
            server_names: self.connection.sni.iter().cloned().collect(),
        }
    }

    /// The name clients have for it: the port of the service, or else the inbound.
    fn port(&self) -> String {
        let of_service = self.connection.port.as_ref().map(|(name, _)| name.clone());
        of_service.unwrap_or_else(|| self.inbound.section_name())
    }

    /// The number of the service's port.
    fn service_port(&self) -> Option<u32> {
        self.connection.port.as_ref().map(|(_, number)| *number)
    }

    fn is_at(&self, port: &str) -> bool {
        let of_service = self.connection.port.as_ref();
        self.inbound.section_name() == port
            || of_service.is_some_and(|(name, number)| name == port || number.to_string() == port)
    }
}

/// Requirement of an inbound for its clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum InboundRequirement {
    /// Nothing, because there is no mTLS to tell clients apart by.
    Nothing,
    /// Nothing of clients without TLS, and these clients connect without.
    NothingPlain,
    /// A condition that no client meets: the server waits for its certificate.
    Closed,
    Permission {
        permissions: Permissions,
        sni: Option<String>,
        permissive: bool,
    },
}

impl InboundRequirement {
    fn of(mesh: &MeshSnapshot, server: &Server<'_>) -> InboundRequirement {
        let effective = Effective::of(mesh, server.dataplane);
        let tls = effective.server_tls(server.inbound);
        match effective.permissions(server.inbound) {
            _ if tls == ServerTls::Off => InboundRequirement::Nothing,
            _ if tls == ServerTls::Closed => InboundRequirement::Closed,
            _ if server.connection.plain => InboundRequirement::NothingPlain,
            None => InboundRequirement::Nothing,
            Some(permissions) => InboundRequirement::Permission {
                permissions,
                sni: server.connection.sni.clone(),
                permissive: tls == ServerTls::Permissive,
            },
        }
    }
}

impl InboundRequirement {
    /// Returns the number of rules that decide.
    fn rules(&self) -> usize {
        match self {
            InboundRequirement::Nothing | InboundRequirement::NothingPlain | InboundRequirement::Closed => 0,
            InboundRequirement::Permission { permissions, .. } => permissions.rules.len(),
        }
    }

    /// Clients without TLS are accepted, whatever the inbound requires of others.
    fn is_permissive(&self) -> bool {
        matches!(self, InboundRequirement::Permission { permissive: true, .. })
    }
}

impl From<&InboundRequirement> for Requirement {
    fn from(requires: &InboundRequirement) -> Requirement {
        match requires {
            InboundRequirement::Nothing | InboundRequirement::NothingPlain => Requirement::Nothing,
            InboundRequirement::Closed => Requirement::Permission(Permissions::default().into()),
            InboundRequirement::Permission { permissions, .. } => {
                Requirement::Permission(permissions.clone().into())
            }
        }
    }
}

/// Decides calls of these clients to these servers.
fn check(client: &CallerGroup<'_>, server: &Group<InboundRequirement, Server<'_>>) -> AccessCheck {
    let certificate = client.key.client();
    let spiffe_id = certificate.spiffe_ids.first().map(SpiffeId::to_string).unwrap_or_default();
    let (effect, rule, reason) = match &server.key {
        InboundRequirement::Nothing => {
            let reason = "allowed: the mesh has no mTLS, so servers do not require client certificates";
            (Effect::Allow, None, reason.to_owned())
        }
        InboundRequirement::NothingPlain => {
            let reason = "allowed: mTLS is PERMISSIVE and not every server has a certificate yet, so \
            clients connect without TLS and servers do not require certificates";
            (Effect::Allow, None, reason.to_owned())
        }
        InboundRequirement::Closed => {
            let reason = "denied: the server has no certificate yet, because the MeshIdentity that selects it cannot be \
            used, and it accepts no client without TLS";
            (Effect::Deny, None, reason.to_owned())
        }
        InboundRequirement::Permission { permissive, .. } if client.key.is_plain() => {
            let effect = if *permissive { Effect::Allow } else { Effect::Deny };
            (effect, None, explain::without_certificate(*permissive).to_owned())
        }
        InboundRequirement::Permission { permissive, .. } if spiffe_id.is_empty() => {
            (Effect::Deny, None, without_identity() + note(*permissive))
        }
        InboundRequirement::Permission { permissions, sni, permissive } => {
            let certificate = Client { sni: sni.clone(), ..certificate.clone() };
            let decision = permissions.decide(&certificate);
            let note = note(*permissive && !decision.is_allowed());
            (decision.effect, decision.origin, permissions.explain(&certificate) + note)
        }
    };
    AccessCheck {
        client: client.first.kri(""),
        clients: client.size,
        spiffe_id,
        server: inbound_name(server.first.dataplane, server.first.inbound),
        servers: server.size,
        effect,
        rule,
        reason,
    }
}

/// Turns the answer of servers that are not inbounds of this zone into a check.
fn of_answer(client: &CallerGroup<'_>, answer: ServerDecision) -> AccessCheck {
    let identity = client.key.client().spiffe_ids.first();
    AccessCheck {
        client: client.first.kri(""),
        clients: client.size,
        spiffe_id: identity.map(SpiffeId::to_string).unwrap_or_default(),
        server: answer.server,
        servers: answer.servers,
        effect: answer.effect,
        rule: answer.rule,
        reason: answer.reason,
    }
}

fn inbound_name(dataplane: &Resource, inbound: &Inbound) -> String {
    let kri = dataplane.kri(&inbound.section_name());
    kri.map_or_else(|| dataplane.name().to_owned(), |kri| kri.to_string())
}

fn without_identity() -> String {
    let tag = labels::SERVICE;
    let label = labels::WORKLOAD;
    format!(
        "denied: the client's certificate names no service, because none of its inbounds has the tag {tag} and it \
         has no label {label}"
    )
}

/// Returns what a denial adds for a permissive server; empty for others.
fn note(permissive: bool) -> &'static str {
    if permissive { "; mTLS is PERMISSIVE, so clients without TLS are accepted anyway" } else { "" }
}
