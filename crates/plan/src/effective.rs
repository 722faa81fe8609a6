//! Which policies are in effect for one proxy, and what they add up to.
//!
//! Planning and inspection ask here and nowhere else, so that what an operator is shown is what the
//! proxy does. Policies are selected, ordered and merged once per proxy; an inbound or a destination then
//! only looks up its part.
//!
//! Which kinds of policies do anything is said by their rows in [`resources::policy`]. Other kinds are
//! stored and have no effect; of them only [`selected`] tells.

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use policy::{
    Destinations, InboundRule, Merged, Permissions, Policy, PolicyView, ResourceRule, ResourceRules, Selector,
};
use resources::{
    Kind, Labels, PolicyTraits, Resource,
    kinds::{
        dataplane::Inbound,
        target_ref::{TargetRef, TargetRefKind},
    },
    labels,
    naming::Kri,
    policy::{self as row, Shape, Side},
};
use serde::de::DeserializeOwned;
use topology::{Destination, DestinationId, MeshSnapshot, PolicyChange};

/// The kinds of policies that have an effect, in the order of the table of kinds.
pub const KINDS: [Kind; with_effect().1] = {
    let (kinds, count) = with_effect();
    let mut all = [Kind::Mesh; with_effect().1];
    let mut at = 0;
    while at < count {
        all[at] = kinds[at];
        at += 1;
    }
    all
};

/// The kinds with an effect in front, and how many they are.
const fn with_effect() -> ([Kind; Kind::POLICIES.len()], usize) {
    let mut kinds = [Kind::Mesh; Kind::POLICIES.len()];
    let (mut at, mut count) = (0, 0);
    while at < kinds.len() {
        if let Some(PolicyTraits { effect: Some(_), .. }) = Kind::POLICIES[at].descriptor().policy {
            kinds[count] = Kind::POLICIES[at];
            count += 1;
        }
        at += 1;
    }
    (kinds, count)
}

/// The policies that apply to a proxy or to a part of it, by kind in the order of [`KINDS`], lowest
/// precedence first.
pub type Applying = [Vec<Arc<Policy>>; KINDS.len()];

/// The policies that apply to the proxy of a Dataplane.
pub fn applying(snapshot: &MeshSnapshot, dataplane: &Resource) -> Applying {
    applying_with(&Routes::of(snapshot), snapshot, dataplane)
}

fn applying_with(routes: &Routes, snapshot: &MeshSnapshot, dataplane: &Resource) -> Applying {
    let selector = routes.selector();
    KINDS.map(|kind| selector.for_proxy(snapshot.viewed(kind), dataplane).into_iter().cloned().collect())
}

/// The policies in effect for one proxy.
#[derive(Debug)]
pub struct Effective<'a> {
    snapshot: &'a MeshSnapshot,
    dataplane: &'a Resource,
    routes: Routes,
    kinds: [OfKind; KINDS.len()],
}

/// The policies of one kind that apply, lowest precedence first.
#[derive(Debug)]
struct OfKind {
    policies: Vec<Arc<Policy>>,
    merge: Shape,
    outbound: ResourceRules,
}

/// What policies add up to for one destination: a conf, and where it came from. Proxies that are selected
/// by the same policies share it.
#[derive(Debug, Clone)]
pub struct Found<C> {
    pub conf: Arc<C>,
    pub merged: Arc<Merged>,
}

