//! One type on a delta stream: what is subscribed, what the proxy has, what it refused.
//!
//! A channel never walks all resources: `dirty` holds the names that may need something, everything
//! else is known to be right. Whether a name really needs something is decided by [`Channel::need`]
//! alone, from the current target, so intermediate targets leave no trace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    action::{Counters, Rejection, Status},
    blame::blamed,
    message::{DeltaRequest, RpcStatus},
    target::{Encoded, Resources, Target, Type, parse_version},
    words,
};

/// How many bytes of resources a response may have; a larger resource travels alone.
pub(super) const CHUNK: usize = 64 * 1024;
/// How many refused versions of one name are remembered.
const REMEMBERED: usize = 8;
const WILDCARD: &str = "*";

type Name = Arc<str>;

/// What is to be done about a name.
pub(super) enum Need {
    Nothing,
    Send(Arc<Encoded>),
    Remove,
}

/// Which kinds of needs the names of a channel have.
#[derive(Clone, Copy, Default)]
pub(super) struct Needs {
    pub(super) sends: bool,
    pub(super) removals: bool,
}

/// What one response carries.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) sent: Vec<Arc<Encoded>>,
    pub(super) removed: Vec<Name>,
    /// Names the proxy asked for, or no longer wants, after the batch was sent: its answer says
    /// nothing about them.
    forgotten: BTreeSet<Name>,
}

struct InFlight {
    nonce: String,
    batch: Batch,
}

/// What the proxy said about the response in flight.
pub(super) enum Verdict {
    Acked {
        sent: Vec<Name>,
        resources: usize,
    },
    Rejected {
        blamed: Vec<Name>,
    },
    /// It is about a response that is not in flight.
    Stale,
}

#[derive(Default)]
pub(super) struct Channel {
    requested: bool,
    /// The proxy came with resources from an earlier stream.
    resumed: bool,
    /// A proxy that wants everything waits for an answer even when there is nothing.
    owes_answer: bool,
    wildcard: bool,
    subscribed: BTreeSet<Name>,
    /// What the proxy has; without a version when that is uncertain.
    has: BTreeMap<Name, Option<u128>>,
    dirty: BTreeSet<Name>,
    /// To be sent although the proxy has the same version.
    again: BTreeSet<Name>,
    /// Groups of names among which is one the proxy refuses; each is sent alone.
    suspects: Vec<BTreeSet<Name>>,
    rejected: BTreeMap<Name, Vec<Rejection>>,
    in_flight: Option<InFlight>,
    counters: Counters,
}

impl Channel {
    pub(super) fn wants(&self, name: &str) -> bool {
        self.wildcard || self.subscribed.contains(name)
    }

    /// The version the proxy has for certain.
    pub(super) fn version(&self, name: &str) -> Option<u128> {
        self.has.get(name).copied().flatten()
    }

