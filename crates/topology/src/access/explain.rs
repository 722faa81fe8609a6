//! Reasons why a client may call a destination or not, and the smallest change that would allow the call.
//!
//! ```text
//!   servers of a destination ─▶ what each asks ─▶ what it says to the client ─▶ verdict, rules, change
//! ```
//!
//! The servers answer by [`policy::permission`], as their proxies do. A deny is never loosened silently: where one names
//! the client, the explanation names it and offers no permission for these servers. A permission is offered beside a
//! deny only as an exception to "deny by default".

mod change;
mod obstacle;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use policy::{Client, Decision, Effect, Permissions};
use resources::{Resource, kinds::dataplane::Inbound, naming::Kri};

use super::{ClientClass, Ruleset};
use crate::{DestinationId, MeshSnapshot, matching::MemberSelector};

pub use change::{AccessChange, Denial, ProposedPermissions};
pub use obstacle::PermissionObstacle;

/// Maximum inbounds listed that refuse a client.
const MAX_REFUSING: usize = 100;

/// Decision about the calls of a client to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReachabilityVerdict {
    /// At least one server lets it in.
    Reachable,
    /// No server lets it in, so its proxy is not sent the destination.
    Trimmed,
    /// No server lets it in; its proxy has the destination all the same.
    Denied,
    /// The knowledge of this control plane does not suffice.
    Unknown,
}

impl ReachabilityVerdict {
    pub fn word(self) -> &'static str {
        match self {
            ReachabilityVerdict::Reachable => "reachable",
            ReachabilityVerdict::Trimmed => "trimmed",
            ReachabilityVerdict::Denied => "denied",
            ReachabilityVerdict::Unknown => "unknown",
        }
    }
}

/// Requirement of an inbound for its clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// Nothing: clients come without a certificate.
    Nothing,
    Permission(Ruleset),
    /// Decided by MeshTrafficPermissions that only the servers' zone has.
    Unknown,
}

/// Place where clients are asked for a certificate.
#[derive(Debug, Clone, Copy)]
pub enum EnforcementPoint<'a> {
    /// At an inbound that serves the destination, ready or not.
    Inbound(&'a Arc<Resource>, &'a Inbound),
    /// At the egress that leads to the destination.
    Egress,
    /// At servers that are not known here, because they are in another zone or not there yet: they ask at
    /// least this.
    Unseen,
}

/// Server of the destination, with its requirement.
#[derive(Debug, Clone)]
pub struct AskedServer<'a> {
    pub place: EnforcementPoint<'a>,
    pub requires: Requirement,
    /// Clients without TLS are accepted, whatever it requires of others.
    pub permissive: bool,
    /// The server names that clients may ask for there.
    pub server_names: Arc<[String]>,
}

/// Selection of the proxies that serve a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    pub selector: MemberSelector,
    /// The other zone that they are in; `None` for this one.
    pub zone: Option<Arc<str>>,
}

/// A client and a destination.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub mesh: &'a MeshSnapshot,
    pub client: &'a ClientClass,
    /// Name of the destination, for names of resources that are offered.
    pub destination: &'a str,
    /// Called destinations: a port of a service, all of its ports, or tags.
    pub destinations: &'a [DestinationId],
    /// Selections of the proxies that serve these destinations.
    pub serving: &'a [Serving],
    /// The client's proxy gets no destinations that all servers refuse it.
    pub trims: bool,
}

/// Answer of servers with the same requirement to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDecision {
    /// One of them: its Dataplane with the inbound as section, or in words where it is.
    pub server: String,
    /// Number of these servers.
    pub servers: usize,
    pub effect: Effect,
    pub allowed: bool,
    /// The answer is certain. Servers in other zones, and servers that are not there yet, are known in part
    /// only.
    pub sure: bool,
    /// The rule that decides; `None` where no rule is about the client.
    pub rule: Option<Kri>,
    pub reason: String,
}

