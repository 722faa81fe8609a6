//! One type on a delta stream: what is subscribed, what the proxy has, what is queued for it.
//!
//! A name is looked at when something about it happens: its target changes, the proxy subscribes to it,
//! answers for it, or the caller wants it sent again. [`Channel::review`] then puts it into the queue of
//! sends or of removals, or into none; nothing walks all names afterwards. What is in flight is looked at
//! when its answer comes. A proxy that connects with nothing and wants everything needs no queue: a
//! cursor sweeps over the target.

mod answer;
mod batch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use foldhash::{HashMap, HashSet};

use crate::{
    action::{Counters, Rejection, Status},
    encoded::{ByName, Encoded, parse_version},
    message::DeltaRequest,
    target::{Resources, TargetChange, Type},
};

const WILDCARD: &str = "*";

pub(super) use batch::{Batch, Order};

type Name = Arc<str>;

/// Action that a name needs.
enum Need {
    Nothing,
    Send(Arc<Encoded>),
    Remove,
}

struct InFlight {
    nonce: String,
    batch: Batch,
    /// Names the proxy asked for, or no longer wants, after the batch was sent: its answer says
    /// nothing about them.
    forgotten: BTreeSet<Name>,
    /// Names about which something happened meanwhile.
    to_review: BTreeSet<Name>,
    /// The batch has something that the proxy may still lack when it refuses the response.
    introduces: bool,
}

impl InFlight {
    fn sends(&self, name: &str) -> bool {
        self.batch.sent.binary_search_by(|resource| (*resource.name).cmp(name)).is_ok()
    }

    fn has(&self, name: &str) -> bool {
        self.sends(name) || self.batch.removed.binary_search_by(|removed| (**removed).cmp(name)).is_ok()
    }
}

/// The proxy's answer to the response in flight.
pub(super) enum ProxyAnswer {
    Acked {
        sent: Vec<Arc<Encoded>>,
        resources: usize,
    },
    Rejected {
        sent: Vec<Arc<Encoded>>,
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
    subscribed: HashSet<Name>,
    /// Resources that the proxy has for certain.
    held: HashSet<ByName>,
    /// Names that the proxy may have, with the reported version unless it is known to differ from the
    /// target's.
    uncertain: HashMap<Name, Option<u128>>,
    /// Names that the proxy lacked when it rejected a response with them, and has not accepted since.
    lacking: HashSet<Name>,
    /// With what is to be sent, which is what the target has: a change of the target reviews the name.
    to_send: BTreeMap<Name, Arc<Encoded>>,
    to_remove: BTreeSet<Name>,
    /// Everything after this name is to be sent.
    sweep: Option<Name>,
    /// To be sent although the proxy has the same version.
    again: HashSet<Name>,
    /// Groups of names among which is one the proxy refuses; each is sent alone.
    suspects: Vec<BTreeSet<Name>>,
    rejected: BTreeMap<Name, Vec<Rejection>>,
    in_flight: Option<InFlight>,
    counters: Counters,
    visits: u64,
}

impl Channel {
    pub(super) fn wants(&self, name: &str) -> bool {
        self.wildcard || self.subscribed.contains(name)
    }

    pub(super) fn wants_everything(&self) -> bool {
        self.wildcard
    }

    /// The version the proxy has for certain.
    pub(super) fn version(&self, name: &str) -> Option<u128> {
        self.held.get(name).map(|held| held.0.version)
    }

    fn may_have(&self, name: &str) -> bool {
        self.held.contains(name) || self.uncertain.contains_key(name)
    }

    fn has_something(&self) -> bool {
        !self.held.is_empty() || !self.uncertain.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.is_some()
    }

    /// True if a response in flight has something that the proxy still lacks if it rejects the response.
    pub(super) fn introduces(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.introduces)
    }

    /// A proxy that reconnects tells type by type what it has, and answers the first response after
    /// that; before its answer it is not known what it uses.
    pub(super) fn introduced(&self) -> bool {
        !self.resumed || !self.wildcard || self.counters.acked + self.counters.rejected > 0
    }

    pub(super) fn names_after(&self, request: &DeltaRequest) -> usize {
        let versions = if self.requested { 0 } else { request.initial_resource_versions.len() };
        (self.subscribed.len() + request.resource_names_subscribe.len()).max(versions)
    }

    /// Number of visits to names; proves that cost follows change.
    pub(super) fn visits(&self) -> u64 {
        self.visits
    }

    /// Takes in what the proxy subscribes to.
    pub(super) fn subscribe(&mut self, kind: Type, request: &DeltaRequest, target: Option<Resources<'_>>) {
        let first = !std::mem::replace(&mut self.requested, true);
        let names = &request.resource_names_subscribe;
        let everything = first && kind.empty_means_all() && names.is_empty();
        if first {
            self.take_versions(request, everything, target);
        }
        if everything {
            self.subscribe_to_everything(target);
        }
        for name in names {
            if name == WILDCARD {
                self.subscribe_to_everything(target);
                continue;
            }
            self.subscribe_to(kind, name, first, target);
        }
        self.unsubscribe(&request.resource_names_unsubscribe, target);
    }

