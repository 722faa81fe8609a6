//! Policies in effect for one proxy, merged.
//!
//! Planning and inspection ask here and nowhere else, so that what an operator is shown is what the
//! proxy does. Policies are selected and ordered once per proxy ([`Applying`]); what they say about
//! destinations is resolved on demand, and an inbound or a destination then only looks up its part.
//!
//! The rows in [`resources::policy`] say which kinds of policies have an effect. Policies of other kinds are
//! stored and have no effect; only [`selected`] knows them.

mod idle;
mod tagged;

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use policy::{
    Destinations, FromRule, InboundRule, MergedPolicy, Permissions, Policy, PolicySelector, PolicyView,
    ResourceRule, ResourceRules,
};
use resources::{
    Kind, Labels, PolicyTraits, Resource,
    kinds::{
        dataplane::Inbound,
        mesh::{Mesh, MeshServicesMode},
        target_ref::{TargetRef, TargetRefKind},
    },
    naming::{Kri, NamingChoice},
    policy::{self as row, ProxySide, Shape},
};
use serde::de::DeserializeOwned;
use topology::{
    ClientClass, Destination, DestinationId, MeshSnapshot, MtlsMode, TrimmingMode, VouchedLabels,
    cidr::Ipv6Prefix,
};

use crate::{
    ServerTls,
    budget::{Budget, Spent},
    security,
};

pub use idle::{IdlePolicies, IdlePolicy, IdleReason, becoming_idle};

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
    let mut at = 0;
    let mut count = 0;
    while at < kinds.len() {
        if let Some(PolicyTraits { effect: Some(_), .. }) = Kind::POLICIES[at].descriptor().policy {
            kinds[count] = Kind::POLICIES[at];
            count += 1;
        }
        at += 1;
    }
    (kinds, count)
}

/// The policies that select one proxy, of the kinds that have an effect, lowest precedence first.
#[derive(Debug, Clone, Default)]
pub struct Applying {
    policies: [Vec<Arc<Policy>>; KINDS.len()],
    /// The MeshIdentity that the proxy is given.
    pub identity: Option<Kri>,
    /// A MeshIdentity is to certify the proxy, and it is not given: inbounds without another certificate stay closed.
    pub awaits_identity: bool,
    /// Client class in the eyes of servers. `Some` limits the outbounds to destinations that it may call.
    pub trimmed: Option<ClientClass>,
    /// Calls to trimmed destinations are answered.
    pub stub: bool,
    /// Prefix of IPv6 virtual addresses, if there are any.
    pub ipv6_prefix: Option<Ipv6Prefix>,
    /// Names of the proxy by its labels or those of its mesh; `None` leaves them to its agent.
    pub naming: Option<NamingChoice>,
}

impl Applying {
    pub fn of(snapshot: &MeshSnapshot, dataplane: &Resource) -> Applying {
        let candidates: Vec<&Arc<Policy>> = snapshot.candidates(dataplane).collect();
        let by_route = |policy: &&Arc<Policy>| policy.view.top.kind == TargetRefKind::MeshHttpRoute;
        // A policy may select "the proxies that this route selects", which is old and rare.
        let routes: Vec<Arc<Resource>> =
            if candidates.iter().any(by_route) { snapshot.routes().cloned().collect() } else { Vec::new() };
        let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
        let policies = KINDS.map(|kind| {
            let of_kind = candidates.iter().copied().filter(|policy| policy.resource.kind() == kind);
            selector.for_proxy(of_kind, dataplane).into_iter().cloned().collect()
        });
        let identity = snapshot.identity_of(dataplane).and_then(|identity| identity.kri(""));
        let trimming = snapshot.trimming(dataplane);
        let enforced = trimming.active() == TrimmingMode::Enforce;
        Applying {
            policies,
            identity,
            awaits_identity: snapshot.awaits_identity(dataplane),
            trimmed: enforced.then(|| ClientClass::of(snapshot, dataplane)),
            stub: enforced && trimming.stub,
            ipv6_prefix: snapshot.ipv6_prefix,
            naming: NamingChoice::by_labels(&dataplane.labels, Some(&snapshot.mesh.labels)),
        }
    }

    /// As [`Applying::of`], for a connected proxy, which is given no identity that its token does not vouch for.
    pub fn of_proxy(snapshot: &MeshSnapshot, dataplane: &Resource, vouched: &VouchedLabels) -> Applying {
        let applying = Applying::of(snapshot, dataplane);
        let chosen = || snapshot.identities.unvouched(dataplane, &snapshot.zone, vouched);
        if applying.identity.is_none() || chosen().is_empty() {
            return applying;
        }
        Applying { identity: None, awaits_identity: true, ..applying }
    }

