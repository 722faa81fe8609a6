//! What a proxy reaches, what trimming by permissions takes from it or would take, and why.

mod measure;

use std::sync::Arc;

use api::{
    InspectError,
    inspect::reachability::{
        Answer, Change, Counts, DestinationReachability, Explained, MeshReachability, ModeInUse, OfProxy,
        ProxyReachability, ProxySavings, Reached, Report, Verdict,
    },
};
use plan::{Calls, ProxyTraits, access};
use resources::{Key, Resource, naming::Kri};
use store::Snapshot;
use topology::{
    ClientClass, ClientTls, Destination, DestinationId, MeshSnapshot, Mode, Said,
    reachability::explain::{self, Call, Explanation, decide, explain},
};

use crate::push::planned;
use measure::{Measure, Offered};

/// More destinations than this are not listed.
const MAX_DESTINATIONS: usize = 1000;
/// How many resources are planned to measure the proxies of a page.
const BUDGET: usize = 400_000;

/// What is done about destinations that the proxy may not call.
pub fn mode(mesh: &MeshSnapshot, dataplane: &Resource) -> ModeInUse {
    let trimming = mesh.trimming(dataplane);
    ModeInUse {
        asked: trimming.mode.word(),
        said_by: match trimming.said {
            Said::ByProxy => "Dataplane",
            Said::ByZone => "zone",
            Said::ByMesh => "Mesh",
            Said::ByControlPlane => "control plane",
        },
        active: trimming.active().word(),
        inactive: trimming.inactive.filter(|_| trimming.mode != Mode::Off).map(|why| why.to_string()),
        stub: trimming.stub,
    }
}

/// A proxy, and what it has with trimming and without.
struct Sight<'a> {
    snapshot: &'a Snapshot,
    mesh: &'a MeshSnapshot,
    dataplane: Arc<Resource>,
    class: ClientClass,
    before: Arc<Offered>,
    after: Arc<Offered>,
    /// Whether the proxy is sent what is there with trimming.
    trims: bool,
}

impl<'a> Sight<'a> {
    fn of(
        (snapshot, mesh): (&'a Snapshot, &'a MeshSnapshot),
        traits: &ProxyTraits,
        measure: &mut Measure,
    ) -> Result<Sight<'a>, plan::Error> {
        let (_, class, dataplane) = planned(mesh, traits, Calls::of)?;
        let client = ClientClass::of(mesh, &dataplane);
        let (before, after) = measure.both(mesh, class, &client);
        let trims = mesh.trimming(&dataplane).active() == Mode::Enforce;
        Ok(Sight { snapshot, mesh, dataplane, class: client, before, after, trims })
    }

    fn is_trimmed(&self, id: &DestinationId) -> bool {
        let goes = self.before.destinations.contains(id) && !self.after.destinations.contains(id);
        self.trims && goes
    }

    fn report(&self) -> Report {
        measure::report(&self.before, &self.after, self.trims)
    }

    fn kri(&self) -> String {
        self.dataplane.kri("").map(|kri| kri.to_string()).unwrap_or_default()
    }

    fn reached(&self, id: &DestinationId) -> Reached {
        let row = self.mesh.reachability.row(id);
        let reaches = self.mesh.reachability.reaches(&self.class, id);
        let verdict = match (reaches, self.is_trimmed(id)) {
            (_, true) => Verdict::Trimmed,
            (false, false) => Verdict::Denied,
            // Permissions do not say which servers take clients without TLS.
            (true, false) if self.class.is_plain() && row.is_some() => self.explained(id),
            (true, false) if self.is_unknown(id) => Verdict::Unknown,
            (true, false) => Verdict::Reachable,
        };
        let mut decided_by = Vec::new();
        let server_names = row.map_or(&[][..], |row| row.server_names.as_slice());
        for rules in row.iter().flat_map(|row| &row.rulesets) {
            let decision = decide(rules, self.class.client(), server_names);
            let rule = decision.origin.filter(|_| decision.effect != policy::Effect::Deny || !reaches);
            decided_by.extend(rule.map(|rule: Kri| rule.to_string()));
        }
        decided_by.sort();
        decided_by.dedup();
        let callable_by_all = verdict == Verdict::Reachable && row.is_none_or(|row| row.default);
        Reached { destination: spelled(id), verdict, callable_by_all, decided_by }
    }

    /// What the servers of a destination say to the client.
    fn explained(&self, id: &DestinationId) -> Verdict {
        let Some(destination) = self.mesh.destinations.get(id) else { return Verdict::Unknown };
        let (servers, _) = access::servers(&|key: &Key| self.snapshot.get(key), self.mesh, &[destination]);
        let call = Call { mesh: self.mesh, client: &self.class, destination: "", trims: false };
        shown(explain(&call, &servers).verdict)
    }

    /// Whether no server that is known here decides about a destination that is called with a certificate.
    fn is_unknown(&self, id: &DestinationId) -> bool {
        let Some(destination) = self.mesh.destinations.get(id) else { return true };
        let is_served = || {
            // Endpoints are known; only where there are none, instances that are not ready are looked for.
            let endpoints = self.mesh.endpoints.get(id);
            let here = endpoints.is_some_and(|it| it.0.iter().any(|endpoint| endpoint.instance.is_some()));
            let remote = destination.remote.is_some();
            let inbounds = || access::inbounds(&|key: &Key| self.snapshot.get(key), self.mesh, destination);
            here || !remote && !inbounds().is_empty()
        };
        destination.tls != ClientTls::Off && destination.external.is_none() && !is_served()
    }
}

