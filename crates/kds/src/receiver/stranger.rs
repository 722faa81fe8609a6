//! Protection of a zone from a global control plane that is not the one whose data it has.
//!
//! A global control plane sends its `kuma-cluster-id`, which all control planes on one store share, and the zone stores
//! it: that is the zone's memory of where its data came from. One that names another id, or none, began with an empty
//! store. It replaces and deletes no meshes, authorities and keys that proxies here need until an operator accepts
//! that. Where nothing of it is in the way, the zone takes it for its own.

use std::fmt;

use resources::{Key, Kind, Spec, kinds::config::Config, labels};
use store::Snapshot;

use super::{
    Batch, Receiver, RefusedResource, Role,
    encoded::{EncodedResources, MOST},
};
use crate::{Synced, guard::Guard, mapping, select::CLUSTER_ID};

/// Kinds that proxies cannot do without, and that no one can make again.
const NEEDED: [Kind; 5] = [Kind::Mesh, Kind::Secret, Kind::GlobalSecret, Kind::MeshIdentity, Kind::MeshTrust];
/// Letters of an identifier that are quoted.
const QUOTED: usize = 64;
/// Number of held changes that a complaint names.
const NAMED: usize = 3;

/// A global control plane other than the zone's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// The identifier of the zone's global control plane.
    known: String,
    /// The identifier that the peer has named on this connection.
    named: Option<String>,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            Some(named) => write!(f, "its {CLUSTER_ID} is {named:?} instead of {:?}", self.known),
            None => write!(f, "it names no {CLUSTER_ID}, which was {:?}", self.known),
        }
    }
}

/// The identity of the peer on this connection.
#[derive(Debug, Default)]
pub(super) struct PeerIdentity {
    /// The resource with the identifier that the peer has named.
    named: Option<Synced>,
    stranger: Option<Stranger>,
    /// Changes of resources in use.
    held: EncodedResources,
    /// There were more changes than can be kept. The next connection begins anew.
    more: bool,
}

impl PeerIdentity {
    pub fn forget(&mut self, key: &Key) {
        self.held.remove(key);
    }
}

pub(super) fn is_cluster_id(key: &Key) -> bool {
    key.kind == Kind::Config && *key.name == *CLUSTER_ID
}

impl Receiver {
    /// The peer, if it is a global control plane other than the one whose data this zone has.
    pub fn stranger(&self) -> Option<&Stranger> {
        self.identity.stranger.as_ref()
    }

    /// Reads who the peer is. A stranger's identifier is not stored, and none is deleted.
    pub(super) fn identify(&mut self, batch: &mut Batch, snapshot: &Snapshot) {
        if matches!(self.role, Role::Global(_)) {
            return;
        }
        if batch.deletions.iter().any(is_cluster_id) {
            self.identity.named = None;
            batch.deletions.retain(|key| !is_cluster_id(key));
        }
        if let Some(named) = batch.resources.iter().find(|resource| is_cluster_id(&resource.key)) {
            self.identity.named = Some(named.clone());
        }
        self.recognise(snapshot);
        if self.stranger().is_some() {
            batch.resources.retain(|resource| !is_cluster_id(&resource.key));
        }
    }

    fn recognise(&mut self, snapshot: &Snapshot) {
        let named = self.identity.named.as_ref().and_then(|named| identifier(&named.spec));
        let known = known(snapshot).filter(|known| named != Some(known));
        let quoted = |id: &str| id.chars().take(QUOTED).collect();
        self.identity.stranger =
            known.map(|known| Stranger { known: quoted(known), named: named.map(quoted) });
    }

    /// True if the peer's changes of resources in use wait for an operator.
    pub(super) fn holds_changes(&self, kind: Kind, guard: &Guard) -> bool {
        self.stranger().is_some() && !guard.accepts(kind)
    }

    /// Holds the deletions of a batch that would take resources in use.
    pub(super) fn hold_deletions(&mut self, batch: &mut Batch, snapshot: &Snapshot, guard: &mut Guard) {
        let is_needed = |key: &Key| {
            snapshot.get(key).is_some_and(|stored| self.role.is_theirs(stored))
                && self.is_in_use(key, snapshot)
        };
        let (kept, made): (Vec<Key>, Vec<Key>) =
            std::mem::take(&mut batch.deletions).into_iter().partition(is_needed);
        batch.deletions = made;
        for key in kept {
            self.identity.forget(&key);
            guard.hold(key);
        }
    }

    /// Keeps changes of resources in use until an operator accepts them. Says which are too many.
    #[must_use]
    pub fn hold(&mut self, changed: Vec<Synced>) -> Vec<RefusedResource> {
        let mut refused = Vec::new();
        for resource in changed.iter().filter(|resource| !self.identity.held.add(resource)) {
            self.identity.more = true;
            refused.push(RefusedResource {
                name: mapping::wire_name(&resource.key),
                reason: format!("what is held back of another global control plane has {MOST} bytes"),
            });
        }
        refused
    }

    /// Returns the changes that are held no longer, as batches by kind.
    pub fn released(&mut self, snapshot: &Snapshot, guard: &mut Guard) -> Vec<Batch> {
        self.recognise(snapshot);
        let held = self.identity.held.keys();
        let free: Vec<Key> = held.filter(|key| !self.holds_changes(key.kind, guard)).cloned().collect();
        let resources = free.iter().filter_map(|key| self.identity.held.remove(key)).collect();
        self.batches(resources, snapshot, guard)
    }

    /// Returns the identifier of a stranger to store, when all it has is known and nothing of that is held.
    pub fn adopted(&mut self, snapshot: &Snapshot, guard: &mut Guard) -> Option<Batch> {
        self.recognise(snapshot);
        self.stranger()?;
        let is_open = |kind: &Kind| !self.complete.contains(kind) || guard.has_held(*kind);
        if self.identity.more || !self.identity.held.is_empty() || NEEDED.iter().any(is_open) {
            return None;
        }
        let named = self.identity.named.clone()?;
        self.batches(vec![named], snapshot, guard).pop()
    }

    /// The held changes of a kind, in words.
    pub(super) fn says_held_changes(&self, kind: Kind) -> Option<String> {
        let stranger = self.stranger()?;
        let held: Vec<&Key> = self.identity.held.keys().filter(|key| key.kind == kind).collect();
        if held.is_empty() {
            return None;
        }
        let named: Vec<String> = held.iter().take(NAMED).map(|key| mapping::wire_name(key)).collect();
        let more = if held.len() > NAMED { ", …" } else { "" };
        Some(format!(
            "{} changes are held back ({}{more}), because this is another global control plane than the one that \
             the stored ones came from ({stranger}), and proxies here need them: they are made when the Zone has \
             the label {}",
            held.len(),
            named.join(", "),
            labels::ACCEPT_DELETIONS
        ))
    }
}

/// The identifier of the global control plane that the data of this zone came from. One that the zone made while it
/// was alone is not meant.
fn known(snapshot: &Snapshot) -> Option<&str> {
    let stored = snapshot.get(&Key::global(Kind::Config, CLUSTER_ID))?;
    let of_global = stored.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL);
    identifier(&stored.spec).filter(|_| of_global)
}

fn identifier(spec: &Spec) -> Option<&str> {
    spec.get::<Config>().map(|config| config.config.as_str()).filter(|id| !id.is_empty())
}
