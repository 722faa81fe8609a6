//! Time for which calls to each service were observed.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use resources::{Resource, labels};

use super::{SuggestionInput, servers::Group};
use crate::{DestinationId, MeshSnapshot};

/// Time for which calls to what is asked about were observed.
pub(super) struct Windows {
    /// Time since which all of it is observed.
    pub since: Option<Timestamp>,
    /// Destinations that joined after the first report of the mesh, each with the time; the newest first.
    pub newest: Vec<(DestinationId, Timestamp)>,
}

/// The time that counts for a service begins when the mesh is observed and the service is known: its proxies, the
/// resource that stands for it, or a call to it. Proxies come and go with every deployment, and a service is as old as
/// what is oldest of these.
pub(super) fn of<'g>(question: &SuggestionInput<'_>, groups: impl Iterator<Item = &'g Group>) -> Windows {
    let Some(observed) = question.observed.since else { return Windows { since: None, newest: Vec::new() } };
    let mut called: BTreeMap<&DestinationId, Timestamp> = BTreeMap::new();
    for (edge, seen) in &question.observed.edges {
        let first = called.entry(&edge.destination).or_insert(seen.first);
        *first = seen.first.min(*first);
    }
    let known =
        groups.filter_map(|group| Some((group.first().clone(), known_since(question, group, &called)?)));
    let mut newest: Vec<_> = known.filter(|(_, since)| *since > observed).collect();
    newest.sort_by_key(|(_, since)| Reverse(*since));
    Windows { since: Some(newest.first().map_or(observed, |(_, since)| *since)), newest }
}

fn known_since(
    question: &SuggestionInput<'_>,
    group: &Group,
    called: &BTreeMap<&DestinationId, Timestamp>,
) -> Option<Timestamp> {
    let mesh = question.mesh;
    let proxies = group.places.iter().filter_map(|(name, _)| mesh.dataplanes.get(name)).map(|it| it.created);
    let resources = group.destinations.iter().filter_map(|id| {
        let service = mesh.destinations.get(id)?.service.as_ref()?;
        (question.stored)(service).map(|stored| stored.created)
    });
    let seen = group.destinations.iter().filter_map(|id| called.get(id).copied());
    proxies.chain(resources).chain(seen).min()
}

/// Clients of other zones may call destinations of this zone.
pub(super) fn has_clients_elsewhere(mesh: &MeshSnapshot) -> bool {
    let of_global = |mesh: &Resource| mesh.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL);
    of_global(&mesh.mesh) && mesh.zones.is_entered()
}
