//! The policies that select one proxy.

use std::sync::Arc;

use policy::{Policy, PolicySelector};
use resources::{
    Kind, Resource,
    kinds::target_ref::TargetRefKind,
    naming::{Kri, NamingChoice},
    policy::ProxySide,
};
use topology::{ClientClass, MeshSnapshot, TrimmingMode, VouchedLabels, cidr::Ipv6Prefix};

use super::KINDS;

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
    /// The policies of one kind, without anything else.
    pub fn of_one_kind(kind: Kind, snapshot: &MeshSnapshot, dataplane: &Resource) -> Applying {
        let candidates = snapshot.candidates(dataplane).filter(|policy| policy.resource.kind() == kind);
        Applying {
            policies: selecting(snapshot, dataplane, &candidates.collect::<Vec<_>>()),
            ..Applying::default()
        }
    }

    pub fn of(snapshot: &MeshSnapshot, dataplane: &Resource) -> Applying {
        let policies = selecting(snapshot, dataplane, &snapshot.candidates(dataplane).collect::<Vec<_>>());
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

/// The policies among candidates that select a Dataplane, by kind.
fn selecting(
    snapshot: &MeshSnapshot,
    dataplane: &Resource,
    candidates: &[&Arc<Policy>],
) -> [Vec<Arc<Policy>>; KINDS.len()] {
    let by_route = |policy: &&Arc<Policy>| policy.view.top.kind == TargetRefKind::MeshHttpRoute;
    // A policy may select "the proxies that this route selects", which is old and rare.
    let routes: Vec<Arc<Resource>> =
        if candidates.iter().any(by_route) { snapshot.routes().cloned().collect() } else { Vec::new() };
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    KINDS.map(|kind| {
        let of_kind = candidates.iter().copied().filter(|policy| policy.resource.kind() == kind);
        selector.for_proxy(of_kind, dataplane).into_iter().cloned().collect()
    })
}
