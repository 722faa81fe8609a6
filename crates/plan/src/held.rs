//! What proxies of a class are offered until servers have acknowledged a change of permissions.

use std::collections::BTreeSet;

use topology::{ClientClass, DestinationId, MeshSnapshot};

use crate::{Class, Context, Dependency};

/// What a class is offered otherwise than it may call it, until servers know of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// What it may call and is not offered yet.
    pub withheld: BTreeSet<DestinationId>,
    /// What it may not call any more and is still offered.
    pub kept: BTreeSet<DestinationId>,
}

impl Held {
    /// What is offered to a class that may call these.
    #[must_use]
    pub fn offered(&self, callable: BTreeSet<DestinationId>) -> BTreeSet<DestinationId> {
        let mut offered = callable;
        offered.retain(|id| !self.withheld.contains(id));
        offered.extend(self.kept.iter().cloned());
        offered
    }

    /// Whether a destination is offered.
    pub(crate) fn offers(&self, id: &DestinationId, callable: bool) -> bool {
        callable && !self.withheld.contains(id) || self.kept.contains(id)
    }
}

impl Context<'_> {
    /// What a client is offered of what it may call.
    pub(crate) fn callable(&self, client: &ClientClass) -> BTreeSet<DestinationId> {
        self.reads.note(Dependency::Reach(client.clone()));
        self.reads.note(Dependency::ReachByDefault);
        let callable = of_client(self.snapshot, client);
        match self.held {
            Some(held) => held.offered(callable),
            None => callable,
        }
    }

    /// Whether a client is offered a destination.
    pub(crate) fn calls(&self, client: &ClientClass, id: &DestinationId) -> bool {
        let callable = self.snapshot.reachability.reaches(client, id);
        self.held.map_or(callable, |held| held.offers(id, callable))
    }
}

/// What a class may call; `None` for one that is not trimmed.
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
    let plan = crate::outgoing_while(snapshot, &trimmed, Some(&Held::default()));
    plan.backends.into_iter().map(|backend| backend.destination).collect()
}

fn of_client(snapshot: &MeshSnapshot, client: &ClientClass) -> BTreeSet<DestinationId> {
    snapshot.reachability.destinations(client).into_iter().cloned().collect()
}
