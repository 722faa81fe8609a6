//! Claims of VirtualOutbounds on hostnames, kept up to date.
//!
//! Each distinct set of tags that some inbound has (a source) is rendered, not each Dataplane: however many
//! have the same tags, they cost what one does. Rendering is pure, so a claim is taken back by rendering it
//! again.
//!
//! However many hostnames are claimed, the claims of the first so many by name are kept, and the others are
//! counted. A claim beyond these costs one rendering and one comparison.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use imbl::OrdMap;
use jiff::Timestamp;
use resources::{
    Resource,
    kinds::{
        dataplane::InboundState,
        tags::{ANY_VALUE, Tags},
        virtual_outbound::{Rank, Rendering, VirtualOutbound, VirtualOutboundSelector},
    },
    labels,
    naming::service_hosts::ServiceHosts,
};

use super::{HostConflict, UnrenderedTags, VirtualHost, VirtualPort, vips};
use crate::{
    lists::{Lists, add_to, remove_from},
    matching,
};

mod of_mesh;

/// The port that Kuma gives to inbounds of applications that listen nowhere.
const NO_PORT: u32 = 49151;
/// Limit of losers that are listed for each port of a hostname: the next in line.
const LOSERS: usize = 10;
/// Number of hostnames that are kept beyond those that are offered, to take the place of some that go. Only
/// when they are used up, everything is rendered once more: so seldom that each hostname that goes costs
/// little.
pub(crate) const SPARE: usize = 1024;

/// A tag with its value; [`ANY_VALUE`] where a selector asks for any.
type Anchor = (String, String);
/// Claims on a hostname.
#[derive(Debug, Clone, Default)]
struct ClaimedHostname {
    /// By port, the winner first, each with the number of its sources.
    ports: BTreeMap<u16, OrdMap<Claim, usize>>,
    /// The sum of those numbers.
    claims: usize,
}

/// A VirtualOutbound, with its templates read.
#[derive(Debug)]
struct ClaimingPolicy {
    resource: Arc<Resource>,
    spec: VirtualOutbound,
    rendering: Rendering,
}

/// Somebody who wants a hostname and port. The order says who gets it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    rank: Reverse<Rank>,
    created: Reverse<Timestamp>,
    port: VirtualPort,
}

/// Changed hostnames and policies.
#[derive(Debug, Default)]
pub(crate) struct ChangedClaims {
    pub hosts: BTreeSet<Arc<str>>,
    pub policies: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    policies: OrdMap<Arc<str>, Arc<ClaimingPolicy>>,
    /// Policies by one tag of each of their selectors.
    by_selector: Lists<Anchor, Arc<str>>,
    /// Number of Dataplanes that have inbounds with exactly these tags.
    sources: OrdMap<Arc<Tags>, usize>,
    by_tag: Lists<Anchor, Arc<Tags>>,
    /// The first hostnames by name, with all claims on them.
    hosts: OrdMap<Arc<str>, Arc<ClaimedHostname>>,
    /// Hostnames from this one on are not kept.
    cut: Option<Arc<str>>,
    /// Number of claims on hostnames that are not kept.
    dropped: usize,
    /// Limit of hostnames that are offered.
    pub limit: usize,
    /// The tags that a policy makes no hostname of, with the number of their sources.
    unrendered: OrdMap<Arc<str>, OrdMap<Arc<Tags>, usize>>,
    /// The hostnames that the mesh itself gives services.
    services: Option<Arc<ServiceHosts>>,
    /// The addresses that are stored, by shard.
    addresses: OrdMap<u8, Arc<BTreeMap<Arc<str>, Ipv4Addr>>>,
    /// Number of times that a hostname was rendered since the beginning.
    pub rendered: u64,
}