    /// The policies for all sidecars of the zone, as far as their kinds say something to an egress.
    pub fn at_egress(snapshot: &MeshSnapshot) -> Applying {
        let policies = KINDS.map(|kind| {
            let says = kind.descriptor().policy.is_some_and(|traits| traits.is_about(ProxySide::Egress));
            let of_kind = snapshot.viewed(kind).filter(|_| says);
            PolicySelector::default()
                .for_every_sidecar(of_kind, &snapshot.zone)
                .into_iter()
                .cloned()
                .collect()
        });
        Applying { policies, ..Applying::default() }
    }

    /// The policies of a kind; none of a kind without an effect.
    pub fn of_kind(&self, kind: Kind) -> &[Arc<Policy>] {
        let at = KINDS.iter().position(|known| *known == kind);
        at.and_then(|at| self.policies.get(at)).map_or(&[], Vec::as_slice)
    }

    /// Those that say something about what the proxy calls. Traces are of the whole proxy, its calls included, and
    /// patches may change anything.
    #[must_use]
    pub fn about_calls(mut self) -> Applying {
        let about = |policy: &Arc<Policy>| {
            let calls = policy.view.traits.is_about(ProxySide::Outbound) && !policy.view.to.is_empty();
            calls || matches!(policy.resource.kind(), Kind::MeshTrace | Kind::MeshProxyPatch)
        };
        self.policies.iter_mut().for_each(|of_kind| of_kind.retain(about));
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.iter().flatten()
    }
}

/// The policies in effect for one proxy, or for all proxies that the same policies select.
#[derive(Debug)]
pub struct Effective<'a> {
    snapshot: &'a MeshSnapshot,
    /// `None` where it is asked for a class of proxies, which have no inbounds in common.
    dataplane: Option<&'a Resource>,
    applying: Applying,
    routes: OnceCell<Routes>,
    outbound: [OnceCell<ResourceRules>; KINDS.len()],
}

/// Merged conf of policies for one destination, and the policies it came from. Proxies that are selected by
/// the same policies share it.
#[derive(Debug, Clone)]
pub struct EffectiveConf<C> {
    pub conf: Arc<C>,
    pub merged: Arc<MergedPolicy>,
}

