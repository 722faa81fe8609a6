//! `to` of the policies that apply to a proxy: one merged conf per destination that is mentioned.
//!
//! An entry reaches the resources its reference names; a destination gets every entry that is about it
//! or about something wider (its service without a port, the mesh). The configuration of an outbound
//! takes the narrowest conf there is: port, then service, then mesh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use resources::{
    Kind, Labels,
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
    naming::Kri,
    policy::Shape,
};

use crate::{
    conf::{self, Conf, MergedPolicy},
    order,
    select::NameScope,
    view::{PolicyEntry, PolicyView},
};

/// The conf of one destination: the mesh, a service, a port of a service, or a route.
///
/// Many destinations are named and few are called by one proxy, so confs are merged when asked for.
#[derive(Debug, Clone)]
pub struct ResourceRule {
    pub target: Kri,
    /// The entries about it, lowest precedence first.
    entries: Vec<Arc<Conf>>,
    shape: Shape,
    merged: OnceLock<Arc<[Arc<MergedPolicy>]>>,
}

impl ResourceRule {
    /// One, except for kinds whose confs are grouped by a list ([`Shape::grouped`]).
    pub fn merged(&self) -> &[Arc<MergedPolicy>] {
        self.merged.get_or_init(|| conf::merged(&self.entries, self.shape))
    }

    /// Every entry that took part, each once.
    pub fn origins(&self) -> Vec<&Kri> {
        let mut seen = BTreeSet::new();
        self.merged().iter().flat_map(|merged| &merged.origins).filter(|kri| seen.insert(*kri)).collect()
    }
}

impl PartialEq for ResourceRule {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target && self.merged() == other.merged()
    }
}

/// The confs of all destinations that some entry names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceRules {
    pub rules: BTreeMap<Kri, ResourceRule>,
    /// The confs of routes to one destination alone, where they are different from those of the route.
    narrowed: BTreeMap<(Kri, Kri), ResourceRule>,
    /// The entries that name nothing, and what they say they are for.
    pub unresolved: Vec<(Kri, TargetRef)>,
    /// Resources that entries would name instead of those they name now, if these resources existed.
    pub awaited: BTreeSet<Kri>,
    mesh: Option<Kri>,
}

impl ResourceRules {
    /// No conf for anything.
    pub const NONE: ResourceRules = ResourceRules {
        rules: BTreeMap::new(),
        narrowed: BTreeMap::new(),
        unresolved: Vec::new(),
        awaited: BTreeSet::new(),
        mesh: None,
    };

    /// The conf for a destination: that of its port, else of the whole service, else of the mesh.
    pub fn for_destination(&self, destination: &Kri) -> Option<&ResourceRule> {
        self.find(&[destination])
    }

    /// The conf for a route to a destination: the route's own, else that of the destination.
    pub fn for_route(&self, route: &Kri, destination: &Kri) -> Option<&ResourceRule> {
        let narrowed = self.narrowed.get(&(route.without_section(), destination.without_section()));
        narrowed.or_else(|| self.find(&[route, destination]))
    }

    /// Every conf, those of routes to one destination alone after all others.
    pub fn all(&self) -> impl Iterator<Item = &ResourceRule> {
        self.rules.values().chain(self.narrowed.values())
    }

    fn find(&self, wanted: &[&Kri]) -> Option<&ResourceRule> {
        let with_and_without =
            |kri: &&Kri| self.rules.get(*kri).or_else(|| self.rules.get(&kri.without_section()));
        wanted
            .iter()
            .find_map(with_and_without)
            .or_else(|| self.mesh.as_ref().and_then(|mesh| self.rules.get(mesh)))
    }
}

/// Objects that entries may refer to: the mesh, its services and its routes, looked up in their own storage.
pub trait Destinations {
    /// The mesh itself.
    fn mesh(&self) -> Option<Kri>;

    /// Names and numbers of the ports that a reference may single out; `None` when there is no such
    /// resource.
    fn ports(&self, resource: &Kri) -> Option<Vec<(String, u32)>>;

    /// The resources of a kind that carry all labels.
    fn labelled(&self, kind: Kind, labels: &Labels) -> Vec<Kri>;
}

/// The resources, or ports of resources, that an entry of `policy` names.
pub fn named(destinations: &impl Destinations, policy: &Kri, target: &TargetRef) -> Vec<Kri> {
    let kind = match target.kind {
        K::Mesh => return destinations.mesh().into_iter().collect(),
        K::MeshService => Kind::MeshService,
        K::MeshExternalService => Kind::MeshExternalService,
        K::MeshMultiZoneService => Kind::MeshMultiZoneService,
        K::MeshHttpRoute => Kind::MeshHTTPRoute,
        _ => return Vec::new(),
    };
    if let Some(legacy) = LegacyName::of(target) {
        return named_in_older_words(destinations, &legacy);
    }
    let candidates: Vec<Kri> = match target.labels.as_ref().filter(|labels| !labels.is_empty()) {
        Some(labels) => destinations.labelled(kind, labels),
        None => by_name(destinations, policy, kind, target),
    };
    let section = target.section_name.as_deref().filter(|section| !section.is_empty());
    candidates
        .into_iter()
        .filter_map(|kri| {
            let ports = destinations.ports(&kri)?;
            match section {
                None => Some(kri),
                Some(section) => {
                    ports.iter().any(|(name, _)| name == section).then(|| kri.with_section(section))
                }
            }
        })
        .collect()
}

