//! Subscriptions of one peer, the resources it has been sent, and its next responses.
//!
//! The first response of a kind is complete: the peer deletes what is not in it. Those after it tell what changed.
//! A peer that is ours takes the complete set in parts, so that its size has no limit; only the last part makes it
//! delete. One response of a kind is in flight at a time. A change costs what it changes, and a resource whose content is
//! what the peer has is not sent again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use resources::{Key, Kind};
use store::{Dirty, Snapshot};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Synced, mapping,
    select::{Selection, WithdrawnZones},
};

/// Encodes a resource for the wire, or says why it cannot be.
pub type Encode = fn(&Synced) -> Result<Bytes, String>;

/// Bytes of a response without its resources, and without the name and version of each.
const ENVELOPE: usize = 1024;
const PER_RESOURCE: usize = 128;

/// The subscriptions of one peer.
#[derive(Debug)]
pub struct Provider {
    selection: Selection,
    encode: Encode,
    /// Bytes of a message.
    limit: usize,
    /// The peer accepts a complete set in parts.
    parts: bool,
    subscriptions: BTreeMap<Kind, Subscription>,
    off: WithdrawnZones,
    nonces: u64,
}

#[derive(Debug, Default)]
struct Subscription {
    sent: HashMap<Key, SentVersion>,
    due: DueKeys,
    in_flight: Option<u64>,
    /// Reason that the complete set cannot be sent; the next change tries again.
    stuck: Option<String>,
    /// Resources that cannot be sent, and the reasons.
    unsent: BTreeMap<Key, String>,
}

/// Keys to check before the next response.
#[derive(Debug)]
struct DueKeys {
    /// The peer has not the complete set yet: a response is due, also when it is empty.
    complete_set: bool,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    All,
    These(BTreeSet<Key>),
}

impl Default for DueKeys {
    fn default() -> Self {
        DueKeys { complete_set: true, keys: Keys::All }
    }
}

/// The version of a resource that the peer has.
#[derive(Debug)]
struct SentVersion {
    /// Its name over there, where that is another one than here.
    name: Option<Box<str>>,
    hash: u64,
}

/// A response to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub kind: Kind,
    pub nonce: String,
    pub resources: Vec<Encoded>,
    pub removed: Vec<String>,
    /// Other parts of the complete set follow.
    pub more: bool,
}

/// A resource in the form of the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    pub name: String,
    /// A hash of the content.
    pub version: String,
    pub body: Bytes,
}

/// Relation of a peer's answer to the response in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceMatch {
    /// The response that is in flight.
    Current,
    /// One that was answered before, or none of ours.
    Stale,
}

impl Provider {
    pub fn new(selection: Selection, encode: Encode, limit: usize) -> Provider {
        let subscriptions = BTreeMap::new();
        let off = WithdrawnZones::default();
        Provider { selection, encode, limit, parts: false, subscriptions, off, nonces: 0 }
    }

    /// Sets the support of the peer, a zone, for policies of other zones.
    pub fn understands_producer_policies(&mut self, does: bool) {
        self.selection.producer_policies = does;
    }

    /// Sets the peer's support for a complete set in parts.
    pub fn understands_parts(&mut self, does: bool) {
        self.parts = does;
    }

    /// Answers to this kind from now on, beginning with everything. Says whether it is a kind that goes this way;
    /// a peer gets no answer to the others, so that it deletes nothing of them.
    pub fn subscribe(&mut self, kind: Kind) -> bool {
        let carried = self.selection.direction.carries(kind);
        if carried {
            self.subscriptions.entry(kind).or_default();
        }
        carried
    }

    /// Takes up what changed.
    pub fn changed(&mut self, dirty: &Dirty, snapshot: &Snapshot) {
        match dirty {
            Dirty::Everything => {
                self.off = WithdrawnZones::of(snapshot);
                self.subscriptions.values_mut().for_each(Subscription::everything_is_due);
            }
            Dirty::Keys(keys) => {
                for key in keys {
                    if let Some(subscription) = self.subscriptions.get_mut(&key.kind) {
                        subscription.is_due(key);
                    }
                }
                self.zones_changed(keys, snapshot);
            }
        }
    }

