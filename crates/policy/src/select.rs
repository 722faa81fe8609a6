//! Selection of proxies, and of their inbounds, by policies.
//!
//! Three gates, in this order: is the policy in effect at all, was it written for this zone and
//! namespace, does its top-level `targetRef` choose the proxy.

use std::sync::Arc;

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound, Listener},
        tags::{ANY_VALUE, Tags},
        target_ref::{ProxyType, TargetRef, TargetRefKind as K},
    },
    labels,
    naming::{Kri, KriFields, ShortName},
};

use crate::view::{Policy, Role};

/// The parts of a proxy that a policy applies to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Indexes into the Dataplane's inbounds.
    pub inbounds: Vec<usize>,
    /// Indexes into the Dataplane's zone-proxy listeners.
    pub listeners: Vec<usize>,
    /// The policy selects the Dataplane as a delegated gateway; it has no inbounds.
    pub gateway: bool,
    /// The policy selects the Dataplane as a mere caller: it accepts no traffic.
    pub caller: bool,
}

impl Selection {
    pub fn is_empty(&self) -> bool {
        self.inbounds.is_empty() && self.listeners.is_empty() && !self.gateway && !self.caller
    }
}

/// Chooses policies for proxies.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicySelector<'a> {
    /// The MeshHTTPRoutes of the mesh: a policy may select "the proxies that this route selects".
    pub routes: &'a [Arc<Resource>],
    /// Count policies that only show their effect (`kuma.io/effect: shadow`).
    pub with_shadow: bool,
}

impl PolicySelector<'_> {
    /// The parts of the proxy that the policy applies to; empty if it does not apply.
    pub fn select(&self, policy: &Resource, proxy: &Resource) -> Selection {
        let Some(parts) = self.selected_parts(policy, proxy) else { return Selection::default() };
        let inbounds = parts.dataplane.inbounds().iter().enumerate();
        let listeners = parts.dataplane.listeners().iter().enumerate();
        Selection {
            inbounds: inbounds.filter(|(_, inbound)| parts.inbound(inbound)).map(|(i, _)| i).collect(),
            listeners: listeners.filter(|(_, listener)| parts.listener(listener)).map(|(i, _)| i).collect(),
            gateway: parts.gateway(),
            caller: parts.caller(),
        }
    }

    /// True if the policy applies to the proxy or to a part of it.
    pub fn selects(&self, policy: &Resource, proxy: &Resource) -> bool {
        self.selected_parts(policy, proxy).is_some_and(|parts| parts.anything())
    }

    /// True if the policy applies to this inbound of the proxy.
    pub fn selects_inbound(&self, policy: &Resource, proxy: &Resource, inbound: &Inbound) -> bool {
        self.selected_parts(policy, proxy).is_some_and(|parts| parts.inbound(inbound))
    }

    /// The policies that apply to the proxy, lowest precedence first.
    pub fn for_proxy<'p>(
        &self,
        policies: impl IntoIterator<Item = &'p Arc<Policy>>,
        proxy: &Resource,
    ) -> Vec<&'p Arc<Policy>> {
        let applying = policies.into_iter().filter(|policy| self.selects(&policy.resource, proxy));
        let mut applying: Vec<_> = applying.collect();
        applying.sort_by(|a, b| a.view.precedence.cmp(&b.view.precedence));
        applying
    }

    /// The policies for all sidecars of a zone, lowest precedence first: what a proxy obeys that stands for all of them.
    pub fn for_every_sidecar<'p>(
        &self,
        policies: impl IntoIterator<Item = &'p Arc<Policy>>,
        zone: &str,
    ) -> Vec<&'p Arc<Policy>> {
        let in_effect =
            |policy: &Resource| self.with_shadow || policy.label(labels::EFFECT) != Some("shadow");
        let applying = policies.into_iter().filter(|policy| {
            is_for_every_sidecar(policy) && in_effect(&policy.resource) && is_of_zone(&policy.resource, zone)
        });
        let mut applying: Vec<_> = applying.collect();
        applying.sort_by(|a, b| a.view.precedence.cmp(&b.view.precedence));
        applying
    }

    /// `None` if a gate is closed.
    fn selected_parts<'r>(&'r self, policy: &'r Resource, proxy: &'r Resource) -> Option<SelectedParts<'r>> {
        let dataplane = proxy.spec.get::<Dataplane>()?;
        let (owner, top) = self.effective(policy, proxy)?;
        Some(SelectedParts { owner, top, proxy, dataplane })
    }

    /// The reference that chooses proxies, and the resource it stands in; `None` if a gate is closed.
    fn effective<'r>(
        &'r self,
        policy: &'r Resource,
        proxy: &Resource,
    ) -> Option<(&'r Resource, Option<&'r TargetRef>)> {
        let top = policy.spec.target_ref()?;
        let pretends = policy.label(labels::EFFECT) == Some("shadow");
        let gates_open = policy.mesh() == proxy.mesh()
            && (self.with_shadow || !pretends)
            && zone_gate(policy, proxy)
            && namespace_gate(policy, proxy);
        if !gates_open {
            return None;
        }
        match top {
            Some(route) if route.kind == K::MeshHttpRoute => {
                let route = self.routes.iter().find(|known| names(policy, route, known))?;
                let top = route.spec.target_ref()?;
                // A route that refers to a route is refused when it is written; it selects nothing.
                let ends = top.is_none_or(|top| top.kind != K::MeshHttpRoute);
                ends.then_some((route.as_ref(), top))
            }
            top => Some((policy, top)),
        }
    }
}