/// Verdict about a call, with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub verdict: ReachabilityVerdict,
    pub reason: String,
    /// The rules that decide, each once.
    pub decided_by: Vec<Kri>,
    /// Answers of the servers; servers that refuse though others allow are among them.
    pub answers: Vec<ServerDecision>,
    /// The inbounds that refuse the client, of which not all are listed where there are very many.
    pub refusing: Vec<Kri>,
    /// Number of inbounds that refuse the client, listed or not.
    pub refusing_total: usize,
    /// Change that would allow the call; `None` if nothing forbids it, or the reason is not a permission.
    pub change: Option<AccessChange>,
}

impl Explanation {
    /// Explains a call about which nothing is known.
    pub fn unknown(reason: impl Into<String>) -> Explanation {
        Explanation {
            verdict: ReachabilityVerdict::Unknown,
            reason: reason.into(),
            decided_by: Vec::new(),
            answers: Vec::new(),
            refusing: Vec::new(),
            refusing_total: 0,
            change: None,
        }
    }
}

/// Decides about a client that may ask for any of these server names: the first name that is allowed counts.
pub fn decide(permissions: &Permissions, client: &Client, server_names: &[String]) -> Decision {
    named(permissions, client, server_names).1
}

/// Returns the client with the server name that counts, and the decision.
fn named(permissions: &Permissions, client: &Client, server_names: &[String]) -> (Client, Decision) {
    let asking = |sni: Option<&String>| {
        let client = Client { sni: sni.cloned(), ..client.clone() };
        let decision = permissions.decide(&client);
        (client, decision)
    };
    let allowed = || server_names.iter().map(|sni| asking(Some(sni))).find(|(_, it)| it.is_allowed());
    allowed().unwrap_or_else(|| asking(server_names.first()))
}

/// Explains a call to a destination that these inbounds serve, ready or not.
pub fn explain(call: &Call<'_>, servers: &[AskedServer<'_>]) -> Explanation {
    if servers.is_empty() {
        return Explanation::unknown(
            "no instance of the destination is known here, so it is not known which clients it lets in",
        );
    }
    let groups = grouped(servers);
    let answers: Vec<ServerDecision> = groups.iter().map(|members| answer(call, servers, members)).collect();
    let (allowed, refused): (Vec<&ServerDecision>, Vec<&ServerDecision>) =
        answers.iter().partition(|answer| answer.allowed);
    let verdict = match allowed.iter().any(|answer| answer.sure) {
        true => ReachabilityVerdict::Reachable,
        false if !allowed.is_empty() => ReachabilityVerdict::Unknown,
        false if call.trims => ReachabilityVerdict::Trimmed,
        false => ReachabilityVerdict::Denied,
    };
    let refusing: Vec<change::RefusingServers<'_, '_>> = groups
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| !answer.allowed)
        .map(|(members, _)| {
            change::RefusingServers::of(call, members.iter().filter_map(|&at| servers.get(at)).collect())
        })
        .collect();
    let inbounds = refusing.iter().flat_map(|group| &group.servers).filter_map(|server| match server.place {
        EnforcementPoint::Inbound(dataplane, inbound) => dataplane.kri(&inbound.section_name()),
        EnforcementPoint::Egress | EnforcementPoint::Unseen => None,
    });
    Explanation {
        verdict,
        reason: reason(verdict, &allowed, &refused),
        decided_by: deciding(if allowed.is_empty() { &refused } else { &allowed }),
        refusing_total: inbounds.clone().count(),
        refusing: inbounds.take(MAX_REFUSING).collect(),
        change: change::of(call, servers, &refusing),
        answers: answers.clone(),
    }
}