    /// `first` when it is in the first request; `target` lends the name, so that it is stored once.
    fn subscribe_to(&mut self, kind: Type, name: &str, first: bool, target: Option<Resources<'_>>) {
        let known = target.and_then(|target| target.get(name));
        let name: Name = known.map_or_else(|| name.into(), |resource| resource.name.clone());
        let is_new = self.subscribed.insert(name.clone()) && !self.wildcard;
        // A name that the proxy came with is not asked for anew: it says what it has of it.
        if !(first && self.may_have(&name)) {
            if !is_new || self.in_flight.is_some() {
                self.forget(&name);
            }
            if matches!(kind, Type::Cluster | Type::Endpoint) {
                // A request for a cluster by name, and a cluster that starts, end their waiting when
                // they learn that there is nothing. Listeners ignore such news.
                self.uncertain.insert(name.clone(), None);
            }
        }
        match known {
            // Nothing is held or refused of a name that was never subscribed to.
            Some(known) if is_new && !first && self.in_flight.is_none() && self.rejected.is_empty() => {
                self.visits += 1;
                self.to_send.insert(name, known.clone());
            }
            _ if target.is_none() => {}
            known => self.review(&name, known),
        }
    }

    /// Records the versions that a reconnecting proxy has of the resources it subscribes to.
    fn take_versions(&mut self, request: &DeltaRequest, everything: bool, target: Option<Resources<'_>>) {
        self.resumed = !request.initial_resource_versions.is_empty();
        let names: std::collections::HashSet<&str> =
            request.resource_names_subscribe.iter().map(String::as_str).collect();
        let everything = everything || names.contains(WILDCARD);
        for (name, version) in &request.initial_resource_versions {
            if everything || names.contains(name.as_str()) {
                let version = parse_version(version);
                let known = target.and_then(|target| target.get(name));
                match known.filter(|known| Some(known.version) == version) {
                    Some(known) => drop(self.held.insert(ByName(known.clone()))),
                    None => drop(self.uncertain.insert(name.as_str().into(), version)),
                }
            }
        }
    }

    fn subscribe_to_everything(&mut self, target: Option<Resources<'_>>) {
        if std::mem::replace(&mut self.wildcard, true) {
            return;
        }
        self.owes_answer = true;
        if let Some(target) = target {
            self.review_everything(target);
        }
    }

    /// Looks at all names there are: when the proxy begins to want everything, or has its first target.
    pub(super) fn review_everything(&mut self, target: Resources<'_>) {
        let has_nothing = self.held.is_empty() && self.uncertain.is_empty() && self.in_flight.is_none();
        if self.wildcard && has_nothing && self.rejected.is_empty() {
            self.sweep = Some(Name::default());
            self.held.reserve(target.len());
            return;
        }
        let told = self.uncertain.keys().cloned().collect::<Vec<_>>();
        told.iter().for_each(|name| self.recognise(name, target));
        let mut names: Vec<Name> = told;
        names.extend(self.held.iter().map(|held| held.0.name.clone()));
        names.extend(self.subscribed.iter().cloned());
        if self.wildcard {
            names.extend(target.keys().cloned());
        }
        names.iter().for_each(|name| self.review(name, target.get(name)));
    }

    /// A version the proxy reported is certain once the target has the same.
    fn recognise(&mut self, name: &Name, target: Resources<'_>) {
        let told = self.uncertain.get(name).copied().flatten();
        if let Some(known) = target.get(name).filter(|known| Some(known.version) == told) {
            self.uncertain.remove(name);
            self.held.insert(ByName(known.clone()));
        }
    }

    fn unsubscribe(&mut self, names: &[String], target: Option<Resources<'_>>) {
        for name in names {
            if name == WILDCARD {
                self.wildcard = false;
                self.owes_answer = false;
                self.sweep = None;
                let had = self.held.iter().map(|held| &held.0.name).chain(self.uncertain.keys());
                let left: Vec<Name> = had.filter(|name| !self.wants(name)).cloned().collect();
                left.iter().for_each(|name| self.forget(name));
                let subscribed = &self.subscribed;
                self.to_send.retain(|name, _| subscribed.contains(name));
                self.to_remove.retain(|name| subscribed.contains(name));
            } else if let Some(name) = self.subscribed.take(name.as_str()) {
                self.forget(&name);
                self.again.remove(&name);
                // Who still wants everything has just dropped this name and wants it back.
                self.review_in(&name, target);
            }
        }
    }

    fn forget(&mut self, name: &Name) {
        self.held.remove(&**name);
        self.uncertain.remove(name);
        if let Some(flight) = &mut self.in_flight
            && flight.has(name)
        {
            flight.introduces |= flight.sends(name);
            flight.forgotten.insert(name.clone());
        }
    }

