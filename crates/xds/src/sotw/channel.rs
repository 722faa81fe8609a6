//! One type on a state-of-the-world stream: every response carries all resources of the type that
//! the proxy asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3;

use crate::{
    action::{Counters, Rejection, Status},
    blame::blamed,
    message::Request,
    target::{Encoded, Resources, Type, parse_version},
    words,
};

/// How many refused versions of a name, and how many refused sets, are remembered.
const REMEMBERED: usize = 8;
const EVERYTHING: &str = "*";

/// A set of resources and the version made of their names and versions.
pub(super) struct Set {
    pub(super) version: u128,
    pub(super) resources: Resources,
}

impl Set {
    fn new(resources: Resources) -> Set {
        let mut hash = Xxh3::new();
        for (name, resource) in &resources {
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            hash.update(&resource.version.to_le_bytes());
        }
        Set { version: hash.digest128(), resources }
    }
}

/// What the proxy said about the response in flight.
pub(super) enum Verdict {
    Acked { resources: usize },
    Rejected { blamed: Vec<Arc<str>> },
}

#[derive(Default)]
pub(super) struct Channel {
    pub(super) requested: bool,
    pub(super) names: BTreeSet<Arc<str>>,
    /// The nonce of the last response; only requests that carry it are up to date.
    pub(super) nonce: String,
    in_flight: Option<Set>,
    /// What the proxy has, as far as this stream knows.
    pub(super) accepted: Resources,
    /// The version the proxy has; `None` when that is uncertain.
    has: Option<u128>,
    /// Send even what the proxy has.
    again: bool,
    rejected: BTreeMap<Arc<str>, Vec<Rejection>>,
    /// Sets that were refused for no resource in particular.
    refused: Vec<Rejection>,
    counters: Counters,
}

impl Channel {
    fn wants_everything(&self, kind: Type) -> bool {
        kind.empty_means_all() && self.names.is_empty() || self.names.contains(EVERYTHING)
    }

