//! Destinations of a proxy, those that trimming by permissions takes from it or would take, and reasons.

mod measure;

use std::sync::Arc;

use api::InspectError;
use contract::reachability::{
    DestinationReachability, MeasuredProxies, ProxyReachability, ProxyReachabilityAnswer, ProxySavings,
    ReachabilityAnswer, ReachabilityChange, ReachabilityCounts, ReachabilityDestination,
    ReachabilityExplanation, ReachabilityMode, ReachabilityReport, ReachabilityVerdict,
};
use plan::{
    Calls, ProxyTraits,
    access::{self, AccessQuestionError},
};
use resources::{Key, Resource, naming::Kri};
use serving::push::planned;
use store::Snapshot;
use topology::{
    ClientClass, Destination, DestinationId, MeshSnapshot, ModeSource, TrimmingMode,
    access::explain::{self, Call, Explanation, explain},
};

use measure::{ClassFootprint, Measure};

/// More destinations than this are not listed.
const MAX_DESTINATIONS: usize = 1000;
/// Number of resources that are planned to measure the proxies of a page.
const BUDGET: usize = 400_000;

/// Mode of trimming for the proxy.
pub fn mode(mesh: &MeshSnapshot, dataplane: &Resource) -> ReachabilityMode {
    let trimming = mesh.trimming(dataplane);
    ReachabilityMode {
        asked: trimming.mode.word().into(),
        said_by: match trimming.said {
            ModeSource::ByProxy => "Dataplane",
            ModeSource::ByZone => "zone",
            ModeSource::ByMesh => "Mesh",
            ModeSource::ByControlPlane => "control plane",
        }
        .into(),
        active: trimming.active().word().into(),
        inactive: trimming.inactive.filter(|_| trimming.mode != TrimmingMode::Off).map(|why| why.to_string()),
        stub: trimming.stub,
    }
}

/// A proxy, and what it has with trimming and without.
struct ProxyView<'a> {
    snapshot: &'a Snapshot,
    mesh: &'a MeshSnapshot,
    dataplane: Arc<Resource>,
    class: ClientClass,
    before: Arc<ClassFootprint>,
    after: Arc<ClassFootprint>,
    /// True if the proxy is sent its configuration with trimming.
    trims: bool,
}

impl<'a> ProxyView<'a> {
    fn of(
        (snapshot, mesh): (&'a Snapshot, &'a MeshSnapshot),
        traits: &ProxyTraits,
        measure: &mut Measure,
    ) -> Result<ProxyView<'a>, plan::Error> {
        let (_, class, dataplane) = planned(mesh, traits, Calls::of)?;
        let client = ClientClass::of(mesh, &dataplane);
        let (before, after) = measure.both(mesh, class, &client);
        let trims = mesh.trimming(&dataplane).active() == TrimmingMode::Enforce;
        Ok(ProxyView { snapshot, mesh, dataplane, class: client, before, after, trims })
    }

    fn is_trimmed(&self, id: &DestinationId) -> bool {
        let goes = self.before.destinations.contains(id) && !self.after.destinations.contains(id);
        self.trims && goes
    }

    /// True if trimming takes all of these destinations from the proxy.
    fn are_trimmed(&self, ids: &[DestinationId]) -> bool {
        let has = |id: &DestinationId| self.after.destinations.contains(id);
        ids.iter().any(|id| self.is_trimmed(id)) && !ids.iter().any(has)
    }

    fn report(&self) -> ReachabilityReport {
        measure::report(&self.before, &self.after, self.trims)
    }

    fn kri(&self) -> String {
        self.dataplane.kri("").map(|kri| kri.to_string()).unwrap_or_default()
    }

    fn reached(&self, id: &DestinationId) -> ReachabilityDestination {
        let lookup = |key: &Key| self.snapshot.get(key);
        let destination = self.mesh.destinations.get(id);
        let of = |it| access::call_decision(&lookup, self.mesh, &self.class, it, self.is_trimmed(id));
        let verdict = |reached: Option<&access::CallDecision>| {
            reached.map_or(ReachabilityVerdict::Unknown, |reached| shown_verdict(reached.verdict))
        };
        let reached = destination.map(of);
        let rules = reached.iter().flat_map(|reached| &reached.decided_by);
        ReachabilityDestination {
            destination: spelled(id),
            verdict: verdict(reached.as_ref()),
            callable_by_all: reached.as_ref().is_some_and(|reached| reached.callable_by_all),
            decided_by: rules.map(Kri::to_string).collect(),
            refusing: reached.as_ref().map_or(0, |reached| reached.refusing),
        }
    }

    /// Reason why the proxy has none of these destinations, where permissions are not the reason.
    fn missing(&self, ids: &[DestinationId]) -> Option<String> {
        if ids.iter().any(|id| self.before.destinations.contains(id)) {
            return None;
        }
        let why = access::why_not_offered(&self.dataplane);
        Some(format!("the proxy is not sent this destination: {why}"))
    }
}

/// Spelling of a destination: its identifier, or its tags.
pub fn spelled(id: &DestinationId) -> String {
    match id {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(tags) => {
            let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            tags.join(",")
        }
    }
}