/// The servers that ask the same together, by index, in the order in which they come.
fn grouped(servers: &[AskedServer<'_>]) -> Vec<Vec<usize>> {
    let mut index: HashMap<(bool, &Requirement, bool, &[String]), usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let sort = matches!(server.place, EnforcementPoint::Inbound(..));
        let asked = (sort, &server.requires, server.permissive, &*server.server_names);
        let group = *index.entry(asked).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(members) => members.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

fn answer(call: &Call<'_>, servers: &[AskedServer<'_>], members: &[usize]) -> ServerDecision {
    let first = members.first().and_then(|&at| servers.get(at));
    let (server, sure) = match first.map(|first| first.place) {
        Some(EnforcementPoint::Inbound(dataplane, inbound)) => {
            let kri = dataplane.kri(&inbound.section_name());
            (kri.map_or_else(|| dataplane.name().to_owned(), |kri| kri.to_string()), true)
        }
        Some(EnforcementPoint::Egress) | None => ("egress".to_owned(), true),
        Some(EnforcementPoint::Unseen) => ("not known here".to_owned(), false),
    };
    let said = |effect, sure, rule, reason| ServerDecision {
        server,
        servers: members.len(),
        effect,
        allowed: effect != Effect::Deny,
        sure,
        rule,
        reason,
    };
    let takes_plain =
        first.is_some_and(|first| first.permissive || matches!(first.place, EnforcementPoint::Unseen));
    let client = call.client.client();
    match first.map(|first| (&first.requires, &first.server_names)) {
        None | Some((Requirement::Nothing, _)) => {
            let reason = "allowed: clients come without a certificate, so none is refused".to_owned();
            said(Effect::Allow, true, None, reason)
        }
        Some((Requirement::Unknown, _)) => {
            let reason = "not known: the servers are in a zone with MeshTrafficPermissions of its own, which this \
                          control plane does not see";
            said(Effect::Allow, false, None, reason.to_owned())
        }
        Some((Requirement::Permission(_), _)) if call.client.is_plain() => {
            let effect = if takes_plain { Effect::Allow } else { Effect::Deny };
            said(effect, sure, None, without_certificate(takes_plain).to_owned())
        }
        Some((Requirement::Permission(_), _)) if client.spiffe_ids.is_empty() => {
            let reason = "denied: the client's certificate names no service".to_owned();
            said(Effect::Deny, sure, None, reason)
        }
        Some((Requirement::Permission(ruleset), server_names)) => {
            let permissions = call.mesh.access.asked(ruleset, client);
            let (client, decision) = named(&permissions, client, server_names);
            said(decision.effect, sure, decision.origin, permissions.explain(&client))
        }
    }
}

/// Returns the answer of a server to a client that has no certificate and calls without TLS.
pub fn without_certificate(permissive: bool) -> &'static str {
    if permissive {
        "allowed: the client has no certificate and calls without TLS, and the server's mTLS is Permissive"
    } else {
        "denied: the client has no certificate, because the mesh has no mTLS and no MeshIdentity that is ready \
             selects its Dataplane, and the server requires one; let a MeshIdentity select the Dataplane, or apply a \
             MeshTLS with mode Permissive to the server"
    }
}

/// The rules of these answers, each once, in their order.
fn deciding(answers: &[&ServerDecision]) -> Vec<Kri> {
    let mut seen = BTreeSet::new();
    let rules = answers.iter().filter_map(|answer| answer.rule.clone());
    rules.filter(|rule| seen.insert(rule.clone())).collect()
}

fn reason(verdict: ReachabilityVerdict, allowed: &[&ServerDecision], refused: &[&ServerDecision]) -> String {
    let count = |answers: &[&ServerDecision]| answers.iter().map(|answer| answer.servers).sum::<usize>();
    let first =
        |answers: &[&ServerDecision]| answers.first().map_or(String::new(), |answer| answer.reason.clone());
    match (verdict, count(refused)) {
        (ReachabilityVerdict::Reachable, 0) => first(allowed),
        (ReachabilityVerdict::Reachable, no) => format!(
            "{} of {} inbounds let the client in, so the whole destination is reachable; {no} would refuse it: {}",
            count(allowed),
            count(allowed) + no,
            first(refused)
        ),
        (ReachabilityVerdict::Unknown, _) => format!(
            "the servers are in another zone or not there yet, and nothing that is known here refuses the client: {}",
            first(allowed)
        ),
        (ReachabilityVerdict::Trimmed, _) => {
            format!("its proxy is not sent the destination, because every server refuses: {}", first(refused))
        }
        _ => first(refused),
    }
}