impl<'a> Effective<'a> {
    /// What is in effect for the proxy of a Dataplane.
    pub fn of(snapshot: &'a MeshSnapshot, dataplane: &'a Resource) -> Effective<'a> {
        let routes = Routes::of(snapshot);
        let applying = applying_with(&routes, snapshot, dataplane);
        Effective::with_routes(snapshot, dataplane, routes, applying)
    }

    /// As [`Effective::of`], where it is known which policies apply.
    pub fn from_policies(
        snapshot: &'a MeshSnapshot,
        dataplane: &'a Resource,
        applying: Applying,
    ) -> Effective<'a> {
        Effective::with_routes(snapshot, dataplane, Routes::of(snapshot), applying)
    }

    fn with_routes(
        snapshot: &'a MeshSnapshot,
        dataplane: &'a Resource,
        routes: Routes,
        applying: Applying,
    ) -> Effective<'a> {
        let known = Known { snapshot, routes: &routes };
        let mut kinds = KINDS.into_iter();
        let kinds = applying.map(|policies| {
            let traits = kinds.next().and_then(|kind| kind.descriptor().policy);
            let merge = traits.map(|traits| traits.merge).unwrap_or_default();
            let outbound = match traits {
                Some(traits) if traits.is_about(Side::Outbound) => {
                    policy::outbound::resolve(policies.iter().map(|policy| &policy.view), &known, merge)
                }
                _ => ResourceRules::NONE,
            };
            OfKind { policies, merge, outbound }
        });
        Effective { snapshot, dataplane, routes, kinds }
    }

    /// The policies of a kind that apply to the proxy or to a part of it, lowest precedence first.
    pub fn policies(&self, kind: Kind) -> &[Arc<Policy>] {
        self.kind(kind).map_or(&[], |of_kind| &of_kind.policies)
    }

    /// The rules of a kind for one inbound: kept apart, conditions first, then from the lowest precedence
    /// to the highest. What all clients get is [`policy::inbound::fold_unconditional`] of them.
    pub fn inbound_rules(&self, kind: Kind, inbound: &Inbound) -> Vec<InboundRule> {
        let selector = self.routes.selector();
        let policies = self.policies(kind).iter();
        let applying =
            policies.filter(|policy| selector.selects_inbound(&policy.resource, self.dataplane, inbound));
        policy::inbound::rules(applying.map(|policy| &policy.view))
    }

    /// Who may call an inbound; `None` while the mesh has no mTLS, because clients cannot be told apart.
    pub fn permissions(&self, inbound: &Inbound) -> Option<Permissions> {
        self.snapshot.mtls.as_ref()?;
        let policies = self.policies(Kind::MeshTrafficPermission).iter().map(|policy| &policy.resource);
        Some(policy::permission::resolve(policies, self.dataplane, inbound, &self.routes.selector()))
    }

    /// What the policies of a kind say about a destination; `None` where they say nothing. The error says
    /// which policies cannot be read.
    pub fn conf<P: row::Policy>(&self, destination: &DestinationId) -> Result<Option<Found<P::To>>, String> {
        match destination {
            DestinationId::Port(kri) => first::<P>(self.outbound(P::KIND).for_destination(kri)),
            DestinationId::Tags(tags) => {
                let service = tags.get(labels::SERVICE).map_or("", String::as_str);
                self.for_service(P::KIND, service).map(read).transpose()
            }
        }
    }

    /// As [`Effective::conf`], for requests that take a route to the destination.
    pub fn conf_of_route<P: row::Policy>(
        &self,
        route: &Kri,
        destination: &Kri,
    ) -> Result<Option<Found<P::To>>, String> {
        first::<P>(self.outbound(P::KIND).for_route(route, destination))
    }

    /// The confs of a kind for every destination that its policies name; look one up with
    /// [`ResourceRules::for_destination`] or [`ResourceRules::for_route`].
    pub fn outbound(&self, kind: Kind) -> &ResourceRules {
        static NONE: ResourceRules = ResourceRules::NONE;
        self.kind(kind).map_or(&NONE, |of_kind| &of_kind.outbound)
    }

    /// The conf of a kind for a destination that is known by its `kuma.io/service` tag only.
    pub fn for_service(&self, kind: Kind, service: &str) -> Option<Arc<Merged>> {
        let OfKind { policies, merge, .. } = self.kind(kind)?;
        policy::outbound::for_service(policies.iter().map(|policy| &policy.view), service, *merge)
    }

    /// The conf of a kind for the proxy as a whole.
    pub fn proxy(&self, kind: Kind) -> Option<Arc<Merged>> {
        let OfKind { policies, merge, .. } = self.kind(kind)?;
        let confs: Vec<_> = policies.iter().filter_map(|policy| policy.view.default.clone()).collect();
        policy::conf::merged(&confs, *merge).first().cloned()
    }

    /// A MeshHTTPRoute of the mesh, which confs may be for.
    pub fn route(&self, kri: &Kri) -> Option<&Arc<Resource>> {
        self.routes.find(kri)
    }

    fn kind(&self, kind: Kind) -> Option<&OfKind> {
        KINDS.iter().position(|known| *known == kind).and_then(|at| self.kinds.get(at))
    }
}

fn first<P: row::Policy>(rule: Option<&ResourceRule>) -> Result<Option<Found<P::To>>, String> {
    rule.and_then(|rule| rule.merged().first().cloned()).map(read).transpose()
}

fn read<C: DeserializeOwned + Send + Sync + 'static>(merged: Arc<Merged>) -> Result<Found<C>, String> {
    Ok(Found { conf: merged.typed()?, merged })
}

/// The Dataplanes that a policy selects, by name, whether or not its kind has an effect on them.
pub fn selected<'a>(snapshot: &'a MeshSnapshot, policy: &Resource) -> Vec<&'a Arc<Resource>> {
    let routes = Routes::of(snapshot);
    let selector = routes.selector();
    let dataplanes = snapshot.dataplanes.values();
    dataplanes.filter(|dataplane| selector.selects(policy, dataplane)).collect()
}

/// Which proxies must look again because policies changed.
///
/// This is the other side of [`Effective`]: a policy matters to the proxies it selects, and a route also
/// to those whose policies speak of routes.
#[derive(Debug)]
pub struct Concern<'a> {
    /// The changed policies as they were and as they are, and those that speak of changed routes.
    policies: Vec<&'a Arc<Policy>>,
    everyone: bool,
}

