//! Writes that a peer's responses cause here.
//!
//! [`Receiver::receive`] judges a response once; [`Receiver::plan`] says what is to be written for it on a snapshot,
//! as often as other writers make the snapshot outdated. A resource that is refused does not keep out the others.

mod encoded;
mod place;
mod stranger;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Scope, Violations, labels};
use store::{Snapshot, Write};

use self::{encoded::EncodedResources, stranger::PeerIdentity};
pub use self::{place::Role, stranger::Stranger};
use crate::{
    Synced,
    guard::{Guard, MissingResources},
    mapping,
    quota::{Quota, StoredCount},
    rights::RightsViolation,
};

/// Limit of the reasons in a NACK; `REASON` limits the bytes of each.
const REASONS: usize = 5;
const REASON: usize = 300;
/// Limit of rejected resources remembered per kind; `NAME` limits the bytes of each name.
const MOST_REFUSED: usize = 1000;
const NAME: usize = 600;

/// One stream of responses.
#[derive(Debug)]
pub struct Receiver {
    role: Role,
    /// Kinds whose complete set has come.
    complete: BTreeSet<Kind>,
    /// Names in the parts of a complete set that is not complete yet.
    named: BTreeMap<Kind, RemoteNames>,
    /// Resources whose mesh is not here yet.
    waiting: EncodedResources,
    /// Resources that were rejected and not sent again since.
    refused: BTreeMap<Kind, RefusedByName>,
    identity: PeerIdentity,
}

/// Rejections of a kind, by the name on the wire.
#[derive(Debug, Default)]
struct RefusedByName {
    reasons: BTreeMap<String, String>,
    /// There are more than are remembered. The next connection begins anew.
    more: bool,
}

impl RefusedByName {
    fn add(&mut self, refused: RefusedResource) {
        if self.reasons.len() >= MOST_REFUSED && !self.reasons.contains_key(&refused.name) {
            self.more = true;
            return;
        }
        let RefusedResource { mut name, mut reason } = refused;
        name.truncate(boundary(&name, NAME));
        reason.truncate(boundary(&reason, REASON));
        self.reasons.insert(name, reason);
    }
}

/// Resources that exist at the peer.
#[derive(Debug, Default)]
struct RemoteNames {
    keys: BTreeSet<Key>,
    /// Unreadable resources, which exist all the same; by the name on the wire.
    unread: BTreeSet<String>,
}

/// A response, decoded.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub kind: Kind,
    pub resources: Vec<Synced>,
    pub removed: Vec<Key>,
    /// Resources that could not be decoded.
    pub refused: Vec<RefusedResource>,
    /// Other parts of the complete set follow.
    pub more: bool,
}

/// A resource that is not stored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedResource {
    pub name: String,
    pub reason: String,
}

/// A response that has been judged.
#[derive(Debug, Clone)]
pub struct Batch {
    pub kind: Kind,
    pub resources: Vec<Synced>,
    pub deletions: Vec<Key>,
    pub refused: Vec<RefusedResource>,
    /// Number of held deletions.
    pub held: usize,
    /// Changes of resources in use are held.
    pub holds_changes: bool,
    pub room: NewResourceQuota,
}

/// Number of new resources of a batch that may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewResourceQuota {
    pub reserved: usize,
    /// Limit of the peer's resources of the kind; `None` means no limit.
    pub most: Option<usize>,
}

impl NewResourceQuota {
    fn is_used_up(self, created: usize) -> bool {
        self.most.is_some() && created >= self.reserved
    }
}

impl Batch {
    /// Deletions of what is stored.
    pub fn of_deletions(kind: Kind, deletions: Vec<Key>) -> Batch {
        let room = NewResourceQuota { reserved: 0, most: None };
        Batch {
            kind,
            resources: Vec::new(),
            deletions,
            refused: Vec::new(),
            held: 0,
            holds_changes: false,
            room,
        }
    }
}

/// Writes for a batch. They are independent of each other.
#[derive(Debug, Default)]
pub struct ReceivedWrites {
    pub writes: Vec<Write>,
    pub refused: Vec<RefusedResource>,
    /// Resources of meshes that are not here.
    pub orphans: Vec<Synced>,
    /// Changes of resources in use, by a global control plane other than the zone's.
    pub held: Vec<Synced>,
}