/// The resource beside the policy. A policy of a zone may also mean a service that was written on the global control
/// plane, as long as its zone has none of that name.
fn by_name(destinations: &impl Destinations, policy: &Kri, kind: Kind, target: &TargetRef) -> Vec<Kri> {
    match awaited(destinations, policy, target) {
        Some(_) => from_global(destinations, kind, target),
        None => NameScope::of(policy).kri_of(kind, target).into_iter().collect(),
    }
}

/// The services of global that a name means.
fn from_global(destinations: &impl Destinations, kind: Kind, target: &TargetRef) -> Vec<Kri> {
    let called = target.name.clone().unwrap_or_default();
    let called = Labels::from([(labels::DISPLAY_NAME.to_owned(), called)]);
    let namespace = target.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let mut found = destinations.labelled(kind, &called);
    found.retain(|kri| kri.zone.is_empty() && namespace.is_none_or(|namespace| kri.namespace == namespace));
    found
}

/// The service of the policy's own zone that an entry names and that is not there, if one of global may be meant.
fn awaited(destinations: &impl Destinations, policy: &Kri, target: &TargetRef) -> Option<Kri> {
    let kind = match target.kind {
        K::MeshExternalService => Kind::MeshExternalService,
        K::MeshMultiZoneService => Kind::MeshMultiZoneService,
        _ => return None,
    };
    let by_labels = target.labels.as_ref().is_some_and(|labels| !labels.is_empty());
    let own = NameScope::of(policy).kri_of(kind, target).filter(|own| !by_labels && !own.zone.is_empty())?;
    destinations.ports(&own).is_none().then_some(own)
}

fn named_in_older_words(destinations: &impl Destinations, legacy: &LegacyName<'_>) -> Vec<Kri> {
    let namespace = Labels::from([(labels::K8S_NAMESPACE.to_owned(), legacy.namespace.to_owned())]);
    let services = destinations.labelled(Kind::MeshService, &namespace).into_iter();
    let services = services.filter(|kri| kri.name == legacy.name);
    let Some(port) = legacy.port else { return services.collect() };
    services
        .filter_map(|kri| {
            let ports = destinations.ports(&kri)?;
            let (name, _) = ports.into_iter().find(|(_, number)| *number == port)?;
            Some(kri.with_section(&name))
        })
        .collect()
}

/// `<name>_<namespace>_svc_<port>`, the `kuma.io/service` of a Kubernetes service; the port may be missing.
struct LegacyName<'a> {
    name: &'a str,
    namespace: &'a str,
    port: Option<u32>,
}

impl LegacyName<'_> {
    fn of(target: &TargetRef) -> Option<LegacyName<'_>> {
        if target.kind != K::MeshService || order::has_section(target) {
            return None;
        }
        let parts: Vec<&str> = target.name.as_deref()?.split('_').collect();
        match *parts.as_slice() {
            [name, namespace, "svc"] => Some(LegacyName { name, namespace, port: None }),
            [name, namespace, "svc", port] => {
                Some(LegacyName { name, namespace, port: Some(port.parse().ok()?) })
            }
            _ => None,
        }
    }
}

/// An entry with what it names.
#[derive(Default)]
struct ResolvedEntry {
    targets: BTreeSet<Kri>,
    /// Routes, each with the only destination it is named for.
    narrowed: BTreeSet<(Kri, Kri)>,
}

impl ResolvedEntry {
    fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.narrowed.is_empty()
    }

    fn of(destinations: &impl Destinations, policy: &PolicyView, entry: &PolicyEntry) -> ResolvedEntry {
        let named = |target: &TargetRef| named(destinations, &policy.kri, target);
        // A policy at the top of which stands a route is about the requests of that route, all of them or
        // those to one destination.
        match (&policy.top.kind, &entry.target.kind) {
            (K::MeshHttpRoute, K::Mesh) => ResolvedEntry {
                targets: named(&policy.top).into_iter().collect(),
                ..ResolvedEntry::default()
            },
            (K::MeshHttpRoute, _) => {
                let destinations = named(&entry.target);
                let routes = named(&policy.top).into_iter();
                let pairs = routes.flat_map(|route| {
                    destinations.iter().map(move |kri| (route.clone(), kri.without_section()))
                });
                ResolvedEntry { narrowed: pairs.collect(), ..ResolvedEntry::default() }
            }
            _ => ResolvedEntry {
                targets: named(&entry.target).into_iter().collect(),
                ..ResolvedEntry::default()
            },
        }
    }
}