/// What to call a destination: its identifier, or its tags.
pub fn spelled(id: &DestinationId) -> String {
    match id {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(tags) => {
            let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            tags.join(",")
        }
    }
}

/// What a proxy reaches; with `to`, why it reaches that destination or not.
pub fn of_proxy(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    traits: &ProxyTraits,
    to: Option<&str>,
) -> Result<OfProxy, InspectError> {
    let unsupported = |error: plan::Error| InspectError::Unsupported(error.to_string());
    let sight = Sight::of((snapshot, mesh), traits, &mut Measure::default()).map_err(unsupported)?;
    let mode = mode(mesh, &sight.dataplane);
    match to {
        Some(to) => one(&sight, mode, to).map(OfProxy::One).map_err(InspectError::NotFound),
        None => Ok(OfProxy::All(all(&sight, mode))),
    }
}

fn all(sight: &Sight<'_>, mode: ModeInUse) -> ProxyReachability {
    let mut counts = Counts::default();
    let mut destinations: Vec<Reached> = Vec::new();
    for id in &sight.before.destinations {
        let reached = sight.reached(id);
        match reached.verdict {
            Verdict::Reachable => counts.reachable += 1,
            Verdict::Trimmed => counts.trimmed += 1,
            Verdict::Denied => counts.denied += 1,
            Verdict::Unknown => counts.unknown += 1,
        }
        destinations.push(reached);
    }
    destinations.sort_by_cached_key(|it| (it.verdict == Verdict::Reachable, it.destination.clone()));
    let truncated = destinations.len() > MAX_DESTINATIONS;
    destinations.truncate(MAX_DESTINATIONS);
    let report = (mode.asked != Mode::Off.word()).then(|| sight.report());
    ProxyReachability { kri: sight.kri(), mode, counts, report, destinations, truncated }
}