impl Receiver {
    pub fn new(role: Role) -> Receiver {
        Receiver {
            role,
            complete: BTreeSet::new(),
            named: BTreeMap::new(),
            waiting: EncodedResources::default(),
            refused: BTreeMap::new(),
            identity: PeerIdentity::default(),
        }
    }

    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Takes up a response.
    pub fn receive(&mut self, arrival: Arrival, snapshot: &Snapshot, guard: &mut Guard) -> Batch {
        let Arrival { kind, resources, removed, refused, more } = arrival;
        let mut batch = Batch { resources, refused, ..Batch::of_deletions(kind, removed) };
        self.increment(&batch, guard);
        let is_first = !self.complete.contains(&kind);
        if is_first {
            if !self.named.contains_key(&kind) {
                self.waiting.remove_kind(kind);
                self.refused.remove(&kind);
                guard.quota.count(kind, self.stored(kind, snapshot));
            }
            self.named.entry(kind).or_default().add(&batch);
        }
        self.identify(&mut batch, snapshot);
        batch.holds_changes = self.holds_changes(kind, guard);
        if batch.holds_changes {
            self.hold_deletions(&mut batch, snapshot, guard);
        }
        if is_first && !more {
            self.complete.insert(kind);
            let named = self.named.remove(&kind).unwrap_or_default();
            self.complete(&named, &mut batch, snapshot, guard);
        }
        self.make_room(&mut batch, snapshot, &mut guard.quota);
        batch
    }

    fn stored<'s>(&'s self, kind: Kind, snapshot: &'s Snapshot) -> StoredCount<impl FnOnce() -> usize + 's> {
        let theirs = move || snapshot.of_kind(kind).filter(|stored| self.role.is_theirs(stored)).count();
        StoredCount { all: snapshot.count(kind, None), theirs }
    }

    fn make_room(&self, batch: &mut Batch, snapshot: &Snapshot, quota: &mut Quota) {
        let is_new = |resource: &&Synced| snapshot.get(&resource.key).is_none();
        let new = batch.resources.iter().filter(is_new).count();
        let theirs = |key: &&Key| snapshot.get(key).is_some_and(|stored| self.role.is_theirs(stored));
        let deleted = batch.deletions.iter().filter(theirs).count();
        let reserved = quota.reserve(batch.kind, new, deleted, self.stored(batch.kind, snapshot));
        batch.room = NewResourceQuota { reserved, most: quota.most() };
    }

    fn increment(&mut self, batch: &Batch, guard: &mut Guard) {
        for key in batch.resources.iter().map(|resource| &resource.key).chain(&batch.deletions) {
            guard.settled(key);
            self.waiting.remove(key);
            self.identity.forget(key);
        }
    }

    /// A complete set lacks what does not exist any more, unless the guard holds that back.
    fn complete(&self, named: &RemoteNames, batch: &mut Batch, snapshot: &Snapshot, guard: &mut Guard) {
        let theirs = || snapshot.of_kind(batch.kind).filter(|stored| self.role.is_theirs(stored));
        let is_missing = |key: &&Key| !named.has(key) && !stranger::is_cluster_id(key);
        let missing = theirs().map(|stored| &stored.key).filter(is_missing).cloned();
        let (in_use, others): (BTreeSet<Key>, BTreeSet<Key>) =
            missing.partition(|key| self.is_in_use(key, snapshot));
        let count = in_use.len() + others.len();
        let deleted = guard.judge(batch.kind, MissingResources { in_use, others }, theirs().count());
        batch.held = count - deleted.len();
        batch.deletions.extend(deleted);
    }

    /// Proxies of this zone cannot do without it, and no one can make it again: meshes and keys.
    fn is_in_use(&self, key: &Key, snapshot: &Snapshot) -> bool {
        let has = |kind: Kind, mesh: Option<&str>| snapshot.count(kind, mesh) > 0;
        match (&self.role, key.kind) {
            // Zones bring neither to global.
            (Role::Global(_), _) => false,
            (Role::Zone(_), Kind::Mesh) => has(Kind::Dataplane, Some(&key.name)),
            (Role::Zone(_), Kind::Secret) => has(Kind::Dataplane, Some(&key.mesh)),
            // The zone's own global control plane deletes them on purpose: it has its data.
            (Role::Zone(_), Kind::MeshIdentity | Kind::MeshTrust) => {
                self.stranger().is_some() && has(Kind::Dataplane, Some(&key.mesh))
            }
            (Role::Zone(_), Kind::GlobalSecret) => {
                [Kind::Dataplane, Kind::ZoneIngress, Kind::ZoneEgress].iter().any(|kind| has(*kind, None))
            }
            (Role::Zone(_), _) => false,
        }
    }

