//! One type on a state-of-the-world stream: every response carries all resources of the type that
//! the proxy asked for.
//!
//! The set a proxy should have is worked out when the target, the subscribed names or what the proxy
//! refuses change ([`Channel::refresh`]); acknowledgements look at versions only.

use std::{collections::BTreeMap, sync::Arc};

use foldhash::HashSet;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    action::{Counters, EVERYTHING, Rejection, Status},
    blame::blamed,
    encoded::{Encoded, parse_version},
    message::Request,
    nack_message,
    target::{Resources, Type},
};

/// Limit of rejected versions kept per name, and of rejected sets.
const REMEMBERED: usize = 8;

/// A set of resources, sorted by name, and the version made of their names and versions.
#[derive(Default)]
pub(super) struct Set {
    pub(super) version: u128,
    pub(super) resources: Vec<Arc<Encoded>>,
}

impl Set {
    fn new(resources: Vec<Arc<Encoded>>) -> Arc<Set> {
        let mut hash = Xxh3::new();
        for resource in &resources {
            hash.update(&(resource.name.len() as u64).to_le_bytes());
            hash.update(resource.name.as_bytes());
            hash.update(&resource.version.to_le_bytes());
        }
        Arc::new(Set { version: hash.digest128(), resources })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Encoded>> {
        let at = self.resources.binary_search_by(|resource| (*resource.name).cmp(name)).ok()?;
        self.resources.get(at)
    }

    /// Number of resources in a response with this set; an empty response counts as one.
    fn count(&self) -> usize {
        self.resources.len().max(1)
    }
}

/// The proxy's answer to the response in flight.
pub(super) enum ProxyAnswer {
    Acked { resources: usize },
    Rejected { blamed: Vec<Arc<str>> },
}

#[derive(Default)]
pub(super) struct Channel {
    pub(super) requested: bool,
    names: HashSet<Arc<str>>,
    /// The nonce of the last response; only requests that carry it are up to date.
    pub(super) nonce: String,
    in_flight: Option<Arc<Set>>,
    /// The set in flight has something that the proxy still lacks if it rejects the response.
    introduces: bool,
    /// Resources that the proxy has, as far as this stream knows.
    pub(super) accepted: Arc<Set>,
    /// Resources that the proxy should have; `None` until computed again.
    desired: Option<Arc<Set>>,
    /// The version the proxy has; `None` when that is uncertain.
    has: Option<u128>,
    /// The proxy came with resources from an earlier stream.
    resumed: bool,
    /// Send even what the proxy has.
    again: bool,
    rejected: BTreeMap<Arc<str>, Vec<Rejection>>,
    /// Sets that were refused for no resource in particular.
    refused: Vec<Rejection>,
    counters: Counters,
    visits: u64,
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

    /// True if a response in flight has something that the proxy still lacks if it rejects the response.
    pub(super) fn introduces(&self) -> bool {
        self.is_waiting() && self.introduces
    }

    /// Number of visits to resources; proves that cost follows change.
    pub(super) fn visits(&self) -> u64 {
        self.visits
    }

    /// Takes in the names of an up-to-date request; says whether they are others than before.
    pub(super) fn subscribe(&mut self, kind: Type, request: &Request, target: Option<Resources<'_>>) -> bool {
        let names: HashSet<Arc<str>> =
            request.resource_names.iter().map(|name| name.as_str().into()).collect();
        if !std::mem::replace(&mut self.requested, true) {
            self.has = parse_version(&request.version_info);
            self.resumed = self.has.is_some();
            self.names = names;
            self.desired = None;
            return true;
        }
        if names == self.names {
            return false;
        }
        let right = target.map(|target| self.refresh(kind, target).version);
        let was_right = right.is_some() && self.has == right;
        let gained =
            target.is_some_and(|target| names.difference(&self.names).any(|name| target.contains_key(name)));
        self.names = names;
        self.desired = None;
        if gained {
            // What is asked for anew is not there any more, even if it was sent before.
            self.again = true;
        } else if let Some(target) = target.filter(|_| was_right) {
            let desired = self.refresh(kind, target);
            self.has = Some(desired.version);
            self.accepted = desired;
        }
        true
    }

    pub(super) fn answer(&mut self, request: &Request) -> Option<ProxyAnswer> {
        let set = self.in_flight.take_if(|_| request.response_nonce == self.nonce)?;
        let Some(error) = &request.error_detail else {
            self.counters.acked += 1;
            let resources = set.resources.len();
            self.has = Some(set.version);
            self.accepted = set;
            self.forget_fallbacks();
            return Some(ProxyAnswer::Acked { resources });
        };
        self.counters.rejected += 1;
        self.has = None;
        let differs = |resource: &&Arc<Encoded>| {
            self.accepted.get(&resource.name).is_none_or(|accepted| accepted.version != resource.version)
        };
        let changed: Vec<&Arc<Encoded>> = set.resources.iter().filter(differs).collect();
        let blamed = match &changed[..] {
            [only] => vec![only.name.clone()],
            _ => blamed(set.resources.iter().map(|resource| &resource.name), &error.message),
        };
        let rejection = |name: Arc<str>, version| Rejection {
            name,
            version,
            message: nack_message::kept(&error.message),
            has_another: false,
        };
        for resource in blamed.iter().filter_map(|name| set.get(name)) {
            let refused = self.rejected.entry(resource.name.clone()).or_default();
            remember(refused, rejection(resource.name.clone(), resource.version));
        }
        if blamed.is_empty() {
            remember(&mut self.refused, rejection(EVERYTHING.into(), set.version));
        }
        self.desired = None;
        Some(ProxyAnswer::Rejected { blamed })
    }