/// True if a policy selects every sidecar, wherever the policy is written.
pub fn is_for_every_sidecar(policy: &Policy) -> bool {
    let top = &policy.view.top;
    let sidecars = top.proxy_types.as_ref();
    let sidecars = sidecars.is_none_or(|types| types.is_empty() || types.contains(&ProxyType::Sidecar));
    let reaches_all = matches!(Role::of(&policy.resource.labels), Role::System | Role::Producer);
    top.kind == K::Mesh && sidecars && reaches_all
}

/// As [`zone_gate`], for all proxies of a zone.
pub fn is_of_zone(policy: &Resource, zone: &str) -> bool {
    let elsewhere = policy.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
        && policy.label(labels::ZONE).is_some_and(|of| !of.is_empty() && of != zone);
    Role::of(&policy.labels) == Role::Producer || !elsewhere
}

/// Producers write for callers in every zone; other policies of a zone stay in it.
fn zone_gate(policy: &Resource, proxy: &Resource) -> bool {
    let local_proxy = proxy.label(labels::ORIGIN).is_some_and(|origin| origin != labels::ORIGIN_GLOBAL);
    let of_a_zone = policy.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE);
    if Role::of(&policy.labels) == Role::Producer || !local_proxy || !of_a_zone {
        return true;
    }
    policy.label(labels::ZONE).is_none_or(|zone| zone.is_empty() || Some(zone) == proxy.label(labels::ZONE))
}

/// Policies of workload owners and consumers reach no further than their namespace.
fn namespace_gate(policy: &Resource, proxy: &Resource) -> bool {
    match Role::of(&policy.labels) {
        Role::System | Role::Producer => true,
        Role::Consumer | Role::WorkloadOwner => {
            policy.label(labels::K8S_NAMESPACE) == proxy.label(labels::K8S_NAMESPACE)
        }
    }
}

/// A top-level reference about to choose parts of one proxy.
struct SelectedParts<'a> {
    /// The policy, or the route it refers to.
    owner: &'a Resource,
    top: Option<&'a TargetRef>,
    proxy: &'a Resource,
    dataplane: &'a Dataplane,
}

impl SelectedParts<'_> {
    fn anything(&self) -> bool {
        self.dataplane.inbounds().iter().any(|inbound| self.inbound(inbound))
            || self.dataplane.listeners().iter().any(|listener| self.listener(listener))
            || self.gateway()
            || self.caller()
    }

    fn inbound(&self, inbound: &Inbound) -> bool {
        let Some(top) = self.top else { return true };
        match top.kind {
            K::Mesh => self.proxy_type(top),
            K::Dataplane => self.named(top) && self.is_section(top, &inbound.name, inbound.port),
            _ => self.proxy_type(top) && wanted_tags(top).is_some_and(|tags| tags.are_in(&inbound.tags)),
        }
    }

    fn listener(&self, listener: &Listener) -> bool {
        let Some(top) = self.top else { return true };
        match top.kind {
            K::Mesh => self.proxy_type(top),
            K::Dataplane => self.named(top) && self.is_section(top, &listener.name, listener.port),
            // Listeners of zone proxies have no tags.
            _ => false,
        }
    }

    fn gateway(&self) -> bool {
        let Some(gateway) = self.dataplane.gateway() else { return false };
        let Some(top) = self.top else { return true };
        match top.kind {
            K::Mesh => self.proxy_type(top),
            K::Dataplane => self.named(top) && top.section_name.as_deref().is_none_or(str::is_empty),
            _ => self.proxy_type(top) && wanted_tags(top).is_some_and(|tags| tags.are_in(&gateway.tags)),
        }
    }

    fn caller(&self) -> bool {
        let dataplane = self.dataplane;
        let accepts = !dataplane.inbounds().is_empty() || !dataplane.listeners().is_empty();
        if accepts || dataplane.gateway().is_some() {
            return false;
        }
        let Some(top) = self.top else { return true };
        match top.kind {
            K::Mesh => self.proxy_type(top),
            K::Dataplane => self.named(top) && top.section_name.as_deref().is_none_or(str::is_empty),
            // Without inbounds there are no tags.
            _ => false,
        }
    }

    fn proxy_type(&self, top: &TargetRef) -> bool {
        let actual = if self.dataplane.gateway().is_some() { ProxyType::Gateway } else { ProxyType::Sidecar };
        top.proxy_types.as_ref().is_none_or(|types| types.is_empty() || types.contains(&actual))
    }

    fn named(&self, top: &TargetRef) -> bool {
        let by_name = top.name.as_ref().is_none_or(|name| name.is_empty());
        let by_namespace = top.namespace.as_ref().is_none_or(|namespace| namespace.is_empty());
        if by_name && by_namespace { has_labels(top, self.proxy) } else { names(self.owner, top, self.proxy) }
    }

    /// True if `sectionName` means this part of the proxy: by its name, or by its port if no part has that
    /// name.
    fn is_section(&self, top: &TargetRef, name: &str, port: u32) -> bool {
        let Some(wanted) = top.section_name.as_deref().filter(|wanted| !wanted.is_empty()) else {
            return true;
        };
        name == wanted || (port.to_string() == wanted && !self.has_name(wanted))
    }

    fn has_name(&self, wanted: &str) -> bool {
        self.dataplane.inbounds().iter().any(|inbound| inbound.name == wanted)
            || self.dataplane.listeners().iter().any(|listener| listener.name == wanted)
    }
}

