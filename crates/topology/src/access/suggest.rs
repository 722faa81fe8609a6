//! Permissions for the calls that were seen: what to write before a mesh refuses everything else.
//!
//! ```text
//!   observed edges ─▶ the inbounds that serve them ─▶ what permissions say without those that allow everyone
//!       allowed   nothing to do
//!       no rule   a MeshTrafficPermission for exactly these inbounds and this client
//!       denied    listed with the policy that denies, never allowed
//! ```
//!
//! Every question is put to `policy::permission`, which also makes the rules of proxies.
//!
//! Invariant: with all suggestions written, with permissions that allow everyone gone and with [`Suggestions::closing`]
//! in place, every observed call that is not listed as denied is allowed, and no call that was denied by a rule is.

mod callers;
mod defaults;
mod everyone;
mod judge;
mod servers;
mod warnings;
mod window;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;
use resources::{Draft, Key, Labels, Resource, labels, naming::Kri};

use super::{
    policy_names,
    targets::{Choice, InboundId, InboundSelection, SelectionEffect},
};
use crate::{
    DestinationId, MeshSnapshot,
    observed::{Caller, Edge, EdgeObservations, ObservedEdges},
};
use callers::Callers;
use defaults::Defaults;
use judge::Judgement;
use servers::{Group, Servers};
use warnings::Warnings;

/// Input for suggestions.
#[derive(Clone, Copy)]
pub struct SuggestionInput<'a> {
    pub mesh: &'a MeshSnapshot,
    pub observed: &'a ObservedEdges,
    /// Time of the last report: calls are observed until then.
    pub until: Timestamp,
    /// Limits suggestions to the servers of this: the name of a service, a value of `kuma.io/service` or a
    /// KRI. It is then closed on its own, while other services stay as they are.
    pub service: Option<&'a str>,
    /// A MeshService or MeshMultiZoneService as it is stored.
    pub stored: &'a dyn Fn(&Key) -> Option<Arc<Resource>>,
    /// The labels that permissions need where they will be written.
    pub labels: &'a Labels,
    /// Numbers of connected proxies and of those that report their calls, if known.
    pub proxies: Option<ReportingProxies>,
}

/// Numbers of proxies that report their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportingProxies {
    pub reporting: usize,
    pub connected: usize,
}

/// Permissions to write, and the knowledge behind them.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestions {
    /// Time since which calls to all of it are observed; `None` while no proxy has reported.
    pub since: Option<Timestamp>,
    /// The destination that is observed for the shortest time, where it joined later than others.
    pub newest: Option<DestinationId>,
    pub until: Timestamp,
    /// Clients of other zones may call what is asked about: only their own control planes know their calls.
    pub other_zones: bool,
    /// Gaps that these suggestions may have.
    pub warnings: Vec<String>,
    pub permissions: Vec<Permission>,
    /// Observed calls that a policy refuses.
    pub denied: Vec<RefusedCall>,
    /// Destinations that no one was seen to call and that no permission is about: no client could call them.
    pub unseen: Vec<DestinationId>,
    /// Observed edges that need nothing.
    pub already_allowed: usize,
    /// Permissions that allow everyone everywhere: while they are there nothing is refused.
    pub allow_all: Vec<AllowAll>,
    /// Rules that will accept clients that no other rule names when the mesh, or the service, is closed: the
    /// entry of the policy, and the destinations.
    pub open: BTreeMap<Kri, Vec<DestinationId>>,
    /// Permissions that show that everything else is refused; to be written last. Empty where they are there.
    pub closing: Vec<Draft>,
}

/// A permission that allows everyone everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowAll {
    pub policy: Arc<Resource>,
    /// Policy to write in its place, if it says more: the same without the rules that let everyone in.
    pub rest: Option<Draft>,
}

/// A permission to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Permission {
    /// The MeshTrafficPermission. Where one of its name exists, it has everything that is in that one.
    pub resource: Draft,
    /// The calls that it is for.
    pub evidence: Vec<Evidence>,
    /// Further calls that the permission would allow.
    pub notes: Vec<String>,
}

/// An observed call that no rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub edge: Edge,
    pub seen: EdgeObservations,
    /// It is refused now, because no rule mentions it: the permission would admit a client that was refused
    /// before.
    pub refused: bool,
}

/// An observed call that stays refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    pub edge: Edge,
    pub seen: EdgeObservations,
    /// The entry of the policy that refuses.
    pub policy: Kri,
    /// Some of these calls are allowed now, by some servers or thanks to a permission for everyone.
    pub gets_through: bool,
}

/// Error for a service that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownService(pub String);