fn one(sight: &Sight<'_>, mode: ModeInUse, to: &str) -> Result<DestinationReachability, String> {
    let found = access::destinations(sight.mesh, to)?;
    let ids = || found.iter().map(|destination| &destination.id);
    let trims =
        ids().any(|id| sight.is_trimmed(id)) && !ids().any(|id| sight.after.destinations.contains(id));
    let (servers, truncated) = access::servers(&|key: &Key| sight.snapshot.get(key), sight.mesh, &found);
    let name = name_of(found.first().copied());
    let call = Call { mesh: sight.mesh, client: &sight.class, destination: &name, trims };
    let explained = explained(explain(&call, &servers), truncated);
    let destination = match found.as_slice() {
        [one] => spelled(&one.id),
        several => several.first().map_or_else(String::new, |one| whole(&one.id)),
    };
    Ok(DestinationReachability { kri: sight.kri(), mode, destination, explained })
}

/// The service that a destination is a port of.
fn whole(id: &DestinationId) -> String {
    match id {
        DestinationId::Port(kri) => kri.without_section().to_string(),
        tags @ DestinationId::Tags(_) => spelled(tags),
    }
}

fn name_of(destination: Option<&Arc<Destination>>) -> String {
    match destination.map(|destination| &destination.id) {
        Some(DestinationId::Port(kri)) => kri.name.clone(),
        Some(DestinationId::Tags(tags)) => tags.get(resources::labels::SERVICE).cloned().unwrap_or_default(),
        None => String::new(),
    }
}

fn shown(verdict: explain::Verdict) -> Verdict {
    match verdict {
        explain::Verdict::Reachable => Verdict::Reachable,
        explain::Verdict::Trimmed => Verdict::Trimmed,
        explain::Verdict::Denied => Verdict::Denied,
        explain::Verdict::Unknown => Verdict::Unknown,
    }
}

/// An explanation in the words of the API.
pub fn explained(from: Explanation, truncated: bool) -> Explained {
    let text = |rules: &[Kri]| rules.iter().map(Kri::to_string).collect::<Vec<_>>();
    let change = from.change.map(|change| Change {
        text: change.text(),
        rules: match &change {
            explain::Change::Write { .. } => Vec::new(),
            explain::Change::Except { rule, .. } => text(std::slice::from_ref(rule)),
            explain::Change::Edit { rules } => text(rules),
        },
        resource: change.resource().cloned(),
    });
    let answers = from.answers.into_iter().map(|answer| Answer {
        server: answer.server,
        servers: answer.servers,
        allowed: answer.allowed,
        rule: answer.rule.map(|rule| rule.to_string()),
        reason: answer.reason,
    });
    Explained {
        verdict: shown(from.verdict),
        reason: from.reason,
        decided_by: text(&from.decided_by),
        answers: answers.collect(),
        truncated,
        change,
    }
}

/// Whether trimming takes all of these destinations from a proxy.
pub fn trims(snapshot: &Snapshot, mesh: &MeshSnapshot, traits: &ProxyTraits, ids: &[DestinationId]) -> bool {
    let Some(dataplane) = mesh.dataplanes.get(&traits.name) else { return false };
    if mesh.trimming(dataplane).active() != Mode::Enforce {
        return false;
    }
    let Ok(sight) = Sight::of((snapshot, mesh), traits, &mut Measure::default()) else { return false };
    let any = ids.iter().any(|id| sight.is_trimmed(id));
    any && !ids.iter().any(|id| sight.after.destinations.contains(id))
}

/// What trimming does for the proxies of a mesh, from the offset on, or would do.
pub fn of_mesh(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    traits: impl Fn(&Resource) -> ProxyTraits,
    offset: usize,
    size: usize,
) -> MeshReachability {
    let mut measure = Measure::default();
    let page = mesh.dataplanes.values().skip(offset).take(size);
    let items = page.map(|dataplane| {
        let mode = mode(mesh, dataplane);
        let wanted = mode.asked != Mode::Off.word() && measure.planned() < BUDGET;
        let sight = wanted.then(|| Sight::of((snapshot, mesh), &traits(dataplane), &mut measure).ok());
        let sight = sight.flatten();
        ProxySavings { name: dataplane.name().to_owned(), mode, report: sight.map(|sight| sight.report()) }
    });
    MeshReachability { total: mesh.dataplanes.len(), items: items.collect() }
}