impl<'a> Effective<'a> {
    pub fn of(snapshot: &'a MeshSnapshot, dataplane: &'a Resource) -> Effective<'a> {
        Effective::for_proxy(snapshot, dataplane, Applying::of(snapshot, dataplane))
    }

    pub fn for_proxy(
        snapshot: &'a MeshSnapshot,
        dataplane: &'a Resource,
        applying: Applying,
    ) -> Effective<'a> {
        Effective { dataplane: Some(dataplane), ..Effective::for_class(snapshot, applying) }
    }

    pub fn for_class(snapshot: &'a MeshSnapshot, applying: Applying) -> Effective<'a> {
        let routes = OnceCell::new();
        let outbound = Default::default();
        Effective { snapshot, dataplane: None, applying, routes, outbound }
    }

    /// The policies of a kind that apply to the proxy or to a part of it, lowest precedence first.
    pub fn policies(&self, kind: Kind) -> &[Arc<Policy>] {
        self.applying.of_kind(kind)
    }

    /// Returns the rules of a kind for one inbound: kept apart, conditions first, then from the lowest
    /// precedence to the highest. [`policy::inbound::fold_unconditional`] makes of them the conf for all
    /// clients.
    pub fn inbound_rules(&self, kind: Kind, inbound: &Inbound) -> Vec<InboundRule> {
        policy::inbound::rules(self.of_inbound(kind, inbound))
    }

    /// The entries of `from` of a kind for one inbound, from the highest precedence to the lowest.
    pub fn inbound_from(&self, kind: Kind, inbound: &Inbound) -> Vec<FromRule> {
        policy::inbound::from(self.of_inbound(kind, inbound))
    }

    /// The policies of a kind that apply to one inbound, lowest precedence first.
    fn of_inbound(&self, kind: Kind, inbound: &Inbound) -> Vec<&PolicyView> {
        let Some(dataplane) = self.dataplane else { return Vec::new() };
        let selector = self.selector(kind);
        let policies = self.policies(kind).iter();
        let applying = policies.filter(|p| selector.selects_inbound(&p.resource, dataplane, inbound));
        applying.map(|policy| &policy.view).collect()
    }

    /// Returns the TLS mode of an inbound: MeshTLS sets it, or else the mesh.
    pub fn server_tls(&self, inbound: &Inbound) -> ServerTls {
        let by_policy = || security::mode(&self.inbound_rules(Kind::MeshTLS, inbound));
        match self.server_tls_by_default() {
            ServerTls::Off => ServerTls::Off,
            // Who accepts clients without TLS accepts them before there is a certificate, too.
            ServerTls::Closed if by_policy() == Some(ServerTls::Permissive) => ServerTls::Off,
            ServerTls::Closed => ServerTls::Closed,
            of_mesh => by_policy().unwrap_or(of_mesh),
        }
    }

    /// Returns the TLS mode of inbounds without a policy. A proxy with an identity requires one of its
    /// clients.
    pub fn server_tls_by_default(&self) -> ServerTls {
        match self.snapshot.mtls.as_ref().map(|mtls| mtls.mode) {
            _ if self.applying.identity.is_some() => ServerTls::Strict,
            None if self.applying.awaits_identity => ServerTls::Closed,
            None => ServerTls::Off,
            Some(MtlsMode::Strict) => ServerTls::Strict,
            Some(MtlsMode::Permissive) => ServerTls::Permissive,
        }
    }

    /// Returns the permissions of an inbound; `None` without mTLS, because clients cannot be identified.
    pub fn permissions(&self, inbound: &Inbound) -> Option<Permissions> {
        if self.server_tls_by_default() == ServerTls::Off {
            return None;
        }
        let kind = Kind::MeshTrafficPermission;
        let policies = self.policies(kind).iter().map(|policy| &policy.resource);
        Some(policy::permission::resolve(policies, self.dataplane?, inbound, &self.selector(kind)))
    }

    /// Returns the permissions of clients that an egress leads on under these server names; `None` allows
    /// everyone.
    pub fn permissions_behind(&self, server_names: &[String], forbidden: bool) -> Option<Permissions> {
        let policies = self.policies(Kind::MeshTrafficPermission).iter().map(|policy| &policy.resource);
        let otherwise = self.snapshot.mesh.kri("").filter(|_| !forbidden);
        policy::permission::behind_names(policies, server_names, otherwise)
    }

    /// Returns the merged conf of a kind's policies for a destination; `None` if no policy is about it. The
    /// error names the policies that cannot be read.
    pub fn conf<P: row::Policy>(
        &self,
        destination: &DestinationId,
    ) -> Result<Option<EffectiveConf<P::To>>, String> {
        match destination {
            DestinationId::Port(kri) => first::<P>(self.outbound(P::KIND).for_destination(kri)),
            DestinationId::Tags(tags) => {
                self.for_service(P::KIND, tagged::service(tags)).map(read).transpose()
            }
        }
    }

    /// As [`Effective::conf`], for requests that take a route to the destination.
    pub fn conf_of_route<P: row::Policy>(
        &self,
        route: &Kri,
        destination: &Kri,
    ) -> Result<Option<EffectiveConf<P::To>>, String> {
        first::<P>(self.outbound(P::KIND).for_route(route, destination))
    }

    /// Returns the merged conf of a kind's policies for a route itself; `None` if they are about its
    /// destination at most.
    pub fn conf_only_of_route<P: row::Policy>(
        &self,
        route: &Kri,
    ) -> Result<Option<EffectiveConf<P::To>>, String> {
        let rules = &self.outbound(P::KIND).rules;
        first::<P>(rules.get(route).or_else(|| rules.get(&route.without_section())))
    }

    /// The policies that all this is made from.
    pub fn applying(&self) -> &Applying {
        &self.applying
    }

    /// The confs of a kind for every destination that its policies name; look one up with
    /// [`ResourceRules::for_destination`] or [`ResourceRules::for_route`].
    pub fn outbound(&self, kind: Kind) -> &ResourceRules {
        static NONE: ResourceRules = ResourceRules::NONE;
        let Some(at) = KINDS.iter().position(|known| *known == kind) else { return &NONE };
        self.outbound[at].get_or_init(|| match kind.descriptor().policy {
            Some(traits) if traits.is_about(ProxySide::Outbound) => {
                let views = self.policies(kind).iter().map(|policy| &policy.view);
                let known = MeshReferences { snapshot: self.snapshot, routes: self.routes() };
                policy::outbound::resolve(views, &known, traits.merge)
            }
            _ => ResourceRules::NONE,
        })
    }

    /// The conf of a kind for the proxy as a whole.
    pub fn proxy(&self, kind: Kind) -> Option<Arc<MergedPolicy>> {
        let confs = self.policies(kind).iter().filter_map(|policy| policy.view.default.clone());
        policy::conf::merged(&confs.collect::<Vec<_>>(), merge_of(kind)?).first().cloned()
    }

    /// A MeshHTTPRoute of the mesh, which confs may be for.
    pub fn route(&self, kri: &Kri) -> Option<&Arc<Resource>> {
        self.routes().find(kri)
    }

    /// The MeshHTTPRoutes of the mesh change the meaning of the policies.
    pub fn refers_to_routes(&self) -> bool {
        self.applying.iter().any(|policy| policy.view.refers_to_routes())
    }

    fn routes(&self) -> &Routes {
        self.routes.get_or_init(|| Routes::of(self.snapshot))
    }

    /// Knows the routes if a policy of the kind selects by one.
    fn selector(&self, kind: Kind) -> PolicySelector<'_> {
        let by_route = |policy: &Arc<Policy>| policy.view.top.kind == TargetRefKind::MeshHttpRoute;
        if self.policies(kind).iter().any(by_route) {
            self.routes().selector()
        } else {
            PolicySelector::default()
        }
    }
}

