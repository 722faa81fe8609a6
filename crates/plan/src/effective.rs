//! Which policies are in effect for one proxy, and what they add up to.
//!
//! Planning and inspection ask here and nowhere else, so that what an operator is shown is what the
//! proxy does. Policies are selected, ordered and merged once per proxy; an inbound or a destination then
//! only looks up its part.
//!
//! [`KINDS`] is the one list of policies that do anything. Other kinds are stored and have no effect, and
//! are not shown here either.

use std::sync::Arc;

use policy::{
    Destinations, InboundRule, Merged, Permissions, PolicyView, ResourceRules, Selection, Selector, Shape,
};
use resources::{Kind, Labels, Resource, kinds::dataplane::Inbound, naming::Kri};
use topology::{Destination, DestinationId, MeshSnapshot};

/// The kinds of policies that have an effect, in the order in which they are applied.
pub const KINDS: [Kind; 4] =
    [Kind::MeshHTTPRoute, Kind::MeshTCPRoute, Kind::MeshTimeout, Kind::MeshTrafficPermission];

/// The policies in effect for one proxy.
#[derive(Debug)]
pub struct Effective<'a> {
    snapshot: &'a MeshSnapshot,
    dataplane: &'a Resource,
    /// Policies may select "the proxies that this route selects".
    routes: Vec<Arc<Resource>>,
    kinds: [OfKind<'a>; KINDS.len()],
}

/// The policies of one kind that apply, lowest precedence first.
#[derive(Debug, Default)]
struct OfKind<'a> {
    policies: Vec<&'a Arc<Resource>>,
    views: Vec<PolicyView>,
    outbound: ResourceRules,
}

impl<'a> Effective<'a> {
    pub fn of(snapshot: &'a MeshSnapshot, dataplane: &'a Resource) -> Effective<'a> {
        let routes = routes(snapshot);
        let selector = selector(&routes);
        let kinds = KINDS.map(|kind| {
            let policies = selector.for_proxy(snapshot.policies_of(kind), dataplane);
            let views: Vec<PolicyView> =
                policies.iter().filter_map(|policy| PolicyView::of(policy)).collect();
            let outbound = policy::outbound::resolve(&views, &Known(snapshot), Shape::of(kind));
            OfKind { policies, views, outbound }
        });
        Effective { snapshot, dataplane, routes, kinds }
    }

    /// The policies of a kind that apply to the proxy or to a part of it, lowest precedence first.
    pub fn policies(&self, kind: Kind) -> &[&'a Arc<Resource>] {
        self.kind(kind).map_or(&[], |of_kind| &of_kind.policies)
    }

    /// The rules of a kind for one inbound: kept apart, conditions first, then from the lowest precedence
    /// to the highest. What all clients get is [`policy::inbound::fold_unconditional`] of them.
    pub fn inbound_rules(&self, kind: Kind, inbound: &Inbound) -> Vec<InboundRule> {
        let Some(OfKind { policies, views, .. }) = self.kind(kind) else { return Vec::new() };
        let selector = selector(&self.routes);
        let applying = policies
            .iter()
            .zip(views)
            .filter(|(policy, _)| selector.selects_inbound(policy, self.dataplane, inbound));
        policy::inbound::rules(applying.map(|(_, view)| view))
    }

    /// Who may call an inbound; `None` while the mesh has no mTLS, because clients cannot be told apart.
    pub fn permissions(&self, inbound: &Inbound) -> Option<Permissions> {
        self.snapshot.mtls.as_ref()?;
        let policies = self.policies(Kind::MeshTrafficPermission).iter().copied();
        Some(policy::permission::resolve(policies, self.dataplane, inbound, &selector(&self.routes)))
    }

    /// The confs of a kind for every destination that its policies name; look one up with
    /// [`ResourceRules::for_destination`] or [`ResourceRules::for_route`].
    pub fn outbound(&self, kind: Kind) -> &ResourceRules {
        static NONE: ResourceRules = ResourceRules::NONE;
        self.kind(kind).map_or(&NONE, |of_kind| &of_kind.outbound)
    }

    /// The conf of a kind for a destination that is known by its `kuma.io/service` tag only.
    pub fn for_service(&self, kind: Kind, service: &str) -> Option<Merged> {
        policy::outbound::for_service(&self.kind(kind)?.views, service, Shape::of(kind))
    }

    fn kind(&self, kind: Kind) -> Option<&OfKind<'a>> {
        KINDS.iter().position(|known| *known == kind).and_then(|at| self.kinds.get(at))
    }
}

/// The parts of a proxy that one policy applies to; empty for kinds without effect.
pub fn selection(snapshot: &MeshSnapshot, policy: &Resource, dataplane: &Resource) -> Selection {
    if KINDS.contains(&policy.kind()) {
        selector(&routes(snapshot)).select(policy, dataplane)
    } else {
        Selection::default()
    }
}

fn routes(snapshot: &MeshSnapshot) -> Vec<Arc<Resource>> {
    snapshot.policies_of(Kind::MeshHTTPRoute).cloned().collect()
}

fn selector(routes: &[Arc<Resource>]) -> Selector<'_> {
    Selector { routes, ..Selector::default() }
}

/// The ports of a resource.
pub(crate) fn ports<'a>(
    snapshot: &'a MeshSnapshot,
    resource: &Kri,
) -> impl Iterator<Item = &'a Arc<Destination>> {
    let resource = resource.without_section();
    // They are next to each other, because only their sections differ.
    snapshot.destinations.range(DestinationId::Port(resource.clone())..).map_while(move |(id, port)| {
        matches!(id, DestinationId::Port(kri) if kri.without_section() == resource).then_some(port)
    })
}

/// A mesh as policies refer to it.
struct Known<'a>(&'a MeshSnapshot);

impl Destinations for Known<'_> {
    fn mesh(&self) -> Option<Kri> {
        self.0.mesh.kri("")
    }

    fn ports(&self, resource: &Kri) -> Option<Vec<(String, u32)>> {
        if resource.kind() == Some(Kind::MeshHTTPRoute) {
            let mut routes = self.0.policies_of(Kind::MeshHTTPRoute);
            return routes.any(|route| route.kri("").as_ref() == Some(resource)).then(Vec::new);
        }
        let section = |destination: &Arc<Destination>| match &destination.id {
            DestinationId::Port(port) => (port.section.clone(), destination.port),
            DestinationId::Tags(_) => (String::new(), destination.port),
        };
        let ports: Vec<(String, u32)> = ports(self.0, resource).map(section).collect();
        (!ports.is_empty()).then_some(ports)
    }

    fn labelled(&self, kind: Kind, labels: &Labels) -> Vec<Kri> {
        if kind == Kind::MeshHTTPRoute {
            let routes = self.0.policies_of(kind);
            let carry =
                |route: &&Arc<Resource>| labels.iter().all(|(name, value)| route.label(name) == Some(value));
            return routes.filter(carry).filter_map(|route| route.kri("")).collect();
        }
        let first = |ports: &[DestinationId]| match ports.first()? {
            DestinationId::Port(kri) => Some(kri.without_section()),
            DestinationId::Tags(_) => None,
        };
        self.0.labelled(kind, labels).filter_map(first).collect()
    }
}
