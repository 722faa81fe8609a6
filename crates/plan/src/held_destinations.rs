//! Destinations that proxies of a class are offered until servers have acknowledged a change of permissions.

use std::collections::BTreeSet;

use topology::{ClientClass, DestinationId, MeshSnapshot};

use crate::{Class, Context, Dependency};

/// Difference between offered and allowed destinations of a class, until servers have acknowledged a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldDestinations {
    /// Destinations that it may call and is not offered yet.
    pub withheld: BTreeSet<DestinationId>,
    /// Destinations that it may not call any more and is still offered.
    pub kept: BTreeSet<DestinationId>,
}

impl HeldDestinations {
    /// Returns the destinations offered to a class that may call these.
    #[must_use]
    pub fn offered(&self, callable: BTreeSet<DestinationId>) -> BTreeSet<DestinationId> {
        let mut offered = callable;
        offered.retain(|id| !self.withheld.contains(id));
        offered.extend(self.kept.iter().cloned());
        offered
    }

    /// The class is offered the destination.
    pub(crate) fn offers(&self, id: &DestinationId, callable: bool) -> bool {
        callable && !self.withheld.contains(id) || self.kept.contains(id)
    }
}

impl Context<'_> {
    /// Returns the destinations that a client is offered because it may call them.
    pub(crate) fn callable(&self, client: &ClientClass) -> BTreeSet<DestinationId> {
        self.reads.note(Dependency::Reachability(client.clone()));
        self.reads.note(Dependency::ReachabilityByDefault);
        let callable = of_client(self.snapshot, client);
        match self.held {
            Some(held) => held.offered(callable),
            None => callable,
        }
    }

    /// The client is offered the destination.
    pub(crate) fn calls(&self, client: &ClientClass, id: &DestinationId) -> bool {
        let callable = self.snapshot.access.reaches(client, id);
        self.held.map_or(callable, |held| held.offers(id, callable))
    }
}

/// Returns the destinations that a class may call; `None` for a class that is not trimmed.
pub fn callable(snapshot: &MeshSnapshot, class: &Class) -> Option<BTreeSet<DestinationId>> {
    class.trimmed.as_ref().map(|client| of_client(snapshot, client))
}

/// The destinations that clusters of a class lead to whatever its permissions say: it lists them, or routes lead there.
/// Trimming takes all others that the client may not call.
pub fn never_trimmed(
    snapshot: &MeshSnapshot,
    class: &Class,
    client: &ClientClass,
) -> BTreeSet<DestinationId> {
    let trimmed = Class { trimmed: Some(client.clone()), stub: false, ..class.clone() };
    // As if it might call nothing.
    let plan = crate::outgoing_while(snapshot, &trimmed, Some(&HeldDestinations::default()));
    plan.backends.into_iter().map(|backend| backend.destination).collect()
}

fn of_client(snapshot: &MeshSnapshot, client: &ClientClass) -> BTreeSet<DestinationId> {
    snapshot.access.destinations(client).into_iter().cloned().collect()
}