/// Merges the `to` entries of policies that apply to one proxy, per destination they name.
pub fn resolve<'a>(
    policies: impl IntoIterator<Item = &'a PolicyView>,
    destinations: &impl Destinations,
    shape: Shape,
) -> ResourceRules {
    let policies: Vec<&PolicyView> = policies.into_iter().collect();
    let entries = sorted_entries(&policies);
    let resolved: Vec<ResolvedEntry> =
        entries.iter().map(|(policy, entry)| ResolvedEntry::of(destinations, policy, entry)).collect();
    // Which entries reach a destination is looked up, not searched: each entry names few destinations.
    let mut naming: BTreeMap<&Kri, Vec<usize>> = BTreeMap::new();
    let mut narrowing: BTreeMap<&(Kri, Kri), Vec<usize>> = BTreeMap::new();
    for (i, entry) in resolved.iter().enumerate() {
        entry.targets.iter().for_each(|target| naming.entry(target).or_default().push(i));
        entry.narrowed.iter().for_each(|pair| narrowing.entry(pair).or_default().push(i));
    }
    let mesh = destinations.mesh();
    // Everything that is said about a target, about something wider, and of a part of it alone.
    let rule = |target: &Kri, alone: &[usize]| {
        let wider = [mesh.clone(), Some(target.without_section()), Some(target.clone())];
        let wider: BTreeSet<Kri> = wider.into_iter().flatten().collect();
        let about = wider.iter().filter_map(|kri| naming.get(kri)).flatten().chain(alone);
        let about: BTreeSet<usize> = about.copied().collect();
        let entries = about.into_iter().filter_map(|i| entries.get(i));
        ResourceRule {
            target: target.clone(),
            entries: entries.map(|(_, entry)| entry.conf.clone()).collect(),
            shape,
            merged: OnceLock::new(),
        }
    };
    let rules = naming.keys().map(|&target| (target.clone(), rule(target, &[]))).collect();
    let narrowed = narrowing.iter().map(|(&pair, alone)| (pair.clone(), rule(&pair.0, alone))).collect();
    let lost = entries.iter().zip(&resolved).filter(|(_, resolved)| resolved.is_empty());
    let unresolved = lost.map(|((_, entry), _)| (entry.conf.origin.clone(), entry.target.clone())).collect();
    let awaited =
        entries.iter().filter_map(|(policy, entry)| awaited(destinations, &policy.kri, &entry.target));
    ResourceRules { rules, narrowed, unresolved, awaited: awaited.collect(), mesh }
}

/// The conf for a destination that is known by its `kuma.io/service` tag only, or for some requests to it.
///
/// A policy at the top of which stands a route is for requests of that route; `takes` says whether the requests
/// asked for are. Policies with entries for routes and references by newer kinds do not reach such destinations.
pub fn for_service<'a>(
    policies: impl IntoIterator<Item = &'a PolicyView>,
    service: &str,
    takes: impl Fn(&PolicyView) -> bool,
    shape: Shape,
) -> Option<Arc<MergedPolicy>> {
    let policies: Vec<&PolicyView> = policies
        .into_iter()
        .filter(|policy| policy.to.iter().all(|entry| entry.target.kind != K::MeshHttpRoute))
        .filter(|policy| policy.top.kind != K::MeshHttpRoute || takes(policy))
        .collect();
    let about = |entry: &PolicyEntry| is_about_service(&entry.target, service);
    let entries = sorted_entries(&policies).into_iter().filter(|(_, entry)| about(entry));
    let confs: Vec<_> = entries.map(|(_, entry)| entry.conf.clone()).collect();
    conf::merged(&confs, Shape { grouped: None, ..shape }).first().cloned()
}

/// True if an entry covers a destination that is known by its `kuma.io/service` tag only.
pub fn is_about_service(target: &TargetRef, service: &str) -> bool {
    match target.kind {
        K::Mesh => true,
        K::MeshService => target.name.as_deref() == Some(service) && !order::has_section(target),
        K::MeshSubset | K::MeshServiceSubset => {
            // Nothing but the service's name is known about the destination.
            let by_name = target.kind == K::MeshServiceSubset;
            let named = !by_name || target.name.as_deref() == Some(service);
            let tags = target.tags.iter().flatten();
            named && tags.into_iter().all(|(name, value)| name == labels::SERVICE && value == service)
        }
        _ => false,
    }
}

/// The `to` entries of all policies, lowest precedence first.
fn sorted_entries<'a>(policies: &[&'a PolicyView]) -> Vec<(&'a PolicyView, &'a PolicyEntry)> {
    let mut entries: Vec<_> =
        policies.iter().flat_map(|&policy| policy.to.iter().map(move |entry| (policy, entry))).collect();
    entries.sort_by(|(a, x), (b, y)| {
        order::entry_rank(&a.precedence, &x.target).cmp(&order::entry_rank(&b.precedence, &y.target))
    });
    entries
}
