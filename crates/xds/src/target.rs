//! Resources that a proxy should have: its own over those it shares with proxies that call the same.

use std::{cmp::Ordering, iter::Peekable, ops::Bound, sync::Arc};

use imbl::{OrdMap, ordmap::DiffItem};

use crate::{
    encoded::Encoded,
    own::{OwnResources, find},
};

/// The kinds of resources that are discovered, in the order in which they are made before they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    Cluster,
    Endpoint,
    Secret,
    Listener,
    Route,
}

impl Type {
    pub const ALL: [Type; 5] = [Type::Cluster, Type::Endpoint, Type::Secret, Type::Listener, Type::Route];

    pub fn url(self) -> &'static str {
        match self {
            Type::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Type::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Type::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Type::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Type::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub fn by_url(url: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.url() == url)
    }

    /// True if a first request without names subscribes to everything.
    pub(crate) fn empty_means_all(self) -> bool {
        matches!(self, Type::Cluster | Type::Listener)
    }
}

type Map = OrdMap<Arc<str>, Arc<Encoded>>;

/// Resources by type and name. Two layers share what they have in common, so a change costs what changed:
/// to make, to keep and to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    by_type: [Map; Type::ALL.len()],
}

impl Layer {
    pub fn insert(&mut self, kind: Type, resource: Arc<Encoded>) {
        self.by_type[kind as usize].insert(resource.name.clone(), resource);
    }

    pub fn get(&self, kind: Type, name: &str) -> Option<&Arc<Encoded>> {
        self.by_type[kind as usize].get(name)
    }

    /// The resources of a type, sorted by name.
    pub fn of(&self, kind: Type) -> impl Iterator<Item = &Arc<Encoded>> {
        self.by_type[kind as usize].values()
    }

    pub fn len(&self, kind: Type) -> usize {
        self.by_type[kind as usize].len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_type.iter().all(OrdMap::is_empty)
    }

    /// Becomes equal to `next`, and keeps sharing with its former self what is equal in both.
    pub fn become_like(&mut self, next: &Layer) {
        for kind in Type::ALL {
            let changed = changed(&self.by_type[kind as usize], &next.by_type[kind as usize]);
            let map = &mut self.by_type[kind as usize];
            for (name, now) in changed {
                match now {
                    Some(resource) => map.insert(name, resource),
                    None => map.remove(&name),
                };
            }
        }
    }
}

/// Everything a proxy should have, by type and name.
///
/// A name that is in both layers is the proxy's own. The endpoints of a cluster have the name of the
/// cluster; a cluster whose endpoints are in the target is one that discovers them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    pub own: OwnResources,
    pub shared: Arc<Layer>,
}

impl Target {
    /// Adds one of the proxy's own resources.
    pub fn insert(&mut self, kind: Type, resource: Arc<Encoded>) {
        self.own.insert(kind, resource);
    }

    pub fn of(&self, kind: Type) -> Resources<'_> {
        Resources { own: self.own.of(kind), shared: &self.shared.by_type[kind as usize] }
    }

    /// The names that are in only one of both, or in both with different versions, with what they stand for now. A
    /// name may be listed twice.
    pub(crate) fn changed(&self, before: &Target, kind: Type) -> Vec<TargetChange> {
        let at = kind as usize;
        let of_own = self.own.changed(&before.own, kind);
        // What is gone from the proxy's own may be there for all.
        let resolve = |(name, now): TargetChange| {
            let now = now.or_else(|| self.shared.by_type[at].get(&name).cloned());
            (name, now)
        };
        let mut changes: Vec<TargetChange> = of_own.into_iter().map(resolve).collect();
        if !Arc::ptr_eq(&before.shared, &self.shared) {
            let shared = changed(&before.shared.by_type[at], &self.shared.by_type[at]);
            let own = self.own.of(kind);
            changes.extend(shared.into_iter().filter(|(name, _)| find(own, name).is_err()));
        }
        changes
    }

    /// True if the resources of a type are known to be the same, without looking at them.
    pub(crate) fn shares(&self, other: &Target, kind: Type) -> bool {
        let at = kind as usize;
        let same_shared = Arc::ptr_eq(&self.shared, &other.shared)
            || self.shared.by_type[at].ptr_eq(&other.shared.by_type[at]);
        same_shared && Arc::ptr_eq(self.own.of(kind), other.own.of(kind))
    }
}

/// A name whose resource is another one now; `None` when it is gone.
pub(crate) type TargetChange = (Arc<str>, Option<Arc<Encoded>>);