impl<'a> Concern<'a> {
    /// `snapshot` is the mesh after the changes.
    pub fn of(snapshot: &'a MeshSnapshot, changes: &'a [PolicyChange]) -> Concern<'a> {
        let versions = changes.iter().flat_map(PolicyChange::versions);
        let mut policies: Vec<_> =
            versions.filter(|policy| KINDS.contains(&policy.resource.kind())).collect();
        if policies.iter().any(|policy| policy.resource.kind() == Kind::MeshHTTPRoute) {
            let all = KINDS.into_iter().flat_map(|kind| snapshot.viewed(kind));
            policies.extend(all.filter(|policy| speaks_of_routes(&policy.view)));
        }
        // A policy with a route at its top selects whom that route selects, which may have been others a
        // moment ago. This way of writing is old and rare: everybody looks again.
        let everyone = policies.iter().any(|policy| is_route(&policy.view.top));
        Concern { policies, everyone }
    }

    /// Whether the changes can mean anything to the proxy with this Dataplane.
    pub fn reaches(&self, dataplane: &Resource) -> bool {
        // None of them has a route at its top, so routes need not be known.
        let selector = Selector::default();
        self.everyone || self.policies.iter().any(|policy| selector.selects(&policy.resource, dataplane))
    }
}

fn speaks_of_routes(policy: &PolicyView) -> bool {
    is_route(&policy.top) || policy.to.iter().any(|entry| is_route(&entry.target))
}

fn is_route(reference: &TargetRef) -> bool {
    reference.kind == TargetRefKind::MeshHttpRoute
}

/// The MeshHTTPRoutes of a mesh, which policies refer to.
#[derive(Debug)]
struct Routes {
    all: Vec<Arc<Resource>>,
    /// Made when the first reference is looked up; most proxies have none.
    by_kri: OnceCell<HashMap<Kri, usize>>,
}

impl Routes {
    fn of(snapshot: &MeshSnapshot) -> Routes {
        let all = snapshot.policies_of(Kind::MeshHTTPRoute).cloned().collect();
        Routes { all, by_kri: OnceCell::new() }
    }

    /// Policies may select "the proxies that this route selects".
    fn selector(&self) -> Selector<'_> {
        Selector { routes: &self.all, ..Selector::default() }
    }

    fn find(&self, kri: &Kri) -> Option<&Arc<Resource>> {
        let by_kri = self.by_kri.get_or_init(|| {
            let routes = self.all.iter().enumerate();
            routes.filter_map(|(at, route)| Some((route.kri("")?, at))).collect()
        });
        by_kri.get(kri).and_then(|&at| self.all.get(at))
    }
}

/// All ports of a resource; a section, if the identifier has one, is not looked at.
pub fn ports<'a>(snapshot: &'a MeshSnapshot, resource: &Kri) -> impl Iterator<Item = &'a Arc<Destination>> {
    let resource = resource.without_section();
    // They are next to each other, because only their sections differ.
    snapshot.destinations.range(DestinationId::Port(resource.clone())..).map_while(move |(id, port)| {
        matches!(id, DestinationId::Port(kri) if kri.without_section() == resource).then_some(port)
    })
}

/// A mesh as policies refer to it.
struct Known<'a> {
    snapshot: &'a MeshSnapshot,
    routes: &'a Routes,
}

impl Destinations for Known<'_> {
    fn mesh(&self) -> Option<Kri> {
        self.snapshot.mesh.kri("")
    }

    fn ports(&self, resource: &Kri) -> Option<Vec<(String, u32)>> {
        if resource.kind() == Some(Kind::MeshHTTPRoute) {
            return self.routes.find(resource).map(|_| Vec::new());
        }
        let section = |destination: &Arc<Destination>| match &destination.id {
            DestinationId::Port(port) => (port.section.clone(), destination.port),
            DestinationId::Tags(_) => (String::new(), destination.port),
        };
        let ports: Vec<(String, u32)> = ports(self.snapshot, resource).map(section).collect();
        (!ports.is_empty()).then_some(ports)
    }

    fn labelled(&self, kind: Kind, labels: &Labels) -> Vec<Kri> {
        if kind == Kind::MeshHTTPRoute {
            let routes = self.routes.all.iter();
            let carry =
                |route: &&Arc<Resource>| labels.iter().all(|(name, value)| route.label(name) == Some(value));
            return routes.filter(carry).filter_map(|route| route.kri("")).collect();
        }
        let first = |ports: &[DestinationId]| match ports.first()? {
            DestinationId::Port(kri) => Some(kri.without_section()),
            DestinationId::Tags(_) => None,
        };
        self.snapshot.labelled(kind, labels).filter_map(first).collect()
    }
}