impl Claims {
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.addresses.is_empty()
    }

    /// Returns the number of claims that are kept, to prove that it is bounded.
    pub fn kept(&self) -> usize {
        self.hosts.values().map(|claimed| claimed.claims).sum()
    }

    /// Returns the number of claims on hostnames behind the last that is offered.
    pub fn behind(&self, last: Option<&Arc<str>>) -> usize {
        let spare = last.into_iter().flat_map(|last| self.hosts.range(last.clone()..).skip(1));
        self.dropped + spare.map(|(_, claimed)| claimed.claims).sum::<usize>()
    }

    /// The first hostname behind this one.
    pub fn after(&self, host: &Arc<str>) -> Option<Arc<str>> {
        self.hosts.range(host.clone()..).map(|(name, _)| name).find(|name| *name != host).cloned()
    }

    /// Finds what comes after the last hostname that is kept, when fewer are than are offered.
    pub fn refill(&mut self, touched: &mut ChangedClaims) {
        if self.hosts.len() >= self.limit {
            return;
        }
        let Some(cut) = self.cut.take() else { return };
        self.dropped = 0;
        for source in self.sources.clone().keys() {
            for policy in self.policies_of(source) {
                self.rendered += 1;
                if let Some((Ok((host, port, claim)), _)) = policy.claim(source)
                    && host >= cut
                {
                    self.keep(host, port, claim, touched);
                }
            }
            for (host, port, claim) in self.of_mesh(source) {
                if host >= cut {
                    self.keep(host, port, claim, touched);
                }
            }
        }
    }

    /// Takes in another version of a Dataplane.
    pub fn replace_dataplane(
        &mut self,
        old: Option<&Resource>,
        new: Option<&Resource>,
        touched: &mut ChangedClaims,
    ) {
        self.replace_sources(&sources_of(old), &sources_of(new), touched);
    }

    /// Takes in other sets of tags from one place, such as a Dataplane, or a service of other zones.
    pub fn replace_sources(
        &mut self,
        before: &BTreeSet<&Tags>,
        after: &BTreeSet<&Tags>,
        touched: &mut ChangedClaims,
    ) {
        for tags in after.difference(before) {
            self.add_source(tags, touched);
        }
        for tags in before.difference(after) {
            self.remove_source(tags, touched);
        }
    }

    fn add_source(&mut self, tags: &Tags, touched: &mut ChangedClaims) {
        if let Some(users) = self.sources.get_mut(tags) {
            *users += 1;
            return;
        }
        let source = Arc::new(tags.clone());
        self.sources.insert(source.clone(), 1);
        for (name, value) in tags {
            add_to(&mut self.by_tag, (name.clone(), value.clone()), source.clone());
        }
        for policy in self.policies_of(tags) {
            self.claim(&policy, &source, touched);
        }
        self.claim_for_mesh(tags, touched);
    }

    fn remove_source(&mut self, tags: &Tags, touched: &mut ChangedClaims) {
        let Some(users) = self.sources.get_mut(tags) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        let source = Arc::new(tags.clone());
        self.sources.remove(&source);
        for (name, value) in tags {
            remove_from(&mut self.by_tag, &(name.clone(), value.clone()), &source);
        }
        for policy in self.policies_of(tags) {
            self.take_back(&policy, &source, touched);
        }
        self.take_back_from_mesh(tags, touched);
    }

    /// Takes in another version of a VirtualOutbound.
    pub fn replace_policy(
        &mut self,
        name: &Arc<str>,
        value: Option<&Arc<Resource>>,
        touched: &mut ChangedClaims,
    ) {
        let old = self.policies.get(name).cloned();
        // When a policy was created decides between equals, so it counts though no proxy sees it.
        let content = |policy: &Resource| (policy.created, policy.spec.clone());
        if old.as_ref().map(|old| content(&old.resource)) == value.map(|new| content(new)) {
            return;
        }
        if let Some(old) = old {
            for source in self.selected_by(&old.spec) {
                self.take_back(&old, &source, touched);
            }
            for anchor in old.spec.selectors.iter().filter_map(anchor_of) {
                remove_from(&mut self.by_selector, &anchor, name);
            }
            self.policies.remove(name);
        }
        let Some(new) = value.and_then(ClaimingPolicy::of).map(Arc::new) else { return };
        for anchor in new.spec.selectors.iter().filter_map(anchor_of) {
            add_to(&mut self.by_selector, anchor, name.clone());
        }
        self.policies.insert(name.clone(), new.clone());
        for source in self.selected_by(&new.spec) {
            self.claim(&new, &source, touched);
        }
    }

    /// Takes in the addresses of a shard as they are stored now.
    pub fn replace_addresses(
        &mut self,
        shard: u8,
        now: Option<BTreeMap<Arc<str>, Ipv4Addr>>,
        touched: &mut ChangedClaims,
    ) {
        let none = BTreeMap::new();
        let before = self.addresses.get(&shard).cloned().unwrap_or_default();
        let after = now.as_ref().unwrap_or(&none);
        let names: BTreeSet<&Arc<str>> = before.keys().chain(after.keys()).collect();
        let moved = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
        touched.hosts.extend(moved.cloned());
        match now.filter(|now| !now.is_empty()) {
            Some(now) => self.addresses.insert(shard, Arc::new(now)),
            None => self.addresses.remove(&shard),
        };
    }

    /// A hostname as it is claimed now, with those who lost it; `None` when no policy claims it.
    pub fn host(&self, name: &Arc<str>) -> Option<(VirtualHost, Vec<HostConflict>)> {
        let claimed = self.hosts.get(name)?;
        let mut ports = BTreeMap::new();
        let mut conflicts = Vec::new();
        for (port, claims) in &claimed.ports {
            let mut claims = claims.keys().map(|claim| &claim.port);
            let Some(winner) = claims.next() else { continue };
            let mut losers: Vec<&VirtualPort> = Vec::new();
            // A policy whose selectors differ in rank stands here more than once. What the mesh itself offers is meant
            // to be replaced, so losing it is no conflict.
            for claim in claims.filter(|claim| *claim != winner && claim.policy.is_some()) {
                if !losers.contains(&claim) {
                    losers.push(claim);
                }
                if losers.len() == LOSERS {
                    break;
                }
            }
            conflicts.extend(losers.into_iter().map(|loser| HostConflict {
                hostname: name.clone(),
                port: *port,
                winner: winner.clone(),
                loser: loser.clone(),
            }));
            ports.insert(*port, winner.clone());
        }
        let vip = self.addresses.get(&vips::shard_of(name)).and_then(|shard| shard.get(name)).copied();
        Some((VirtualHost { hostname: name.clone(), vip, ports }, conflicts))
    }

    /// Returns the sets of tags that a policy makes no hostname of, with the reason of the first.
    pub fn unrendered(&self, policy: &str) -> Option<UnrenderedTags> {
        let failed = self.unrendered.get(policy)?;
        let (tags, _) = failed.get_min()?;
        let reason = self.policies.get(policy)?.render(tags).err()?;
        Some(UnrenderedTags { tuples: failed.len(), tags: tags.clone(), reason })
    }

    /// The policies that select these tags.
    fn policies_of(&self, tags: &Tags) -> Vec<Arc<ClaimingPolicy>> {
        let mut names: BTreeSet<&Arc<str>> = BTreeSet::new();
        for (name, value) in tags {
            for wanted in [value.as_str(), ANY_VALUE] {
                names.extend(self.by_selector.get(&(name.clone(), wanted.to_owned())).into_iter().flatten());
            }
        }
        let policies = names.into_iter().filter_map(|name| self.policies.get(name));
        policies.filter(|policy| policy.spec.rank(tags).is_some()).cloned().collect()
    }

    /// The sources that a policy selects.
    fn selected_by(&self, policy: &VirtualOutbound) -> BTreeSet<Arc<Tags>> {
        let mut selected = BTreeSet::new();
        for (name, value) in policy.selectors.iter().filter_map(anchor_of) {
            let first = (name.clone(), if value == ANY_VALUE { String::new() } else { value.clone() });
            let listed = self
                .by_tag
                .range(first..)
                .take_while(|((tag, of), _)| *tag == name && (value == ANY_VALUE || *of == value));
            let sources = listed.flat_map(|(_, sources)| sources);
            selected.extend(sources.filter(|source| policy.rank(source).is_some()).cloned());
        }
        selected
    }

    fn claim(&mut self, policy: &ClaimingPolicy, source: &Arc<Tags>, touched: &mut ChangedClaims) {
        self.rendered += 1;
        let Some((claim, tags)) = policy.claim(source) else { return };
        match claim {
            Ok((host, port, claim)) => self.keep(host, port, claim, touched),
            Err(_) => {
                let name = &policy.resource.key.name;
                *self.unrendered.entry(name.clone()).or_default().entry(tags).or_default() += 1;
                touched.policies.insert(name.clone());
            }
        }
    }

    /// Keeps a claim, unless enough hostnames come before it; then it counts.
    fn keep(&mut self, host: Arc<str>, port: u16, claim: Claim, touched: &mut ChangedClaims) {
        if self.is_beyond(&host) {
            self.dropped += 1;
            return;
        }
        let claimed = Arc::make_mut(self.hosts.entry(host.clone()).or_default());
        *claimed.ports.entry(port).or_default().entry(claim).or_default() += 1;
        claimed.claims += 1;
        touched.hosts.insert(host);
        if self.hosts.len() > self.limit.saturating_add(SPARE)
            && let Some((last, _)) = self.hosts.get_max().cloned()
        {
            self.dropped += self.hosts.remove(&last).map_or(0, |claimed| claimed.claims);
            touched.hosts.insert(last.clone());
            self.cut = Some(last);
        }
    }

    /// Keeps one claim less.
    fn drop_one(&mut self, host: Arc<str>, port: u16, claim: &Claim, touched: &mut ChangedClaims) {
        if self.is_beyond(&host) {
            self.dropped = self.dropped.saturating_sub(1);
            if self.dropped == 0 {
                self.cut = None;
            }
            return;
        }
        if let Some(claimed) = self.hosts.get_mut(&host) {
            let claimed = Arc::make_mut(claimed);
            if let Some(claims) = claimed.ports.get_mut(&port) {
                take_one(claims, claim);
                claimed.claims = claimed.claims.saturating_sub(1);
                if claims.is_empty() {
                    claimed.ports.remove(&port);
                }
            }
            if claimed.ports.is_empty() {
                self.hosts.remove(&host);
            }
        }
        touched.hosts.insert(host);
    }

    fn is_beyond(&self, host: &Arc<str>) -> bool {
        self.cut.as_ref().is_some_and(|cut| host >= cut)
    }

    fn take_back(&mut self, policy: &ClaimingPolicy, source: &Arc<Tags>, touched: &mut ChangedClaims) {
        self.rendered += 1;
        let Some((claim, tags)) = policy.claim(source) else { return };
        match claim {
            Ok((host, port, claim)) => self.drop_one(host, port, &claim, touched),
            Err(_) => {
                let name = &policy.resource.key.name;
                if let Some(failed) = self.unrendered.get_mut(name) {
                    take_one(failed, &tags);
                    if failed.is_empty() {
                        self.unrendered.remove(name);
                    }
                }
                touched.policies.insert(name.clone());
            }
        }
    }
}

