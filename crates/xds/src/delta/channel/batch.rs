//! From what is queued to the next response.

use std::{collections::BTreeSet, sync::Arc};

use super::{Channel, InFlight, Name};
use crate::{
    encoded::Encoded,
    target::{Resources, Type},
};

/// Limit of resource bytes in a response; a larger resource travels alone.
const CHUNK: usize = 64 * 1024;

/// Content of one response, sorted by name.
#[derive(Default)]
pub(in crate::delta) struct Batch {
    pub(in crate::delta) sent: Vec<Arc<Encoded>>,
    pub(in crate::delta) removed: Vec<Name>,
    /// State of the sweep once the batch is in flight; `None` without a sweep.
    sweep: Option<Sweep>,
}

/// In which order resources are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::delta) enum Order {
    ByName,
    /// Others under names that the proxy has come before new names: a changed listener may give up an address that a
    /// new one takes over.
    KnownFirst,
}

impl Order {
    pub(in crate::delta) fn of(kind: Type) -> Order {
        if kind == Type::Listener { Order::KnownFirst } else { Order::ByName }
    }
}

/// Position of a sweep over the target.
enum Sweep {
    /// Everything after this name is to be sent.
    After(Name),
    Done,
}

impl Channel {
    /// The next response, if there is something to say that may be said now.
    pub(in crate::delta) fn next(
        &mut self,
        target: Resources<'_>,
        order: Order,
        (may_send, may_remove): (bool, bool),
    ) -> Option<Batch> {
        if self.in_flight.is_some() || !self.requested {
            return None;
        }
        while may_send && let Some(group) = self.suspects.pop() {
            let mut batch = Batch::default();
            batch.fill(&mut 0, group.iter().filter_map(|name| self.to_send.get(name)));
            if !batch.sent.is_empty() {
                return Some(batch);
            }
        }
        let batch = self.gather(target, order, (may_send, may_remove));
        let something = !batch.sent.is_empty() || !batch.removed.is_empty();
        (something || may_send && self.owes_answer).then_some(batch)
    }

    /// Removals come first: a listener may take over the address of one that goes.
    fn gather(&mut self, target: Resources<'_>, order: Order, (may_send, may_remove): (bool, bool)) -> Batch {
        let mut batch = Batch::default();
        let mut size = 0;
        for name in self.to_remove.iter().filter(|_| may_remove) {
            size += name.len();
            if size > CHUNK && !batch.removed.is_empty() {
                return batch;
            }
            batch.removed.push(name.clone());
        }
        if !may_send {
            return batch;
        }
        let known = |resource: &&Arc<Encoded>| self.may_have(&resource.name);
        let all = if order == Order::KnownFirst && !self.to_send.is_empty() && self.has_something() {
            let all = batch.fill(&mut size, self.to_send.values().filter(known))
                && batch.fill(&mut size, self.to_send.values().filter(|resource| !known(resource)));
            batch.sent.sort_by(|a, b| a.name.cmp(&b.name));
            all
        } else {
            batch.fill(&mut size, self.to_send.values())
        };
        if let Some(swept) = self.sweep.as_ref().filter(|_| all) {
            let before = batch.sent.len();
            let all = batch.fill(&mut size, target.after(Some(swept)));
            let last = batch.sent[before..].last().map_or(swept, |resource| &resource.name);
            batch.sweep = Some(if all { Sweep::Done } else { Sweep::After(last.clone()) });
            batch.sent.sort_by(|a, b| a.name.cmp(&b.name));
        }
        batch
    }

    /// Returns the resources of a batch in the order in which the proxy is to apply them.
    pub(in crate::delta) fn ordered<'b>(&self, batch: &'b Batch, order: Order) -> Vec<&'b Arc<Encoded>> {
        let mut sent: Vec<&Arc<Encoded>> = batch.sent.iter().collect();
        if order == Order::KnownFirst && self.has_something() {
            sent.sort_by_key(|resource| !self.may_have(&resource.name));
        }
        sent
    }

    /// Remembers that the batch is on its way.
    pub(in crate::delta) fn launch(&mut self, nonce: String, mut batch: Batch) {
        let introduces = batch.sent.iter().any(|resource| !self.held.contains(&*resource.name));
        self.visits += batch.sent.len() as u64;
        for resource in &batch.sent {
            // The batch comes from the front of the queue, mostly.
            if self.to_send.first_key_value().is_some_and(|(first, _)| Arc::ptr_eq(first, &resource.name)) {
                self.to_send.pop_first();
            } else if !self.to_send.is_empty() {
                self.to_send.remove(&resource.name);
            }
            if !self.again.is_empty() {
                self.again.remove(&resource.name);
            }
        }
        for name in &batch.removed {
            self.to_remove.remove(name);
        }
        match batch.sweep.take() {
            Some(Sweep::After(name)) => self.sweep = Some(name),
            Some(Sweep::Done) => self.sweep = None,
            None => {}
        }
        self.owes_answer = false;
        self.counters.sent += 1;
        self.counters.resources += batch.sent.len() as u64;
        let forgotten = BTreeSet::new();
        let to_review = BTreeSet::new();
        self.in_flight = Some(InFlight { nonce, batch, forgotten, to_review, introduces });
    }
}

impl Batch {
    /// Adds resources while they fit; says whether all did.
    fn fill<'r>(&mut self, size: &mut usize, resources: impl Iterator<Item = &'r Arc<Encoded>>) -> bool {
        for resource in resources {
            *size += resource.size();
            if *size > CHUNK && !(self.sent.is_empty() && self.removed.is_empty()) {
                return false;
            }
            self.sent.push(resource.clone());
        }
        true
    }
}