    /// A zone that is switched off, or on again, concerns everything that crosses zones.
    fn zones_changed(&mut self, keys: &BTreeSet<Key>, snapshot: &Snapshot) {
        let mut changed = false;
        for key in keys {
            changed |= self.off.look_at(key, snapshot);
        }
        if changed {
            let across =
                self.subscriptions.iter_mut().filter(|(kind, _)| kind.descriptor().sync.across_zones);
            across.for_each(|(_, subscription)| subscription.everything_is_due());
        }
    }

    /// The next response, if one may and must be sent. Meshes come before what is in them.
    pub fn next(&mut self, snapshot: &Snapshot) -> Option<Response> {
        if self.nonces == 0 {
            self.off = WithdrawnZones::of(snapshot);
        }
        let kinds: Vec<Kind> = self.subscriptions.keys().copied().collect();
        kinds.into_iter().find_map(|kind| self.next_of(kind, snapshot))
    }

    fn next_of(&mut self, kind: Kind, snapshot: &Snapshot) -> Option<Response> {
        let subscription = self.subscriptions.get_mut(&kind)?;
        if subscription.is_quiet() {
            return None;
        }
        let complete_set = subscription.due.complete_set;
        let mut keys = subscription.take_due(kind, snapshot);
        let selection = &self.selection;
        let encode = self.encode;
        let room = if complete_set && !self.parts { usize::MAX } else { self.limit };
        let mut draft = Draft { subscription, used: ENVELOPE, resources: Vec::new(), removed: Vec::new() };
        while let Some(key) = keys.pop_first() {
            let stored = snapshot.get(&key);
            let wanted = stored.and_then(|stored| selection.outgoing(stored, &self.off));
            if !draft.add(&key, wanted, encode, self.limit, room) {
                keys.insert(key);
                break;
            }
        }
        let Draft { subscription, used, resources, removed } = draft;
        if complete_set && !self.parts && (used > self.limit || !subscription.unsent.is_empty()) {
            subscription.give_up(used, self.limit);
            return None;
        }
        let more = complete_set && subscription.is_incomplete(&mut keys);
        subscription.due = DueKeys { complete_set: more, keys: Keys::These(keys) };
        let last = complete_set && !more;
        if !last && resources.is_empty() && removed.is_empty() {
            return None;
        }
        self.nonces += 1;
        subscription.in_flight = Some(self.nonces);
        Some(Response { kind, nonce: self.nonces.to_string(), resources, removed, more })
    }

    /// Takes note of the peer's answer to a response.
    pub fn answered(&mut self, kind: Kind, nonce: &str) -> NonceMatch {
        let subscription = self.subscriptions.get_mut(&kind);
        let in_flight = subscription.map(|subscription| &mut subscription.in_flight);
        match in_flight {
            Some(flight) if flight.is_some_and(|sent| sent.to_string() == nonce) => {
                *flight = None;
                NonceMatch::Current
            }
            _ => NonceMatch::Stale,
        }
    }

    /// Returns the kinds that cannot be sent completely, and the reasons.
    pub fn incomplete_kinds(&self) -> impl Iterator<Item = (Kind, &str)> {
        self.subscriptions.iter().filter_map(|(kind, it)| {
            let why = it.stuck.as_ref().or_else(|| it.unsent.values().next())?;
            Some((*kind, why.as_str()))
        })
    }
}

impl Subscription {
    fn everything_is_due(&mut self) {
        self.stuck = None;
        self.due.keys = Keys::All;
    }

    fn is_due(&mut self, key: &Key) {
        self.stuck = None;
        if let Keys::These(keys) = &mut self.due.keys {
            keys.insert(key.clone());
        }
    }