    /// Looks at names whose target changed.
    pub(super) fn touch(&mut self, changes: &[TargetChange], target: Resources<'_>) {
        // What changes in bulk is sorted; a queue is made of it at once.
        let mut sends = Vec::new();
        for (name, now) in changes {
            if now.is_none() {
                self.rejected.remove(name);
            }
            if !self.uncertain.is_empty() {
                self.recognise(name, target);
            }
            if let Some(Need::Send(resource)) = self.decide(name, now.as_ref()) {
                sends.push((resource.name.clone(), resource));
            }
        }
        if self.to_send.is_empty() {
            self.to_send = sends.into_iter().collect();
        } else {
            self.to_send.extend(sends);
        }
    }

    pub(super) fn send_again(&mut self, resource: &Arc<Encoded>) {
        let name = &resource.name;
        // A proxy that reconnects may still say that it has the name; one that asks for it later gets it anyway.
        if self.wants(name) || !self.requested {
            self.again.insert(name.clone());
            self.review(name, Some(resource));
        }
    }

    pub(super) fn send_at_most_once(&mut self, name: &Name, target: Resources<'_>) {
        if self.again.remove(name) {
            self.review(name, target.get(name));
        }
    }

    /// Gives what was refused another chance.
    pub(super) fn forgive(&mut self, target: Option<Resources<'_>>) {
        for name in std::mem::take(&mut self.rejected).into_keys() {
            self.review_in(&name, target);
        }
    }

    fn review_in(&mut self, name: &Name, target: Option<Resources<'_>>) {
        if let Some(target) = target {
            self.review(name, target.get(name));
        }
    }

    /// Puts a name where it belongs: in one of the queues or in none. `wanted` is what the target has.
    fn review(&mut self, name: &Name, wanted: Option<&Arc<Encoded>>) {
        if let Some(Need::Send(resource)) = self.decide(name, wanted) {
            self.to_send.insert(resource.name.clone(), resource);
        }
    }

    /// Takes a name out of the queues and says what it needs; what is to be removed is queued. `None` while that
    /// cannot be said.
    fn decide(&mut self, name: &Name, wanted: Option<&Arc<Encoded>>) -> Option<Need> {
        if let Some(flight) = &mut self.in_flight
            && flight.has(name)
        {
            flight.to_review.insert(name.clone());
            return None;
        }
        if !self.to_send.is_empty() {
            self.to_send.remove(name);
        }
        self.to_remove.remove(name);
        if wanted.is_some() && self.sweep.as_ref().is_some_and(|swept| swept < name) {
            return None;
        }
        let need = self.need(name, wanted);
        if matches!(need, Need::Remove) {
            self.to_remove.insert(name.clone());
        }
        Some(need)
    }

    fn need(&mut self, name: &str, wanted: Option<&Arc<Encoded>>) -> Need {
        self.visits += 1;
        if !self.wants(name) {
            return Need::Nothing;
        }
        let Some(resource) = wanted else {
            return if self.may_have(name) { Need::Remove } else { Need::Nothing };
        };
        let same = self.version(name) == Some(resource.version);
        if same && !self.again.contains(name) || self.refused(resource) {
            return Need::Nothing;
        }
        Need::Send(resource.clone())
    }

    fn refused(&self, resource: &Encoded) -> bool {
        if self.rejected.is_empty() {
            return false;
        }
        let refused = self.rejected.get(&resource.name);
        refused.is_some_and(|refused| refused.iter().any(|refused| refused.version == resource.version))
    }

    /// True if something is to be sent beyond the response in flight.
    pub(super) fn has_sends(&mut self, target: Resources<'_>) -> bool {
        if let Some(swept) = &self.sweep
            && target.after(Some(swept)).next().is_none()
        {
            self.sweep = None;
        }
        self.sweep.is_some() || !self.to_send.is_empty()
    }

    /// Nothing to send, nothing to remove, nothing to wait for.
    pub(super) fn settled(&mut self, target: Resources<'_>) -> bool {
        !self.is_waiting() && self.to_remove.is_empty() && !self.has_sends(target)
    }

    /// Returns the status of the type; `target` is `None` while there is none.
    pub(super) fn status(&self, kind: Type, target: Option<Resources<'_>>) -> Status {
        let batch = self.in_flight.as_ref().map(|flight| &flight.batch);
        let in_flight = batch.map_or(0, |batch| (batch.sent.len() + batch.removed.len()).max(1));
        let mut pending = in_flight + self.to_send.len() + self.to_remove.len();
        let mut rejected = Vec::new();
        if let Some(target) = target {
            if self.sweep.is_some() {
                pending += target.len().saturating_sub(self.held.len() + in_flight);
            }
            let current = |refused: &&Rejection| {
                target.get(&refused.name).is_some_and(|resource| resource.version == refused.version)
            };
            let with_rest = |refused: &Rejection| Rejection {
                has_another: !self.lacking.contains(&refused.name),
                ..refused.clone()
            };
            rejected = self.rejected.values().flatten().filter(current).map(with_rest).collect();
        }
        // An answer that is owed is a resource short of being in sync.
        pending = pending.max(usize::from(self.owes_answer));
        Status { kind, requested: self.requested, pending, rejected, counters: self.counters }
    }
}