/// Destinations of a proxy; with `to`, the reason why it reaches that destination or not.
pub fn of_proxy(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    traits: &ProxyTraits,
    to: Option<&str>,
) -> Result<ProxyReachabilityAnswer, InspectError> {
    let unsupported = |error: plan::Error| InspectError::Unsupported(error.to_string());
    let asked = mesh.dataplanes.get(&traits.name).map(|dataplane| mesh.trimming(dataplane).mode);
    let mut measure = if to.is_some() || asked == Some(TrimmingMode::Off) {
        Measure::of_destinations()
    } else {
        Measure::default()
    };
    let sight = ProxyView::of((snapshot, mesh), traits, &mut measure).map_err(unsupported)?;
    let mode = mode(mesh, &sight.dataplane);
    match to {
        Some(to) => {
            let answer = one(&sight, mode, to).map(ProxyReachabilityAnswer::One);
            answer.map_err(|error| InspectError::NotFound(error.to_string()))
        }
        None => Ok(ProxyReachabilityAnswer::All(all(&sight, mode))),
    }
}

fn all(sight: &ProxyView<'_>, mode: ReachabilityMode) -> ProxyReachability {
    let mut counts = ReachabilityCounts::default();
    let mut destinations: Vec<ReachabilityDestination> = Vec::new();
    for id in &sight.before.destinations {
        let reached = sight.reached(id);
        match reached.verdict {
            ReachabilityVerdict::Reachable => counts.reachable += 1,
            ReachabilityVerdict::Trimmed => counts.trimmed += 1,
            ReachabilityVerdict::Denied => counts.denied += 1,
            ReachabilityVerdict::Unknown => counts.unknown += 1,
        }
        destinations.push(reached);
    }
    destinations
        .sort_by_cached_key(|it| (it.verdict == ReachabilityVerdict::Reachable, it.destination.clone()));
    let truncated = destinations.len() > MAX_DESTINATIONS;
    destinations.truncate(MAX_DESTINATIONS);
    let report = (mode.asked != TrimmingMode::Off.word()).then(|| sight.report());
    ProxyReachability { kri: sight.kri(), mode, counts, report, destinations, truncated }
}

fn one(
    sight: &ProxyView<'_>,
    mode: ReachabilityMode,
    to: &str,
) -> Result<DestinationReachability, AccessQuestionError> {
    let found = access::destinations(sight.mesh, to)?;
    let ids: Vec<DestinationId> = found.iter().map(|destination| destination.id.clone()).collect();
    let lookup = |key: &Key| sight.snapshot.get(key);
    let (servers, truncated) = access::servers(&lookup, sight.mesh, &found);
    let name = name_of(found.first().copied());
    let call = Call {
        mesh: sight.mesh,
        client: &sight.class,
        destination: &name,
        destinations: &ids,
        serving: &access::serving(&lookup, sight.mesh, &found),
        trims: sight.are_trimmed(&ids),
    };
    let explained = ReachabilityExplanation {
        missing: sight.missing(&ids),
        ..explained(explain(&call, &servers), truncated)
    };
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

/// An explanation in the words of the API.
pub fn explained(from: Explanation, truncated: bool) -> ReachabilityExplanation {
    let text = |rules: &[Kri]| rules.iter().map(Kri::to_string).collect::<Vec<_>>();
    let refusing_total = from.refusing_total;
    let change = from.change.map(|change| ReachabilityChange {
        text: change.text(),
        rules: text(&change.rules()),
        resources: change.permissions().to_vec(),
        notes: change.notes().to_vec(),
    });
    let answers = from.answers.into_iter().map(|answer| ReachabilityAnswer {
        server: answer.server,
        servers: answer.servers,
        allowed: answer.allowed,
        rule: answer.rule.map(|rule| rule.to_string()),
        reason: answer.reason,
    });
    ReachabilityExplanation {
        verdict: shown_verdict(from.verdict),
        reason: from.reason,
        decided_by: text(&from.decided_by),
        answers: answers.collect(),
        refusing: text(&from.refusing),
        refusing_total,
        truncated,
        missing: None,
        change,
    }
}

/// A verdict in the words of the API.
fn shown_verdict(verdict: explain::ReachabilityVerdict) -> ReachabilityVerdict {
    match verdict {
        explain::ReachabilityVerdict::Reachable => ReachabilityVerdict::Reachable,
        explain::ReachabilityVerdict::Trimmed => ReachabilityVerdict::Trimmed,
        explain::ReachabilityVerdict::Denied => ReachabilityVerdict::Denied,
        explain::ReachabilityVerdict::Unknown => ReachabilityVerdict::Unknown,
    }
}

/// True if trimming takes all of these destinations from a proxy.
pub fn trims(snapshot: &Snapshot, mesh: &MeshSnapshot, traits: &ProxyTraits, ids: &[DestinationId]) -> bool {
    let Some(dataplane) = mesh.dataplanes.get(&traits.name) else { return false };
    if mesh.trimming(dataplane).active() != TrimmingMode::Enforce {
        return false;
    }
    let sight = ProxyView::of((snapshot, mesh), traits, &mut Measure::of_destinations());
    sight.is_ok_and(|sight| sight.are_trimmed(ids))
}

/// Effect of trimming for the proxies of a mesh, from the offset on, in use or not.
pub fn of_mesh(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    traits: impl Fn(&Resource) -> ProxyTraits,
    offset: usize,
    size: usize,
) -> MeasuredProxies {
    let mut measure = Measure::default();
    let page = mesh.dataplanes.values().skip(offset).take(size);
    let items = page.map(|dataplane| {
        let mode = mode(mesh, dataplane);
        let wanted = mode.asked != TrimmingMode::Off.word() && measure.planned() < BUDGET;
        let sight = wanted.then(|| ProxyView::of((snapshot, mesh), &traits(dataplane), &mut measure).ok());
        let sight = sight.flatten();
        let report = sight.map(|sight| sight.report());
        ProxySavings { name: dataplane.name().to_owned(), zone: None, mode, report }
    });
    MeasuredProxies { total: mesh.dataplanes.len(), items: items.collect(), zones: Vec::new() }
}