    pub(super) fn had(&self) -> impl Iterator<Item = &Name> {
        self.has.keys()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether something is in flight that the proxy may still lack when it refuses the response.
    pub(super) fn introduces(&self) -> bool {
        let sent = self.in_flight.iter().flat_map(|flight| &flight.batch.sent);
        sent.into_iter().any(|resource| self.version(&resource.name).is_none())
    }

    /// A proxy that reconnects tells type by type what it has, and answers the first response after
    /// that; before its answer nobody knows what it uses.
    pub(super) fn introduced(&self) -> bool {
        !self.resumed || !self.wildcard || self.counters.acked + self.counters.rejected > 0
    }

    pub(super) fn names_after(&self, request: &DeltaRequest) -> usize {
        let versions = if self.requested { 0 } else { request.initial_resource_versions.len() };
        (self.subscribed.len() + request.resource_names_subscribe.len()).max(versions)
    }

    /// Takes in what the proxy subscribes to; `target` lends its names, so that they are stored once.
    pub(super) fn subscribe(&mut self, kind: Type, request: &DeltaRequest, target: Option<&Resources>) {
        let shared = |name: &str| {
            let known = target.and_then(|target| target.get_key_value(name)).map(|(name, _)| name.clone());
            known.unwrap_or_else(|| name.into())
        };
        let first = !std::mem::replace(&mut self.requested, true);
        let everything = first && kind.empty_means_all() && request.resource_names_subscribe.is_empty();
        if everything {
            self.subscribe_to_everything(target);
        }
        for name in &request.resource_names_subscribe {
            if name == WILDCARD {
                self.subscribe_to_everything(target);
                continue;
            }
            let name = shared(name);
            self.forget(&name);
            if matches!(kind, Type::Cluster | Type::Endpoint) {
                // A request for a cluster by name, and a cluster that starts, end their waiting when
                // they learn that there is nothing. Listeners ignore such news.
                self.has.insert(name.clone(), None);
            }
            self.dirty.insert(name.clone());
            self.subscribed.insert(name);
        }
        if first {
            self.resumed = !request.initial_resource_versions.is_empty();
            for (name, version) in &request.initial_resource_versions {
                if self.wants(name) {
                    let name = shared(name);
                    self.dirty.insert(name.clone());
                    self.has.insert(name, parse_version(version));
                }
            }
        }
        self.unsubscribe(&request.resource_names_unsubscribe);
    }

    fn subscribe_to_everything(&mut self, target: Option<&Resources>) {
        if !std::mem::replace(&mut self.wildcard, true) {
            self.owes_answer = true;
            self.dirty.extend(target.into_iter().flat_map(Resources::keys).cloned());
        }
    }

    fn unsubscribe(&mut self, names: &[String]) {
        for name in names {
            if name == WILDCARD {
                self.wildcard = false;
                self.owes_answer = false;
                let left: Vec<Name> = self.has.keys().filter(|name| !self.wants(name)).cloned().collect();
                left.iter().for_each(|name| self.forget(name));
            } else if let Some(name) = self.subscribed.take(name.as_str()) {
                self.forget(&name);
                self.again.remove(&name);
                // Who still wants everything has just dropped this name and wants it back.
                self.dirty.insert(name);
            }
        }
    }

    fn forget(&mut self, name: &Name) {
        self.has.remove(name);
        if let Some(flight) = &mut self.in_flight {
            flight.batch.forgotten.insert(name.clone());
        }
    }

    /// Looks again at a name whose target changed.
    pub(super) fn touch(&mut self, name: &Name, target: &Resources) {
        if self.wants(name) {
            self.dirty.insert(name.clone());
        }
        if !target.contains_key(name) {
            self.rejected.remove(name);
        }
    }

    pub(super) fn send_again(&mut self, name: &Name) {
        self.again.insert(name.clone());
        self.dirty.insert(name.clone());
    }

    pub(super) fn send_at_most_once(&mut self, name: &Name) {
        self.again.remove(name);
    }

    /// Gives what was refused another chance.
    pub(super) fn forgive(&mut self) {
        self.dirty.extend(std::mem::take(&mut self.rejected).into_keys());
    }

    fn need(&self, name: &str, target: &Resources) -> Need {
        if !self.wants(name) {
            return Need::Nothing;
        }
        let has = self.has.get(name);
        let Some(resource) = target.get(name) else {
            return if has.is_some() { Need::Remove } else { Need::Nothing };
        };
        let same = has.is_some_and(|version| *version == Some(resource.version));
        if same && !self.again.contains(name) || self.refused(resource) {
            return Need::Nothing;
        }
        Need::Send(resource.clone())
    }

    fn refused(&self, resource: &Encoded) -> bool {
        self.rejected
            .get(&resource.name)
            .is_some_and(|refused| refused.iter().any(|refused| refused.version == resource.version))
    }

    /// What is needed now; forgets names that need nothing.
    pub(super) fn needs(&mut self, target: &Resources) -> Needs {
        let mut needs = Needs::default();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|name| match self.need(name, target) {
            Need::Nothing => false,
            Need::Send(_) => {
                needs.sends = true;
                true
            }
            Need::Remove => {
                needs.removals = true;
                true
            }
        });
        self.dirty = dirty;
        needs
    }

    /// Nothing to send, nothing to remove, nothing to wait for.
    pub(super) fn settled(&mut self, target: &Resources) -> bool {
        let needs = self.needs(target);
        !self.is_waiting() && !needs.sends && !needs.removals
    }

    /// The next response, if there is something to say that may be said now.
    pub(super) fn next(&mut self, target: &Resources, may_send: bool, may_remove: bool) -> Option<Batch> {
        if self.in_flight.is_some() || !self.requested {
            return None;
        }
        while may_send && let Some(group) = self.suspects.pop() {
            let batch = self.gather(group.iter(), target, true, false);
            if !batch.sent.is_empty() {
                return Some(batch);
            }
        }
        let batch = self.gather(self.dirty.iter(), target, may_send, may_remove);
        let something = !batch.sent.is_empty() || !batch.removed.is_empty();
        (something || may_send && self.owes_answer).then_some(batch)
    }

