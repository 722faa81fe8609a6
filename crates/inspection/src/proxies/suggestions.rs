//! Permissions that observed calls need, in the form of the API.

use api::InspectError;
use contract::{
    suggestions as api_suggestions, suggestions::DeniedCall, suggestions::Open, suggestions::SeenCall,
    suggestions::SuggestedPermission, suggestions::Suggestions, suggestions::SuggestionsWindow,
};
use jiff::{SignedDuration, Timestamp};
use resources::{Labels, format::universal, labels, naming::Kri};
use store::Snapshot;
use topology::{
    DestinationId, MeshSnapshot,
    access::suggest::{self, AllowAll, Evidence, RefusedCall, ReportingProxies, SuggestionInput},
    observed::{ObservedEdges, destination_text},
};

/// Suggestions for the mesh, or for one service of it.
pub fn of(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    observed: &ObservedEdges,
    proxies: ReportingProxies,
    service: Option<&str>,
    until: Timestamp,
) -> Result<Suggestions, InspectError> {
    // A federated zone writes only what says that it is the zone's; another one does not mind.
    let labels = Labels::from([(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned())]);
    let question = SuggestionInput {
        mesh,
        observed,
        until,
        service,
        stored: &|key| snapshot.get(key).cloned(),
        labels: &labels,
        proxies: Some(proxies),
    };
    let found = suggest::suggest(&question).map_err(|error| InspectError::NotFound(error.to_string()))?;
    let permissions = found.permissions.into_iter().map(|permission| SuggestedPermission {
        resource: universal::render_draft(&permission.resource),
        evidence: permission.evidence.iter().map(call).collect(),
        notes: permission.notes,
    });
    Ok(Suggestions {
        window: SuggestionsWindow {
            newest: found.newest.as_ref().map(destination_text),
            ..window(found.since, found.until)
        },
        other_zones: found.other_zones,
        warnings: found.warnings,
        permissions: permissions.collect(),
        denied: found.denied.iter().map(denied).collect(),
        unseen: found.unseen.iter().map(destination_text).collect(),
        already_allowed: found.already_allowed,
        allow_all: found.allow_all.iter().map(allow_all).collect(),
        open: found.open.iter().map(open).collect(),
        closing: found.closing.iter().map(universal::render_draft).collect(),
    })
}

fn window(since: Option<Timestamp>, until: Timestamp) -> SuggestionsWindow {
    let length = since.map_or(SignedDuration::ZERO, |since| until.duration_since(since));
    SuggestionsWindow {
        since: since.map(|since| since.to_string()),
        newest: None,
        until: until.to_string(),
        seconds: u64::try_from(length.as_secs()).unwrap_or_default(),
    }
}

fn call(Evidence { edge, seen, refused }: &Evidence) -> SeenCall {
    SeenCall {
        caller: edge.caller.to_string(),
        destination: destination_text(&edge.destination),
        first_seen: seen.first.to_string(),
        last_seen: seen.last.to_string(),
        count: seen.count,
        refused: *refused,
    }
}

fn denied(refused: &RefusedCall) -> DeniedCall {
    let RefusedCall { edge, seen, policy, gets_through } = refused;
    DeniedCall {
        caller: edge.caller.to_string(),
        destination: destination_text(&edge.destination),
        first_seen: seen.first.to_string(),
        last_seen: seen.last.to_string(),
        count: seen.count,
        policy: policy.to_string(),
        gets_through: *gets_through,
    }
}

fn allow_all(AllowAll { policy, rest }: &AllowAll) -> api_suggestions::AllowAll {
    let kri = policy.kri("").map(|kri| kri.to_string()).unwrap_or_default();
    let rest = rest.as_ref().map(universal::render_draft);
    api_suggestions::AllowAll { name: policy.name().to_owned(), kri, rest }
}

fn open((entry, destinations): (&Kri, &Vec<DestinationId>)) -> Open {
    Open { policy: entry.to_string(), destinations: destinations.iter().map(destination_text).collect() }
}