impl fmt::Display for UnknownService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownService(name) = self;
        write!(
            f,
            "nothing in the mesh is called {name:?}: it is the name of a MeshService, a value of {} that is called, or \
             a KRI of one of them",
            labels::SERVICE
        )
    }
}

impl AllowAll {
    fn of(all: &defaults::AllowAll) -> AllowAll {
        let draft = |rest: &Arc<Resource>| Draft {
            labels: rest.labels.clone(),
            ..Draft::new(rest.key.clone(), rest.spec.clone())
        };
        AllowAll { policy: all.policy.clone(), rest: all.rest.as_ref().map(draft) }
    }
}

/// The permissions that the observed calls need.
pub fn suggest(question: &SuggestionInput<'_>) -> Result<Suggestions, UnknownService> {
    let mut warnings = Warnings::default();
    let mut servers = Servers::of(question);
    let called = called(question, &mut servers, &mut warnings)?;
    let callers = Callers::of(question.mesh, called.values().flatten().map(|(edge, _)| *edge), &mut warnings);
    let mut writing = Writing::new(question, &callers);
    let mut seen_at = BTreeSet::new();
    for (id, edges) in &called {
        let Some(group) = servers.groups.get(id) else { continue };
        writing.group(group, edges);
        seen_at.extend(group.places.iter().cloned());
    }
    for group in servers.groups.values().filter(|group| !group.places.is_subset(&seen_at)) {
        writing.unseen(group);
    }
    for group in servers.groups.values() {
        writing.open(group);
    }
    let windows = window::of(question, servers.groups.values());
    writing.suggestions.since = windows.since;
    writing.suggestions.newest = windows.newest.first().map(|(id, _)| id.clone());
    warnings.finish(question, &windows, &writing.opened, &mut writing.suggestions);
    Ok(writing.finish())
}

/// The observed edges by the group of inbounds that serves them.
type EdgesByServer<'a> = BTreeMap<usize, Vec<(&'a Edge, &'a EdgeObservations)>>;

fn called<'a>(
    question: &SuggestionInput<'a>,
    servers: &mut Servers<'a>,
    warnings: &mut Warnings,
) -> Result<EdgesByServer<'a>, UnknownService> {
    let mut called = EdgesByServer::new();
    for (edge, seen) in &question.observed.edges {
        if !servers.is_wanted(&edge.destination) {
            continue;
        }
        let groups = servers.behind(&edge.destination);
        match &edge.caller {
            Caller::Outside => warnings.outside(&edge.destination, seen),
            Caller::Identity(_) if groups.is_empty() => warnings.no_server(question.mesh, &edge.destination),
            Caller::Identity(_) => {
                groups.into_iter().for_each(|group| called.entry(group).or_default().push((edge, seen)));
            }
        }
    }
    match question.service {
        Some(service) if servers.wanted.is_empty() => Err(UnknownService(service.to_owned())),
        _ => Ok(called),
    }
}

/// Suggestions in the making.
struct Writing<'a> {
    question: &'a SuggestionInput<'a>,
    callers: &'a Callers,
    routes: Vec<Arc<Resource>>,
    defaults: Defaults,
    form: write::Form,
    names: BTreeSet<String>,
    /// The entries that refuse everyone and are opened for someone.
    opened: BTreeSet<Kri>,
    /// The policies that are to close inbounds on their own.
    closing_of: BTreeMap<BTreeSet<InboundId>, Vec<Arc<Resource>>>,
    allowed: BTreeSet<Edge>,
    denied: BTreeMap<Edge, RefusedCall>,
    suggestions: Suggestions,
}

impl<'a> Writing<'a> {
    fn new(question: &'a SuggestionInput<'a>, callers: &'a Callers) -> Writing<'a> {
        let defaults = Defaults::of(question);
        let suggestions = Suggestions {
            since: question.observed.since,
            newest: None,
            until: question.until,
            other_zones: window::has_clients_elsewhere(question.mesh),
            warnings: Vec::new(),
            permissions: Vec::new(),
            denied: Vec::new(),
            unseen: Vec::new(),
            already_allowed: 0,
            allow_all: defaults.allow.iter().map(AllowAll::of).collect(),
            open: BTreeMap::new(),
            closing: defaults.closing_of_mesh().into_iter().collect(),
        };
        Writing {
            question,
            callers,
            routes: question.mesh.routes().cloned().collect(),
            form: write::Form::of(question.mesh, &defaults),
            defaults,
            names: BTreeSet::new(),
            opened: BTreeSet::new(),
            closing_of: BTreeMap::new(),
            allowed: BTreeSet::new(),
            denied: BTreeMap::new(),
            suggestions,
        }
    }

    fn selector(&self) -> policy::PolicySelector<'_> {
        policy::PolicySelector { routes: &self.routes, ..policy::PolicySelector::default() }
    }