fn changed(before: &Map, after: &Map) -> Vec<TargetChange> {
    let change = |difference: DiffItem<'_, '_, Arc<str>, Arc<Encoded>>| match difference {
        DiffItem::Add(_, now) | DiffItem::Update { new: (_, now), .. } => {
            (now.name.clone(), Some(now.clone()))
        }
        DiffItem::Remove(name, _) => (name.clone(), None),
    };
    before.diff(after).map(change).collect()
}

/// The resources of one type, sorted by name.
#[derive(Debug, Clone, Copy)]
pub struct Resources<'a> {
    own: &'a [Arc<Encoded>],
    shared: &'a Map,
}

impl<'a> Resources<'a> {
    pub fn get(self, name: &str) -> Option<&'a Arc<Encoded>> {
        let own = find(self.own, name).ok().and_then(|at| self.own.get(at));
        own.or_else(|| self.shared.get(name))
    }

    pub fn contains_key(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn values(self) -> impl Iterator<Item = &'a Arc<Encoded>> {
        self.after(None)
    }

    pub fn keys(self) -> impl Iterator<Item = &'a Arc<str>> {
        self.values().map(|resource| &resource.name)
    }

    /// At most one too many for every name that is in both layers.
    pub fn len(self) -> usize {
        self.own.len() + self.shared.len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The resources whose names come after this one; all without a name.
    pub fn after(self, name: Option<&str>) -> impl Iterator<Item = &'a Arc<Encoded>> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let shared = self.shared.range::<_, str>((from, Bound::Unbounded)).map(|(_, resource)| resource);
        let own = match name.map(|name| find(self.own, name)) {
            None => 0,
            Some(Ok(at)) => at + 1,
            Some(Err(at)) => at,
        };
        MergedLists { own: self.own[own..].iter().peekable(), shared: shared.peekable() }
    }
}

/// Two sorted lists as one; of equal names the own one counts.
struct MergedLists<'a, I: Iterator<Item = &'a Arc<Encoded>>> {
    own: Peekable<std::slice::Iter<'a, Arc<Encoded>>>,
    shared: Peekable<I>,
}

impl<'a, I: Iterator<Item = &'a Arc<Encoded>>> Iterator for MergedLists<'a, I> {
    type Item = &'a Arc<Encoded>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.own.peek(), self.shared.peek()) {
            (Some(own), Some(shared)) => own.name.cmp(&shared.name),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        if order == Ordering::Equal {
            self.shared.next();
        }
        if order.is_le() { self.own.next() } else { self.shared.next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(resources: &str) -> Layer {
        let mut layer = Layer::default();
        for (name, version) in resources.split_whitespace().filter_map(|r| r.split_once('@')) {
            let version = version.parse().unwrap();
            layer.insert(Type::Cluster, Arc::new(Encoded::new(Type::Cluster, name, version, b"")));
        }
        layer
    }

    fn target(own: &str, shared: &str) -> Target {
        let mut target = Target { shared: Arc::new(layer(shared)), ..Target::default() };
        layer(own).of(Type::Cluster).for_each(|resource| target.insert(Type::Cluster, resource.clone()));
        target
    }

    #[track_caller]
    fn check(before: &str, after: &str, changed: &str) {
        for (before, after) in
            [(target(before, ""), target(after, "")), (target("", before), target("", after))]
        {
            let found = after.changed(&before, Type::Cluster);
            let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names.join(" "), changed);
            for (name, now) in &found {
                assert_eq!(now.as_ref(), after.of(Type::Cluster).get(name));
            }
        }
        let mut changing = layer(before);
        changing.become_like(&layer(after));
        assert_eq!(changing, layer(after));
    }

    #[test]
    fn what_changed_between_targets_is_added_removed_or_has_another_version() {
        check("", "", "");
        check("", "a@1", "a");
        check("a@1", "", "a");
        check("a@1 b@1 c@1", "a@1 b@2 d@1", "b c d");
        check("b@1", "a@1 b@1 c@1", "a c");
        check("a@1 b@1 c@1", "b@1", "a c");
    }

    #[test]
    fn own_resources_come_before_shared_ones_of_the_same_name() {
        let target = target("b@2 d@2", "a@1 b@1 c@1");
        let shown = |resource: &Arc<Encoded>| format!("{}@{}", resource.name, resource.version);
        let all: Vec<String> = target.of(Type::Cluster).values().map(shown).collect();
        assert_eq!(all.join(" "), "a@1 b@2 c@1 d@2");
        let rest: Vec<String> = target.of(Type::Cluster).after(Some("b")).map(shown).collect();
        assert_eq!(rest.join(" "), "c@1 d@2");
        assert_eq!(target.of(Type::Cluster).get("b").map(shown).as_deref(), Some("b@2"));
        assert!(!target.of(Type::Cluster).contains_key("e"));
    }
}