    /// Discards the desired set if it may contain fallbacks: it depends on accepted resources only if others
    /// are rejected.
    fn forget_fallbacks(&mut self) {
        if !self.rejected.is_empty() {
            self.desired = None;
        }
    }

    /// Returns the resources that the proxy should have: the last accepted version replaces a rejected one,
    /// if there is any.
    pub(super) fn refresh(&mut self, kind: Type, target: Resources<'_>) -> Arc<Set> {
        if let Some(desired) = &self.desired {
            return desired.clone();
        }
        self.visits += target.len() as u64;
        let desired = Set::new(self.chosen(kind, target));
        self.desired = Some(desired.clone());
        desired
    }

    fn chosen(&self, kind: Type, target: Resources<'_>) -> Vec<Arc<Encoded>> {
        let wanted = target.values().filter(|resource| self.wants(kind, &resource.name));
        let choose = |resource: &Arc<Encoded>| {
            let candidates = [Some(resource), self.accepted.get(&resource.name)];
            candidates.into_iter().flatten().find(|candidate| !self.refuses(candidate)).cloned()
        };
        wanted.filter_map(choose).collect()
    }

    /// The desired set together with what the proxy has and should no longer have.
    fn with_removed(&mut self, kind: Type, target: Resources<'_>) -> Arc<Set> {
        let desired = self.refresh(kind, target);
        self.visits += self.accepted.resources.len() as u64;
        let removed = self.accepted.resources.iter().filter(|resource| !target.contains_key(&resource.name));
        let removed: Vec<_> = removed.cloned().collect();
        if removed.is_empty() {
            return desired;
        }
        let mut all = desired.resources.clone();
        all.extend(removed);
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Set::new(all)
    }

    fn refuses(&self, resource: &Encoded) -> bool {
        let refused = self.rejected.get(&resource.name);
        refused.is_some_and(|refused| refused.iter().any(|refused| refused.version == resource.version))
    }

    /// The next response, unless the proxy has it, refused it, or waits for something that is not there yet.
    pub(super) fn due(&mut self, kind: Type, target: Resources<'_>, keep_removed: bool) -> Option<Arc<Set>> {
        if !self.requested {
            return None;
        }
        let next = if keep_removed { self.with_removed(kind, target) } else { self.refresh(kind, target) };
        self.is_due(kind, &next).then_some(next)
    }

    fn is_due(&self, kind: Type, set: &Set) -> bool {
        let nothing = set.resources.is_empty() && !self.wants_everything(kind);
        let same = self.has == Some(set.version) && !self.again;
        let refused = self.refused.iter().any(|refused| refused.version == set.version);
        self.requested && !nothing && !same && !refused
    }

    /// A proxy that reconnects tells a version only; when it is the one it should have, its content is known.
    pub(super) fn recognise(&mut self, kind: Type, target: Resources<'_>) {
        let unknown = self.accepted.resources.is_empty() && self.has.is_some();
        if self.requested && unknown && !self.is_waiting() {
            let desired = self.refresh(kind, target);
            if self.has == Some(desired.version) {
                self.accepted = desired;
            }
        }
    }

    pub(super) fn settled(&mut self, kind: Type, target: Resources<'_>) -> bool {
        !self.is_waiting() && self.due(kind, target, false).is_none()
    }

    pub(super) fn launch(&mut self, nonce: String, set: Arc<Set>) {
        self.nonce = nonce;
        self.again = false;
        self.introduces = set.resources.iter().any(|sent| self.accepted.get(&sent.name).is_none());
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
        self.desired = None;
    }

    /// Takes note that the target of the type changed; forgets what was refused under names that are gone.
    pub(super) fn retarget(&mut self, target: Resources<'_>) {
        self.desired = None;
        self.rejected.retain(|name, _| target.contains_key(name));
    }

    /// True if the proxy may use a resource of this name; for `*`, if it may use any set.
    fn may_have(&self, name: &str) -> bool {
        let accepted = &self.accepted;
        let known =
            if name == EVERYTHING { !accepted.resources.is_empty() } else { accepted.get(name).is_some() };
        self.resumed || known
    }

    /// Returns the status of the type; `target` is `None` while there is none.
    pub(super) fn status(&self, kind: Type, target: Option<Resources<'_>>) -> Status {
        let mut pending = self.in_flight.as_ref().map_or(0, |set| set.count());
        let mut rejected = Vec::new();
        if let Some((target, desired)) = target.zip(self.desired.as_ref()) {
            pending += if self.is_due(kind, desired) { desired.count() } else { 0 };
            let current = |refused: &&Rejection| {
                target.get(&refused.name).is_some_and(|resource| resource.version == refused.version)
            };
            let of_set = self.refused.iter().filter(|refused| refused.version == desired.version);
            let refused = self.rejected.values().flatten().filter(current).chain(of_set);
            rejected.extend(
                refused.map(|refused| Rejection {
                    has_another: self.may_have(&refused.name),
                    ..refused.clone()
                }),
            );
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