    /// References that select the inbounds of a group. Those by which they were closed come first: of another rank a
    /// permission might be overruled.
    fn choices(&self, group: &Group) -> Vec<Choice> {
        let SuggestionInput { mesh, labels, .. } = self.question;
        let wanted = InboundSelection {
            mesh,
            places: &group.places,
            preferred: defaults::closing_references(mesh, group),
            selectors: &group.selectors,
            destinations: &group.destinations,
            labels,
            besides: &|_| SelectionEffect::Opened,
        };
        Choice::of(&wanted, &self.selector())
    }

    /// Judges the calls to one group of inbounds, and writes the permissions they need.
    fn group(&mut self, group: &Group, edges: &[(&Edge, &EdgeObservations)]) {
        let choices = self.choices(group);
        for choice in &choices {
            let closing = self.closing(group, choice);
            let judge = judge::Judge::new(
                self.question.mesh,
                &self.selector(),
                &self.defaults,
                closing.as_ref(),
                choice,
            );
            let mut wanted = Vec::new();
            for &(edge, seen) in edges {
                let Caller::Identity(id) = &edge.caller else { continue };
                match judge.judge(self.callers.of_identity(id), &edge.destination) {
                    Judgement::Allowed => {
                        self.allowed.insert(edge.clone());
                    }
                    Judgement::Denied { policy, gets_through } => {
                        self.refused(edge, seen, policy, gets_through);
                    }
                    Judgement::Nothing { shown, refused } => {
                        self.opened.extend(shown.into_iter().filter(|it| self.defaults.is_there(it)));
                        let evidence = Evidence { edge: edge.clone(), seen: seen.clone(), refused };
                        wanted.push((evidence, id));
                    }
                }
            }
            let notes = choice.notes();
            let written =
                write::permissions(self.question, self.form, &mut self.names, group, choice, &wanted);
            for mut permission in written {
                permission.notes.extend(notes.iter().cloned());
                permission.notes.extend(judge.notes(&permission));
                self.suggestions.permissions.push(permission);
            }
        }
    }

    fn refused(&mut self, edge: &Edge, seen: &EdgeObservations, policy: Kri, gets_through: bool) {
        let refused = RefusedCall { edge: edge.clone(), seen: seen.clone(), policy, gets_through };
        let known = self.denied.entry(edge.clone()).or_insert(refused);
        known.gets_through |= gets_through;
    }

    /// The policy that closes a group on its own, where only some services are asked about.
    fn closing(&mut self, group: &Group, choice: &Choice) -> Option<Arc<Resource>> {
        self.question.service?;
        if self.defaults.closes(self.question.mesh, &choice.target) {
            return None;
        }
        let base = format!("{}-{}", defaults::DENY_ALL, group.title());
        let name = policy_names::free(self.question.mesh, &mut self.names, &base);
        let (draft, resource) = self.defaults.closing_of(self.question, &name, &choice.target);
        self.suggestions.closing.push(draft);
        self.closing_of.entry(group.places.clone()).or_default().push(resource.clone());
        Some(resource)
    }

    /// Notes what lets everyone in at a group when all is closed. Where one service is, those that allow everyone stay.
    fn open(&mut self, group: &Group) {
        let closing = std::mem::take(self.closing_of.entry(group.places.clone()).or_default());
        let entries = judge::opened(self.question, &self.selector(), &self.defaults, &closing, &group.places);
        for entry in entries {
            self.suggestions.open.entry(entry).or_default().push(group.first().clone());
        }
    }

    /// An edge that leads to several groups may be allowed by some of them only.
    fn finish(self) -> Suggestions {
        let Writing { mut allowed, denied, mut suggestions, .. } = self;
        for evidence in suggestions.permissions.iter().flat_map(|it| &it.evidence) {
            allowed.remove(&evidence.edge);
        }
        for edge in denied.keys() {
            allowed.remove(edge);
        }
        suggestions.denied = denied.into_values().collect();
        suggestions.already_allowed = allowed.len();
        suggestions
    }

    /// A group that no one was seen to call.
    fn unseen(&mut self, group: &Group) {
        let selector = self.selector();
        let mesh = self.question.mesh;
        let mentioned = judge::allows_someone(mesh, &selector, &self.defaults, &group.places);
        let choices = self.choices(group);
        for choice in &choices {
            self.closing(group, choice);
        }
        if !mentioned {
            self.suggestions.unseen.push(group.first().clone());
        }
    }
}