impl ClaimingPolicy {
    fn of(resource: &Arc<Resource>) -> Option<ClaimingPolicy> {
        let spec = resource.spec.get::<VirtualOutbound>()?.clone();
        // Templates are read before they are stored; what cannot be read makes no hostnames.
        let rendering = spec.templates()?.rendering().ok()?;
        Some(ClaimingPolicy { resource: resource.clone(), spec, rendering })
    }

    /// Applies the policy to a source: returns a claim, or the reason why there is none, and the tags that it
    /// is about. `None` if the policy does not select the source.
    #[allow(clippy::type_complexity, reason = "read in two places of this file")]
    fn claim(&self, source: &Arc<Tags>) -> Option<(Result<(Arc<str>, u16, Claim), String>, Arc<Tags>)> {
        let rank = Reverse(self.spec.rank(source)?);
        let tags = Arc::new(self.rendering.tag_set(source));
        let claim = self.render(&tags).map(|(host, port)| {
            let policy = Some(self.resource.key.name.clone());
            let created = Reverse(self.resource.created);
            (host, port, Claim { rank, created, port: VirtualPort { policy, tags: tags.clone() } })
        });
        Some((claim, tags))
    }

    fn render(&self, tags: &Tags) -> Result<(Arc<str>, u16), String> {
        if !tags.contains_key(labels::SERVICE) {
            return Err(format!("there is no tag {:?} to route by", labels::SERVICE));
        }
        let host = self.rendering.host(tags).map_err(|error| error.to_string())?;
        let port = self.rendering.port(tags).map_err(|error| error.to_string())?;
        Ok((host.into(), port))
    }
}

/// The sets of tags that a Dataplane's inbounds have.
fn sources_of(dataplane: Option<&Resource>) -> BTreeSet<&Tags> {
    let inbounds = dataplane.into_iter().flat_map(matching::inbounds);
    let serving = inbounds.filter(|i| i.state != InboundState::Ignored && i.port != NO_PORT);
    serving.map(|inbound| &inbound.tags).filter(|tags| !tags.is_empty()).collect()
}

/// One tag of a selector, as rare as can be said without looking: with a value, of a service before all.
fn anchor_of(selector: &VirtualOutboundSelector) -> Option<Anchor> {
    let order = |(name, value): &(&String, &String)| (*value == ANY_VALUE, *name != labels::SERVICE);
    selector.tags.iter().min_by_key(order).map(|(name, value)| (name.clone(), value.clone()))
}

fn take_one<K: Ord + Clone>(counted: &mut OrdMap<K, usize>, key: &K) {
    if let Some(count) = counted.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counted.remove(key);
        }
    }
}