    /// Returns the resources that waited for a mesh of the snapshot, as batches by kind.
    pub fn no_longer_waiting(&mut self, snapshot: &Snapshot, guard: &mut Guard) -> Vec<Batch> {
        let waiting = self.waiting.keys();
        let ready: Vec<Key> = waiting.filter(|key| has_mesh(snapshot, key)).cloned().collect();
        let resources: Vec<Synced> = ready.iter().filter_map(|key| self.waiting.remove(key)).collect();
        for resource in &resources {
            if let Some(refused) = self.refused.get_mut(&resource.key.kind) {
                refused.reasons.remove(&mapping::wire_name(&resource.key));
            }
        }
        self.batches(resources, snapshot, guard)
    }

    /// Resources that were kept, to be stored now.
    fn batches(&self, resources: Vec<Synced>, snapshot: &Snapshot, guard: &mut Guard) -> Vec<Batch> {
        let mut by_kind: BTreeMap<Kind, Vec<Synced>> = BTreeMap::new();
        for resource in resources {
            by_kind.entry(resource.key.kind).or_default().push(resource);
        }
        let batch = |(kind, resources)| {
            let holds_changes = self.holds_changes(kind, guard);
            let mut batch = Batch { resources, holds_changes, ..Batch::of_deletions(kind, Vec::new()) };
            self.make_room(&mut batch, snapshot, &mut guard.quota);
            batch
        };
        by_kind.into_iter().map(batch).collect()
    }

    /// Keeps resources until their mesh comes. Says which are too many.
    #[must_use]
    pub fn wait(&mut self, orphans: Vec<Synced>) -> Vec<RefusedResource> {
        let mut refused = Vec::new();
        for orphan in orphans.iter().filter(|orphan| !self.waiting.add(orphan)) {
            let mesh = &orphan.key.mesh;
            refused.push(RefusedResource {
                name: mapping::wire_name(&orphan.key),
                reason: format!(
                    "mesh {mesh:?} is not found, and what waits for meshes has {} bytes",
                    encoded::MOST
                ),
            });
        }
        refused
    }

    /// The answer to the peer after a batch was stored: `None` is an ACK. Whatever is not as the peer wants it is
    /// in every answer until it is.
    pub fn complaint(
        &mut self,
        batch: &Batch,
        refused: Vec<RefusedResource>,
        guard: &Guard,
    ) -> Option<String> {
        let known = self.refused.entry(batch.kind).or_default();
        for key in batch.resources.iter().map(|resource| &resource.key).chain(&batch.deletions) {
            known.reasons.remove(&mapping::wire_name(key));
        }
        refused.into_iter().for_each(|refused| known.add(refused));
        let held = guard.held().find(|(kind, _)| *kind == batch.kind).map_or(0, |(_, count)| count);
        let known = self.refused.get(&batch.kind);
        complaint(known, held, self.says_held_changes(batch.kind))
    }

    /// Plans the writes of a batch on this snapshot.
    pub fn plan(&self, batch: &Batch, snapshot: &Snapshot, now: Timestamp) -> ReceivedWrites {
        let mut plan = ReceivedWrites { refused: batch.refused.clone(), ..ReceivedWrites::default() };
        let mut created = 0;
        for resource in &batch.resources {
            match self.admit(resource, batch, snapshot, now) {
                Ok(Some(Write::Create(_))) if batch.room.is_used_up(created) => {
                    plan.refuse(&resource.key, self.no_room(batch));
                }
                Ok(Some(write)) => {
                    created += usize::from(matches!(write, Write::Create(_)));
                    plan.writes.push(write);
                }
                Ok(None) => {}
                Err(NotWritten::NoMesh) => {
                    // A zone gets its meshes from the same peer; on global it must have been deleted.
                    if matches!(self.role, Role::Global(_)) {
                        plan.refuse(&resource.key, format!("mesh {:?} is not found", resource.key.mesh));
                    }
                    plan.orphans.push(resource.clone());
                }
                Err(NotWritten::Held) => plan.held.push(resource.clone()),
                Err(NotWritten::Refused(reason)) => plan.refuse(&resource.key, reason),
            }
        }
        for key in &batch.deletions {
            let stored = snapshot.get(key).filter(|stored| self.role.is_theirs(stored));
            plan.writes.extend(stored.map(|stored| deletion(stored)));
        }
        plan
    }

    fn no_room(&self, batch: &Batch) -> String {
        let most = batch.room.most.unwrap_or_default();
        format!(
            "zone {:?} has {most} resources of kind {}, which is the most there is room for: delete some of them, or raise \
             multizone.global.kds.maxResourcesPerKind on the global control plane",
            self.role.zone(),
            batch.kind
        )
    }