/// True if a reference by labels means the resource; one without labels means every resource.
fn has_labels(reference: &TargetRef, resource: &Resource) -> bool {
    let wanted = reference.labels.iter().flatten();
    wanted.into_iter().all(|(name, value)| resource.label(name) == Some(value))
}

/// True if a reference in `owner`, by name or by labels, means the resource.
fn names(owner: &Resource, reference: &TargetRef, resource: &Resource) -> bool {
    if reference.labels.as_ref().is_some_and(|labels| !labels.is_empty()) {
        return has_labels(reference, resource);
    }
    // Most policies mean another resource, which shows before an identifier is built.
    if reference.name.as_deref().unwrap_or_default() != resource.display_name() {
        return false;
    }
    let label = |name| owner.label(name).unwrap_or_default();
    let place =
        NameScope { mesh: owner.mesh(), zone: label(labels::ZONE), namespace: label(labels::K8S_NAMESPACE) };
    place.kri_of(resource.kind(), reference).is_some_and(|kri| resource.kri("") == Some(kri))
}

/// Mesh, zone and namespace of a policy; the names in it mean resources beside it.
#[derive(Debug, Clone, Copy)]
pub struct NameScope<'a> {
    pub mesh: &'a str,
    pub zone: &'a str,
    pub namespace: &'a str,
}

impl<'a> NameScope<'a> {
    pub fn of(policy: &'a Kri) -> NameScope<'a> {
        NameScope { mesh: &policy.mesh, zone: &policy.zone, namespace: &policy.namespace }
    }

    pub fn kri_of(&self, kind: Kind, reference: &TargetRef) -> Option<Kri> {
        let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        Some(Kri::from(KriFields {
            short: ShortName::of_kind(kind)?,
            mesh: self.mesh.to_owned(),
            zone: self.zone.to_owned(),
            namespace: namespace.unwrap_or(self.namespace).to_owned(),
            name: reference.name.clone().unwrap_or_default(),
            section: String::new(),
        }))
    }
}

/// The tags a reference asks for.
struct WantedTags<'a> {
    service: Option<&'a str>,
    tags: Option<&'a Tags>,
}

impl WantedTags<'_> {
    fn are_in(&self, present: &Tags) -> bool {
        let has = |name: &str, value: &str| {
            present.get(name).is_some_and(|actual| actual == value || value == ANY_VALUE)
        };
        self.service.is_none_or(|service| has(labels::SERVICE, service))
            && self.tags.into_iter().flatten().all(|(name, value)| has(name, value))
    }
}

/// `None` for references that do not go by tags.
fn wanted_tags(reference: &TargetRef) -> Option<WantedTags<'_>> {
    let tags = reference.tags.as_ref();
    match reference.kind {
        K::MeshSubset => Some(WantedTags { service: None, tags }),
        // Without a name it would choose every proxy.
        K::MeshService => Some(WantedTags { service: Some(reference.name.as_deref()?), tags: None }),
        K::MeshServiceSubset => Some(WantedTags { service: Some(reference.name.as_deref()?), tags }),
        _ => None,
    }
}