    fn is_quiet(&self) -> bool {
        let nothing_due = matches!(&self.due.keys, Keys::These(keys) if keys.is_empty());
        let nothing_due = nothing_due && !self.due.complete_set;
        nothing_due || self.in_flight.is_some() || self.stuck.is_some()
    }

    fn take_due(&mut self, kind: Kind, snapshot: &Snapshot) -> BTreeSet<Key> {
        match std::mem::replace(&mut self.due.keys, Keys::These(BTreeSet::new())) {
            Keys::These(keys) => keys,
            Keys::All => {
                let stored = snapshot.of_kind(kind).map(|resource| resource.key.clone());
                stored.chain(self.sent.keys().cloned()).collect()
            }
        }
    }

    /// True if the complete set is incomplete: because of `left`, or of resources that cannot be sent, which
    /// the next change tries again.
    fn is_incomplete(&mut self, left: &mut BTreeSet<Key>) -> bool {
        if left.is_empty()
            && let Some(why) = self.unsent.values().next()
        {
            self.stuck = Some(why.clone());
            left.extend(self.unsent.keys().cloned());
        }
        !left.is_empty()
    }

    /// Sends nothing of this kind: what is missing in a first response is deleted over there.
    fn give_up(&mut self, size: usize, limit: usize) {
        self.sent.clear();
        self.due = DueKeys::default();
        let one = std::mem::take(&mut self.unsent).into_values().next();
        self.stuck = Some(one.unwrap_or_else(|| {
            format!(
                "all of them in one message, as the protocol requires, are {size} bytes, and the limit is {limit}: raise \
                 maxMsgSize of multizone.global.kds and of multizone.zone.kds"
            )
        }));
    }
}

/// A response in the making.
struct Draft<'a> {
    subscription: &'a mut Subscription,
    used: usize,
    resources: Vec<Encoded>,
    removed: Vec<String>,
}

impl Draft<'_> {
    /// Adds what the peer lacks of a resource; `false` when that does not fit any more.
    fn add(&mut self, key: &Key, wanted: Option<Synced>, encode: Encode, limit: usize, room: usize) -> bool {
        self.subscription.unsent.remove(key);
        let Some(wanted) = wanted else { return self.remove(key, room) };
        let body = match encode(&wanted) {
            Ok(body) => body,
            // What the peer has of it stays as it was.
            Err(why) => return self.leave_out(key, format!("{key} cannot be encoded: {why}")),
        };
        let hash = xxh3_64(&body);
        if self.subscription.sent.get(key).is_some_and(|sent| sent.hash == hash) {
            return true;
        }
        let name = mapping::wire_name(&wanted.key);
        let size = body.len() + name.len() + PER_RESOURCE;
        if ENVELOPE + size > limit {
            return self
                .leave_out(key, format!("{key} has {size} bytes, and the limit of a message is {limit}"));
        }
        if self.used + size > room {
            return false;
        }
        self.used += size;
        let other = (wanted.key.name != key.name).then(|| Box::from(&*wanted.key.name));
        let before = self.subscription.sent.insert(key.clone(), SentVersion { name: other.clone(), hash });
        if let Some(before) = before.filter(|before| before.name != other) {
            self.removed.push(before.wire_name(key));
        }
        self.resources.push(Encoded { name, version: format!("{hash:016x}"), body });
        true
    }

    fn leave_out(&mut self, key: &Key, why: String) -> bool {
        self.subscription.unsent.insert(key.clone(), why);
        true
    }

    fn remove(&mut self, key: &Key, room: usize) -> bool {
        let Some(sent) = self.subscription.sent.get(key) else { return true };
        let name = sent.wire_name(key);
        if self.used + name.len() + PER_RESOURCE > room {
            return false;
        }
        self.used += name.len() + PER_RESOURCE;
        self.subscription.sent.remove(key);
        self.removed.push(name);
        true
    }
}

impl SentVersion {
    fn wire_name(&self, key: &Key) -> String {
        match &self.name {
            Some(name) => format!("{name}.{}", key.mesh),
            None => mapping::wire_name(key),
        }
    }
}