/// Returns the way in which confs of a kind merge; `None` for kinds without an effect.
fn merge_of(kind: Kind) -> Option<Shape> {
    kind.descriptor().policy.filter(|_| KINDS.contains(&kind)).map(|traits| traits.merge)
}

fn first<P: row::Policy>(rule: Option<&ResourceRule>) -> Result<Option<EffectiveConf<P::To>>, String> {
    rule.and_then(|rule| rule.merged().first().cloned()).map(read).transpose()
}

fn read<C: DeserializeOwned + Send + Sync + 'static>(
    merged: Arc<MergedPolicy>,
) -> Result<EffectiveConf<C>, String> {
    Ok(EffectiveConf { conf: merged.typed()?, merged })
}

/// The Dataplanes that a policy selects, by name, whether or not its kind has an effect on them and whether or not it
/// is a shadow.
pub fn selected<'a>(snapshot: &'a MeshSnapshot, policy: &Resource) -> Vec<&'a Arc<Resource>> {
    let known = snapshot.policies.get(&policy.key);
    let candidates = known.and_then(|known| snapshot.selections.dataplanes(&known.view));
    let dataplanes: Vec<&Arc<Resource>> = match candidates {
        Some(names) => names.into_iter().filter_map(|name| snapshot.dataplanes.get(name)).collect(),
        None => snapshot.dataplanes.values().collect(),
    };
    let routes = Routes::of(snapshot);
    let selector = PolicySelector { with_shadow: true, ..routes.selector() };
    dataplanes.into_iter().filter(|dataplane| selector.selects(policy, dataplane)).collect()
}

/// As [`selected`], within a budget: each Dataplane that is looked at is a step.
pub(crate) fn selected_within<'a>(
    snapshot: &'a MeshSnapshot,
    policy: &Policy,
    budget: &Budget,
) -> Result<Vec<&'a Arc<Resource>>, Spent> {
    let candidates =
        snapshot.selections.dataplanes(&policy.view).map_or(snapshot.dataplanes.len(), |c| c.len());
    budget.spend(1 + candidates)?;
    Ok(selected(snapshot, &policy.resource))
}

/// The policy selects a Dataplane, with or without an effect on it. Stops at the first.
pub fn selects_any(snapshot: &MeshSnapshot, policy: &Policy) -> bool {
    let routes = Routes::for_reference(snapshot, &policy.view.top);
    let selector = routes.selector();
    let selected = |dataplane: &Arc<Resource>| selector.selects(&policy.resource, dataplane);
    match snapshot.selections.dataplanes(&policy.view) {
        Some(names) => names.into_iter().filter_map(|name| snapshot.dataplanes.get(name)).any(selected),
        None => snapshot.dataplanes.values().any(selected),
    }
}

/// The target of an entry of a policy exists: a resource, or proxies that serve it by their tags.
pub fn knows(snapshot: &MeshSnapshot, policy: &Kri, target: &TargetRef) -> bool {
    let by_tags = match target.kind {
        TargetRefKind::Mesh | TargetRefKind::MeshSubset => return true,
        TargetRefKind::MeshService | TargetRefKind::MeshServiceSubset => {
            let mode = snapshot.mesh.spec.get::<Mesh>().map(Mesh::mesh_services_mode);
            mode != Some(MeshServicesMode::Exclusive)
        }
        _ => false,
    };
    let routes = Routes::for_reference(snapshot, target);
    let known = MeshReferences { snapshot, routes: &routes };
    !policy::outbound::named(&known, policy, target).is_empty()
        || (by_tags && target.name.as_deref().is_some_and(|name| snapshot.selections.serves(name)))
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
        let all = snapshot.routes().cloned().collect();
        Routes { all, by_kri: OnceCell::new() }
    }

    /// None, unless the reference may mean one of them.
    fn for_reference(snapshot: &MeshSnapshot, reference: &TargetRef) -> Routes {
        match reference.kind {
            TargetRefKind::MeshHttpRoute => Routes::of(snapshot),
            _ => Routes { all: Vec::new(), by_kri: OnceCell::new() },
        }
    }

    /// Policies may select "the proxies that this route selects".
    fn selector(&self) -> PolicySelector<'_> {
        PolicySelector { routes: &self.all, ..PolicySelector::default() }
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
struct MeshReferences<'a> {
    snapshot: &'a MeshSnapshot,
    routes: &'a Routes,
}

impl Destinations for MeshReferences<'_> {
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