    pub(super) fn wants(&self, kind: Type, name: &str) -> bool {
        self.wants_everything(kind) || self.names.contains(name)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether something is in flight that the proxy may still lack when it refuses the response.
    pub(super) fn introduces(&self) -> bool {
        let sent = self.in_flight.iter().flat_map(|set| set.resources.keys());
        sent.into_iter().any(|name| !self.accepted.contains_key(name))
    }

    /// Takes in the names of an up-to-date request.
    pub(super) fn subscribe(&mut self, kind: Type, request: &Request, target: Option<&Resources>) {
        let names: BTreeSet<Arc<str>> =
            request.resource_names.iter().map(|name| name.as_str().into()).collect();
        if !std::mem::replace(&mut self.requested, true) {
            self.has = parse_version(&request.version_info);
            self.names = names;
            return;
        }
        if names == self.names {
            return;
        }
        let Some(target) = target else {
            self.names = names;
            return;
        };
        let was_right = self.has == Some(self.desired(kind, target, false).version);
        let gained = names.difference(&self.names).any(|name| target.contains_key(name));
        self.names = names;
        if gained {
            // What is asked for anew is not there any more, even if it was sent before.
            self.again = true;
        } else if was_right {
            let desired = self.desired(kind, target, false);
            self.has = Some(desired.version);
            self.accepted = desired.resources;
        }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Option<Verdict> {
        let set = self.in_flight.take_if(|_| request.response_nonce == self.nonce)?;
        let Some(error) = &request.error_detail else {
            self.counters.acked += 1;
            let resources = set.resources.len();
            self.has = Some(set.version);
            self.accepted = set.resources;
            return Some(Verdict::Acked { resources });
        };
        self.counters.rejected += 1;
        self.has = None;
        let differs = |(name, resource): &(&Arc<str>, &Arc<Encoded>)| {
            self.accepted.get(*name).is_none_or(|accepted| accepted.version != resource.version)
        };
        let changed: Vec<&Arc<str>> = set.resources.iter().filter(differs).map(|(name, _)| name).collect();
        let blamed = match &changed[..] {
            [only] => vec![(*only).clone()],
            _ => blamed(set.resources.keys(), &error.message),
        };
        let rejection =
            |name: Arc<str>, version| Rejection { name, version, message: words::kept(&error.message) };
        for resource in blamed.iter().filter_map(|name| set.resources.get(name)) {
            let refused = self.rejected.entry(resource.name.clone()).or_default();
            remember(refused, rejection(resource.name.clone(), resource.version));
        }
        if blamed.is_empty() {
            remember(&mut self.refused, rejection(EVERYTHING.into(), set.version));
        }
        Some(Verdict::Rejected { blamed })
    }

    /// What the proxy should have: a refused resource is replaced by the last one that was taken, if any.
    pub(super) fn desired(&self, kind: Type, target: &Resources, keep_removed: bool) -> Set {
        let mut resources = Resources::new();
        for (name, resource) in target.iter().filter(|(name, _)| self.wants(kind, name)) {
            let candidates = [Some(resource), self.accepted.get(name)];
            if let Some(chosen) = candidates.into_iter().flatten().find(|candidate| !self.refuses(candidate))
            {
                resources.insert(name.clone(), chosen.clone());
            }
        }
        if keep_removed {
            let removed = self.accepted.iter().filter(|(name, _)| !target.contains_key(*name));
            resources.extend(removed.map(|(name, resource)| (name.clone(), resource.clone())));
        }
        Set::new(resources)
    }

    fn refuses(&self, resource: &Encoded) -> bool {
        let refused = self.rejected.get(&resource.name);
        refused.is_some_and(|refused| refused.iter().any(|refused| refused.version == resource.version))
    }

    /// The next response, unless the proxy has it, refused it, or waits for something that is not there yet.
    pub(super) fn due(&self, kind: Type, target: &Resources, keep_removed: bool) -> Option<Set> {
        if !self.requested {
            return None;
        }
        let desired = self.desired(kind, target, keep_removed);
        let nothing = desired.resources.is_empty() && !self.wants_everything(kind);
        let same = self.has == Some(desired.version) && !self.again;
        let refused = self.refused.iter().any(|refused| refused.version == desired.version);
        (!nothing && !same && !refused).then_some(desired)
    }

    /// A proxy that reconnects tells a version only; when it is the one it should have, its content is known.
    pub(super) fn recognise(&mut self, kind: Type, target: &Resources) {
        if self.requested && self.accepted.is_empty() && self.has.is_some() && !self.is_waiting() {
            let desired = self.desired(kind, target, false);
            if self.has == Some(desired.version) {
                self.accepted = desired.resources;
            }
        }
    }

    pub(super) fn settled(&self, kind: Type, target: &Resources) -> bool {
        !self.is_waiting() && self.due(kind, target, false).is_none()
    }

    pub(super) fn launch(&mut self, nonce: String, set: Set) {
        self.nonce = nonce;
        self.again = false;
        self.counters.sent += 1;
        self.counters.resources += set.resources.len() as u64;
        self.in_flight = Some(set);
    }

    pub(super) fn send_again(&mut self) {
        self.again = true;
    }

    pub(super) fn forgive(&mut self) {
        self.rejected.clear();
        self.refused.clear();
    }

    /// Forgets what was refused under names that are no longer wanted.
    pub(super) fn tidy(&mut self, target: &Resources) {
        self.rejected.retain(|name, _| target.contains_key(name));
    }

    pub(super) fn status(&self, kind: Type, target: Option<&Resources>) -> Status {
        let (mut pending, mut rejected) =
            (self.in_flight.as_ref().map_or(0, |set| set.resources.len().max(1)), Vec::new());
        if let Some(target) = target {
            pending += self.due(kind, target, false).map_or(0, |set| set.resources.len().max(1));
            let desired = self.desired(kind, target, false).version;
            let current = |refused: &&Rejection| {
                target.get(&refused.name).is_some_and(|resource| resource.version == refused.version)
            };
            rejected.extend(self.rejected.values().flatten().filter(current).cloned());
            rejected.extend(self.refused.iter().filter(|refused| refused.version == desired).cloned());
        }
        Status { kind, requested: self.requested, pending, rejected, counters: self.counters }
    }
}

fn remember(refused: &mut Vec<Rejection>, rejection: Rejection) {
    refused.retain(|known| known.version != rejection.version);
    if refused.len() == REMEMBERED {
        refused.remove(0);
    }
    refused.push(rejection);
}