    /// Removals come first: a listener may take over the address of one that goes.
    fn gather<'a>(
        &self,
        names: impl Iterator<Item = &'a Name> + Clone,
        target: &Resources,
        may_send: bool,
        may_remove: bool,
    ) -> Batch {
        let mut batch = Batch::default();
        let mut size = 0;
        if may_remove {
            for name in names.clone().filter(|name| matches!(self.need(name, target), Need::Remove)) {
                size += name.len();
                if size > CHUNK && !batch.removed.is_empty() {
                    return batch;
                }
                batch.removed.push(name.clone());
            }
        }
        if may_send {
            for name in names {
                let Need::Send(resource) = self.need(name, target) else { continue };
                size += resource.name.len() + resource.body.len();
                if size > CHUNK && !(batch.sent.is_empty() && batch.removed.is_empty()) {
                    return batch;
                }
                batch.sent.push(resource);
            }
        }
        batch
    }

    /// Remembers that the batch is on its way.
    pub(super) fn launch(&mut self, nonce: String, batch: Batch) {
        for name in batch.sent.iter().map(|resource| &resource.name).chain(&batch.removed) {
            self.dirty.remove(name);
            self.again.remove(name);
        }
        self.owes_answer = false;
        self.counters.sent += 1;
        self.counters.resources += batch.sent.len() as u64;
        self.in_flight = Some(InFlight { nonce, batch });
    }

    pub(super) fn answer(&mut self, nonce: &str, error: Option<&RpcStatus>) -> Verdict {
        let Some(InFlight { batch, .. }) = self.in_flight.take_if(|flight| flight.nonce == nonce) else {
            return Verdict::Stale;
        };
        // The target may have moved on while the response was in flight.
        self.dirty.extend(batch.sent.iter().map(|resource| resource.name.clone()));
        self.dirty.extend(batch.removed.iter().cloned());
        match error {
            None => self.acked(batch),
            Some(error) => self.refuse(batch, &error.message),
        }
    }

    fn acked(&mut self, batch: Batch) -> Verdict {
        self.counters.acked += 1;
        let resources = batch.sent.len() + batch.removed.len();
        for name in &batch.removed {
            self.has.remove(name);
        }
        let mut sent = Vec::with_capacity(batch.sent.len());
        for resource in batch.sent.iter().filter(|resource| !batch.forgotten.contains(&resource.name)) {
            self.has.insert(resource.name.clone(), Some(resource.version));
            sent.push(resource.name.clone());
        }
        Verdict::Acked { sent, resources }
    }

    /// A proxy may have taken some resources of a response it refuses, so nothing is certain about any.
    fn refuse(&mut self, batch: Batch, message: &str) -> Verdict {
        self.counters.rejected += 1;
        for name in &batch.removed {
            if batch.sent.is_empty() {
                // A removal cannot be wrong, and must not be repeated for ever.
                self.has.remove(name);
            } else if let Some(version) = self.has.get_mut(name) {
                *version = None;
            }
        }
        let names = || batch.sent.iter().map(|resource| &resource.name);
        let blamed = match &batch.sent[..] {
            [only] => vec![only.name.clone()],
            _ => blamed(names(), message),
        };
        for resource in &batch.sent {
            if blamed.contains(&resource.name) {
                self.remember(resource, message);
            }
        }
        let kept = || names().filter(|name| !batch.forgotten.contains(*name));
        self.has.extend(kept().map(|name| (name.clone(), None)));
        let rest: Vec<Name> = kept().filter(|name| !blamed.contains(name)).cloned().collect();
        // One half after the other until the culprit is alone, unless it is known.
        let (one, other) = rest.split_at(if blamed.is_empty() { rest.len() / 2 } else { 0 });
        for group in [other, one].into_iter().filter(|group| !group.is_empty()) {
            self.suspects.push(group.iter().cloned().collect());
        }
        Verdict::Rejected { blamed }
    }

    fn remember(&mut self, resource: &Encoded, message: &str) {
        let refused = self.rejected.entry(resource.name.clone()).or_default();
        refused.retain(|refused| refused.version != resource.version);
        if refused.len() == REMEMBERED {
            refused.remove(0);
        }
        let (name, version) = (resource.name.clone(), resource.version);
        refused.push(Rejection { name, version, message: words::kept(message) });
    }

    pub(super) fn status(&self, kind: Type, target: Option<&Target>) -> Status {
        let in_flight = self.in_flight.as_ref();
        let mut pending = in_flight.map_or(0, |flight| flight.batch.sent.len() + flight.batch.removed.len());
        let mut rejected = Vec::new();
        if let Some(target) = target.map(|target| target.of(kind)) {
            pending +=
                self.dirty.iter().filter(|name| !matches!(self.need(name, target), Need::Nothing)).count();
            let current = |refused: &&Rejection| {
                target.get(&refused.name).is_some_and(|resource| resource.version == refused.version)
            };
            rejected = self.rejected.values().flatten().filter(current).cloned().collect();
        }
        // An empty answer that is owed or in flight is a resource short of being in sync.
        pending = pending.max(usize::from(in_flight.is_some() || self.owes_answer));
        Status { kind, requested: self.requested, pending, rejected, counters: self.counters }
    }
}
