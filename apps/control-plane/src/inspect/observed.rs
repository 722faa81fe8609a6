//! The calls that proxies of a mesh reported.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use api::{
    InspectError,
    inspect::observed::{ObservedCall, ObservedCalls, ReportingProxies, WantedEdges},
};
use jiff::Timestamp;
use plan::{Applying, Calls, Class, ProxyTraits};
use resources::{Resource, naming::SpiffeId};
use topology::{
    ClientClass, DestinationId, MeshSnapshot, Mode,
    observed::{Caller, Edge, Observed, Seen, destination_text},
};

use crate::observed::Observations;

pub fn elsewhere() -> InspectError {
    InspectError::Elsewhere(
        "only the control planes that proxies are connected to know what they call: ask the control plane \
        of their zone"
            .to_owned(),
    )
}

/// The edges that are wanted; `traits` is what a proxy said when it was last connected.
pub fn of(
    mesh: &MeshSnapshot,
    observations: &Observations,
    (connected, reporting): (usize, usize),
    traits: impl Fn(&Resource) -> ProxyTraits,
    wanted: WantedEdges,
) -> ObservedCalls {
    let observed = observations.of_mesh(&mesh.name);
    let until = until(&mesh.name, observations, &observed);
    let mut shadowed = Shadowed::of(mesh, traits);
    let mut edges: Vec<(&Edge, &Seen, bool)> = Vec::new();
    for (edge, seen) in &observed.edges {
        let trimmed = shadowed.would_trim(edge);
        if trimmed || !wanted.would_be_trimmed {
            edges.push((edge, seen, trimmed));
        }
    }
    let total = edges.len();
    edges.sort_by_cached_key(|(edge, ..)| (edge.caller.to_string(), destination_text(&edge.destination)));
    let page = edges.into_iter().skip(wanted.offset).take(wanted.size);
    ObservedCalls {
        since: observed.since.map(|since| since.to_string()),
        until: until.map(|until| until.to_string()),
        total,
        edges: page.map(call).collect(),
        dropped: observed.truncated,
        proxies: ReportingProxies { reporting, connected },
    }
}

/// When the last report came, as far as is known: other control planes on the same store keep when a call was last seen,
/// and not when nothing was.
pub fn until(mesh: &str, observations: &Observations, observed: &Observed) -> Option<Timestamp> {
    let seen = observed.edges.values().map(|seen| seen.last);
    seen.chain(observations.last_report(mesh)).chain(observed.since).max()
}

fn call((edge, seen, would_be_trimmed): (&Edge, &Seen, bool)) -> ObservedCall {
    ObservedCall {
        caller: edge.caller.to_string(),
        destination: destination_text(&edge.destination),
        first_seen: seen.first.to_string(),
        last_seen: seen.last.to_string(),
        count: seen.count,
        would_be_trimmed,
    }
}

/// The clients in mode `shadow`, by their first identity and by what servers see of them.
struct Shadowed<'m, T> {
    mesh: &'m MeshSnapshot,
    traits: T,
    clients: BTreeMap<SpiffeId, BTreeMap<ClientClass, Vec<&'m Arc<Resource>>>>,
    /// What trimming would take from a class of proxies if it might call nothing. Made when it is asked for.
    by_class: HashMap<Class, Arc<BTreeSet<DestinationId>>>,
    /// The same by the name of the proxy.
    by_proxy: HashMap<Arc<str>, Arc<BTreeSet<DestinationId>>>,
}

impl<'m, T: Fn(&Resource) -> ProxyTraits> Shadowed<'m, T> {
    fn of(mesh: &'m MeshSnapshot, traits: T) -> Shadowed<'m, T> {
        let mut clients: BTreeMap<SpiffeId, BTreeMap<ClientClass, Vec<&Arc<Resource>>>> = BTreeMap::new();
        let shadowed = |dataplane: &&Arc<Resource>| mesh.trimming(dataplane).active() == Mode::Shadow;
        for dataplane in mesh.dataplanes.values().filter(shadowed) {
            let class = ClientClass::of(mesh, dataplane);
            if let Some(id) = class.client().spiffe_ids.first().cloned() {
                clients.entry(id).or_default().entry(class).or_default().push(dataplane);
            }
        }
        Shadowed { mesh, traits, clients, by_class: HashMap::new(), by_proxy: HashMap::new() }
    }

    /// Whether a client of this identity could not make the call if its outbounds were trimmed.
    fn would_trim(&mut self, edge: &Edge) -> bool {
        let Caller::Identity(id) = &edge.caller else { return false };
        let Some(classes) = self.clients.get(id) else { return false };
        let denied = |class: &&ClientClass| !self.mesh.reachability.reaches(class, &edge.destination);
        let denied: Vec<ClientClass> = classes.keys().filter(denied).cloned().collect();
        denied.iter().any(|client| {
            let proxies = self.clients.get(id).and_then(|classes| classes.get(client));
            let proxies = proxies.cloned().unwrap_or_default();
            proxies.into_iter().any(|proxy| self.trimmable(proxy, client).contains(&edge.destination))
        })
    }

    fn trimmable(&mut self, dataplane: &Arc<Resource>, client: &ClientClass) -> Arc<BTreeSet<DestinationId>> {
        if let Some(known) = self.by_proxy.get(&dataplane.key.name) {
            return known.clone();
        }
        let (mesh, traits) = (self.mesh, (self.traits)(dataplane));
        let class = Class::of(&traits, dataplane, Calls::of(dataplane), Applying::of(mesh, dataplane));
        let made = self.by_class.entry(class).or_insert_with_key(|class| {
            let kept = plan::never_trimmed(mesh, class, client);
            let offered = plan::outgoing(mesh, class).backends.into_iter().map(|it| it.destination);
            Arc::new(offered.filter(|id| !kept.contains(id)).collect())
        });
        self.by_proxy.insert(dataplane.key.name.clone(), made.clone());
        made.clone()
    }
}
