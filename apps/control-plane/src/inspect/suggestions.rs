//! Permissions that observed calls need, in the form of the API.

use api::{
    InspectError,
    inspect::suggestions::{
        self as api_suggestions, DeniedCall, Open, SeenCall, SuggestedPermission, Suggestions, Window,
    },
};
use jiff::{SignedDuration, Timestamp};
use resources::{Labels, format::universal, labels, naming::Kri};
use store::Snapshot;
use topology::{
    DestinationId, MeshSnapshot,
    observed::{Observed, destination_text},
    reachability::suggest::{self, AllowAll, Evidence, Proxies, Question, Refused},
};

/// What is suggested for the mesh, or for one service of it.
pub fn of(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    observed: &Observed,
    proxies: Proxies,
    service: Option<&str>,
    until: Timestamp,
) -> Result<Suggestions, InspectError> {
    // A federated zone writes only what says that it is the zone's; another one does not mind.
    let labels = Labels::from([(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned())]);
    let question = Question {
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
        window: Window {
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

fn window(since: Option<Timestamp>, until: Timestamp) -> Window {
    let length = since.map_or(SignedDuration::ZERO, |since| until.duration_since(since));
    Window {
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

fn denied(refused: &Refused) -> DeniedCall {
    let Refused { edge, seen, policy, gets_through } = refused;
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