    fn admit(
        &self,
        synced: &Synced,
        batch: &Batch,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Option<Write>, NotWritten> {
        let kind = batch.kind;
        if synced.key.kind != kind || synced.spec.kind() != kind {
            return Err(NotWritten::Refused(format!("it is no {kind}")));
        }
        let pinned = self.role.pinned(synced).map_err(NotWritten::of)?;
        let stored = snapshot.get(&pinned.key);
        if let Some(stored) = stored {
            self.role.may_replace(stored, &pinned).map_err(NotWritten::of)?;
        }
        if !has_mesh(snapshot, &pinned.key) {
            return Err(NotWritten::NoMesh);
        }
        validate(&pinned)?;
        let is_changed = stored.is_some_and(|stored| stored.spec != pinned.spec);
        if batch.holds_changes && is_changed && self.is_in_use(&pinned.key, snapshot) {
            return Err(NotWritten::Held);
        }
        Ok(self.write(pinned, stored, now))
    }

    fn write(&self, synced: Synced, stored: Option<&Arc<Resource>>, now: Timestamp) -> Option<Write> {
        let owner = self.role.owner(&synced.key);
        let Synced { key, labels, spec, status } = synced;
        let status = match self.role {
            Role::Global(_) => status,
            // What a zone found out about it, such as its address, is the zone's.
            Role::Zone(_) => stored.and_then(|stored| stored.status.clone()),
        };
        let created = stored.map_or(now, |stored| stored.created);
        let resource = Resource { key, labels, created, modified: now, version: 0, owner, spec, status };
        match stored {
            None => Some(Write::Create(resource)),
            Some(stored) if is_same(stored, &resource) => None,
            Some(stored) => Some(Write::Update { resource, expected: stored.version }),
        }
    }
}

enum NotWritten {
    NoMesh,
    Held,
    Refused(String),
}

impl NotWritten {
    fn of(violation: RightsViolation) -> NotWritten {
        NotWritten::Refused(violation.to_string())
    }
}

fn is_same(stored: &Resource, resource: &Resource) -> bool {
    stored.labels == resource.labels
        && stored.spec == resource.spec
        && stored.status == resource.status
        && stored.owner == resource.owner
}

fn has_mesh(snapshot: &Snapshot, key: &Key) -> bool {
    key.kind.descriptor().scope == Scope::Global
        || snapshot.get(&Key::global(Kind::Mesh, &key.mesh)).is_some()
}

fn validate(synced: &Synced) -> Result<(), NotWritten> {
    let mut found = Violations::default();
    let subject =
        resources::Subject { mesh: &synced.key.mesh, name: &synced.key.name, labels: &synced.labels };
    synced.spec.validate(subject, &mut found);
    found.into_result().map_err(|violations| {
        let mut reason = violations.to_string();
        reason.truncate(boundary(&reason, REASON));
        reason.shrink_to_fit();
        NotWritten::Refused(reason)
    })
}

/// A mesh is not taken from under its proxies.
fn deletion(stored: &Resource) -> Write {
    let key = stored.key.clone();
    let expected = Some(stored.version);
    if key.kind == Kind::Mesh {
        Write::DeleteUnlessOwner { key, expected, of: Kind::Dataplane }
    } else {
        Write::Delete { key, expected }
    }
}

impl RemoteNames {
    fn add(&mut self, batch: &Batch) {
        self.keys.extend(batch.resources.iter().map(|resource| resource.key.clone()));
        for key in &batch.deletions {
            self.keys.remove(key);
        }
        self.unread.extend(batch.refused.iter().map(|refused| refused.name.clone()));
    }

    fn has(&self, key: &Key) -> bool {
        self.keys.contains(key) || self.unread.contains(mapping::wire_name(key).as_str())
    }
}

impl ReceivedWrites {
    fn refuse(&mut self, key: &Key, reason: String) {
        self.refused.push(RefusedResource { name: mapping::wire_name(key), reason });
    }
}

/// Reasons in words: `None` when there is none.
fn complaint(known: Option<&RefusedByName>, held: usize, changes: Option<String>) -> Option<String> {
    let mut parts: Vec<String> = changes.into_iter().collect();
    if let Some(known) = known {
        let refused = known.reasons.iter().take(REASONS);
        parts.extend(refused.map(|(name, reason)| format!("{name}: {reason}")));
        if known.reasons.len() > REASONS {
            let at_least = if known.more { "at least " } else { "" };
            parts.push(format!("and {at_least}{} more", known.reasons.len() - REASONS));
        }
    }
    if held > 0 {
        parts.push(format!(
            "{held} deletions are held back, because they are a large part of what is stored, or meshes and keys \
            that proxies here need: a large part is deleted when the next connection has the same deletions, and \
            all of it when the Zone has the label {}",
            labels::ACCEPT_DELETIONS
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the index to cut a text at, so that it has this length at most.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default()
}
