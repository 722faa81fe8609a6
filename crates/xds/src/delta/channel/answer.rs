//! Conclusions from ACKs and NACKs: the resources that the proxy has, and those it rejects.

use super::{Batch, Channel, InFlight, Name, ProxyAnswer};
use crate::{
    action::Rejection,
    blame::blamed,
    encoded::{ByName, Encoded},
    message::RpcStatus,
    nack_message,
    target::Resources,
};

/// Limit of rejected versions kept per name.
const REMEMBERED: usize = 8;

impl Channel {
    pub(in crate::delta) fn answer(
        &mut self,
        nonce: &str,
        error: Option<&RpcStatus>,
        target: Option<Resources<'_>>,
    ) -> ProxyAnswer {
        let Some(mut flight) = self.in_flight.take_if(|flight| flight.nonce == nonce) else {
            return ProxyAnswer::Stale;
        };
        let mut to_review = std::mem::take(&mut flight.to_review);
        to_review.extend(flight.forgotten.iter().cloned());
        let verdict = match error {
            None => self.acked(flight),
            Some(error) => {
                let names = flight.batch.sent.iter().map(|resource| resource.name.clone());
                to_review.extend(names.chain(flight.batch.removed.iter().cloned()));
                self.refuse(flight, &error.message)
            }
        };
        to_review.iter().for_each(|name| self.review_in(name, target));
        self.release();
        verdict
    }

    fn acked(&mut self, flight: InFlight) -> ProxyAnswer {
        self.counters.acked += 1;
        let InFlight { batch: Batch { mut sent, removed, .. }, forgotten, .. } = flight;
        let resources = sent.len() + removed.len();
        for name in &removed {
            self.held.remove(&**name);
            self.uncertain.remove(name);
            self.lacking.remove(name);
        }
        sent.retain(|resource| !forgotten.contains(&resource.name));
        for resource in &sent {
            self.visits += 1;
            if !self.uncertain.is_empty() {
                self.uncertain.remove(&resource.name);
            }
            if !self.lacking.is_empty() {
                self.lacking.remove(&resource.name);
            }
            self.held.replace(ByName(resource.clone()));
        }
        ProxyAnswer::Acked { sent, resources }
    }

    /// A proxy may have taken some resources of a response it refuses, so nothing is certain about any.
    fn refuse(&mut self, flight: InFlight, message: &str) -> ProxyAnswer {
        self.counters.rejected += 1;
        let InFlight { batch: Batch { sent, removed, .. }, forgotten, .. } = flight;
        for name in &removed {
            // A removal cannot be wrong, and must not be repeated for ever.
            let repeat = !sent.is_empty() && self.may_have(name);
            self.held.remove(&**name);
            self.uncertain.remove(name);
            if repeat {
                self.uncertain.insert(name.clone(), None);
            }
        }
        let names = || sent.iter().map(|resource| &resource.name);
        let blamed = match &sent[..] {
            [only] => vec![only.name.clone()],
            _ => blamed(names(), message),
        };
        for resource in sent.iter().filter(|resource| blamed.contains(&resource.name)) {
            self.remember(resource, message);
        }
        let kept: Vec<&Name> = names().filter(|name| !forgotten.contains(*name)).collect();
        for name in &kept {
            if !self.may_have(name) {
                self.lacking.insert((*name).clone());
            }
            self.held.remove(&***name);
            self.uncertain.insert((*name).clone(), None);
        }
        let rest: Vec<&Name> = kept.into_iter().filter(|name| !blamed.contains(name)).collect();
        // One half after the other until the culprit is alone, unless it is known.
        let (one, other) = rest.split_at(if blamed.is_empty() { rest.len() / 2 } else { 0 });
        for group in [other, one].into_iter().filter(|group| !group.is_empty()) {
            self.suspects.push(group.iter().map(|name| (*name).clone()).collect());
        }
        ProxyAnswer::Rejected { sent, blamed }
    }

    fn remember(&mut self, resource: &Encoded, message: &str) {
        let refused = self.rejected.entry(resource.name.clone()).or_default();
        refused.retain(|refused| refused.version != resource.version);
        if refused.len() == REMEMBERED {
            refused.remove(0);
        }
        let name = resource.name.clone();
        let version = resource.version;
        refused.push(Rejection { name, version, message: nack_message::kept(message), has_another: false });
    }

    /// Gives back the memory of what was only needed on the way.
    fn release(&mut self) {
        if self.uncertain.is_empty() {
            self.uncertain.shrink_to_fit();
        }
        if self.lacking.is_empty() {
            self.lacking.shrink_to_fit();
        }
    }
}
