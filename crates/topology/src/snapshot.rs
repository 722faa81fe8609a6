//! The mesh, frozen.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use policy::Policy;
use resources::{
    Key, Kind, Labels, Resource,
    kinds::{
        dataplane::BackendRef,
        mesh::{self, Mesh, MeshServicesMode},
        tags::{self, Tags},
        target_ref::{TargetRef, TargetRefKind},
    },
    labels,
    naming::SpiffeId,
};

use crate::{
    AccessGraph, Destination, DestinationId, Endpoints, Identities, TrimmingMode, Trusts, VirtualHosts,
    ZoneRoutes, cidr::Ipv6Prefix, identities, labelled::Labelled, matching::MemberSelector,
    selection::Selections,
};

/// Everything about one mesh that a proxy's configuration can depend on.
///
/// A snapshot shares with its predecessor what did not change, so making one costs what changed.
/// Two are equal when no proxy can tell them apart: statuses, times and versions do not count.
#[derive(Debug, Clone)]
pub struct MeshSnapshot {
    pub name: Arc<str>,
    pub mesh: Arc<Resource>,
    pub mtls: Option<Mtls>,
    /// The identities of proxies in addition to those from the mesh's own authority.
    pub identities: Identities,
    /// The authorities that proxies trust in addition to the mesh's own.
    pub trusts: Trusts,
    /// The zone of this control plane.
    pub zone: Arc<str>,
    /// Mode of trimming where neither the mesh nor the proxy sets one.
    pub default_mode: TrimmingMode,
    /// Prefix of IPv6 virtual addresses, if there are any.
    pub ipv6_prefix: Option<Ipv6Prefix>,
    pub dataplanes: OrdMap<Arc<str>, Arc<Resource>>,
    pub destinations: OrdMap<DestinationId, Arc<Destination>>,
    pub endpoints: OrdMap<DestinationId, Arc<Endpoints>>,
    /// The ports of every MeshService, MeshExternalService and MeshMultiZoneService, in the order of its spec.
    pub services: OrdMap<Key, Arc<[DestinationId]>>,
    /// Those services by their labels.
    pub labelled: Labelled,
    /// The hostnames that VirtualOutbounds make.
    pub virtual_hosts: VirtualHosts,
    pub policies: OrdMap<Key, Arc<Policy>>,
    /// Index of policies and the Dataplanes that they may select.
    pub selections: Selections,
    /// Destinations that each client may call, as far as servers refuse others.
    pub access: AccessGraph,
    /// The MeshOpenTelemetryBackends by name.
    pub telemetry: OrdMap<Arc<str>, Arc<Resource>>,
    /// Resources that belong to no mesh and may matter to all, such as HostnameGenerators and zones.
    pub globals: OrdMap<Key, Arc<Resource>>,
    /// Ways to other zones.
    pub zones: ZoneRoutes,
    /// Number of inbounds that take traffic with each set of tags.
    pub instances: OrdMap<Arc<Tags>, u32>,
}

/// Mutual TLS by the mesh's own certificate authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mtls {
    pub enabled_backend: Arc<str>,
    pub mode: MtlsMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtlsMode {
    Strict,
    Permissive,
}

impl Mtls {
    /// `None` when the mesh has no authority in use.
    pub fn of(mesh: &Resource) -> Option<Mtls> {
        let backend = mesh.spec.get::<Mesh>()?.enabled_backend()?;
        let mode = match backend.mode {
            mesh::MtlsMode::Strict => MtlsMode::Strict,
            mesh::MtlsMode::Permissive => MtlsMode::Permissive,
        };
        Some(Mtls { enabled_backend: backend.name.as_str().into(), mode })
    }
}

impl MeshSnapshot {
    /// The identity that a proxy is given: `None` while the one that is its own is not ready, or no proxy would trust
    /// it.
    pub fn identity_of(&self, dataplane: &Resource) -> Option<&Arc<Resource>> {
        Some(self.given(dataplane)?.0)
    }

    /// Returns the sets of tags that other zones may find here, each with the number of inbounds that have
    /// it. Where services are called as resources alone, these are the sets that VirtualOutbounds make
    /// hostnames of.
    pub fn found_by_tags(&self) -> impl Iterator<Item = (&Arc<Tags>, u32)> {
        let mode = self.mesh.spec.get::<Mesh>().map(Mesh::mesh_services_mode);
        let all = mode != Some(MeshServicesMode::Exclusive);
        let found = self.instances.iter().filter(move |(tags, _)| all || self.has_hostname(tags));
        found.map(|(tags, instances)| (tags, *instances))
    }

    /// A hostname leads to inbounds with these tags. Looks at the hostnames of their service.
    fn has_hostname(&self, carried: &Tags) -> bool {
        let service = carried.get(labels::SERVICE).map(String::as_str);
        let hosts = self.virtual_hosts.of_services(&service.into_iter().collect());
        hosts.iter().flat_map(|host| host.ports.values()).any(|to| tags::matches(&to.tags, carried))
    }

    /// Returns the SPIFFE ID that a proxy is given.
    pub fn spiffe_id_of(&self, dataplane: &Resource) -> Option<SpiffeId> {
        Some(self.given(dataplane)?.1)
    }

    /// Checks whether a MeshIdentity that certifies selects a proxy and cannot be given to it.
    pub fn awaits_identity(&self, dataplane: &Resource) -> bool {
        identities::awaits(&self.identities, &self.trusts, &self.zone, dataplane)
    }

    fn given(&self, dataplane: &Resource) -> Option<(&Arc<Resource>, SpiffeId)> {
        identities::given(&self.identities, &self.trusts, &self.zone, dataplane)
    }

    /// The trust domains whose proxies are trusted, that of the mesh itself among them while it has mTLS; `None` while
    /// there is no MeshTrust.
    pub fn trust_domains(&self) -> Option<Vec<String>> {
        if self.trusts.is_empty() {
            return None;
        }
        let mut domains = self.trusts.names();
        domains.extend(self.mtls.as_ref().map(|_| self.name.to_string()));
        Some(domains.into_iter().collect())
    }

    /// The policies of a kind, sorted by name.
    pub fn policies_of(&self, kind: Kind) -> impl Iterator<Item = &Arc<Resource>> + Clone {
        self.viewed(kind).map(|policy| &policy.resource)
    }

    /// The policies of a kind with their views, sorted by name.
    pub fn viewed(&self, kind: Kind) -> impl Iterator<Item = &Arc<Policy>> + Clone {
        of_kind(&self.policies, kind).map(|(_, policy)| policy)
    }

    /// The MeshHTTPRoutes that policies can refer to, sorted by name.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Resource>> + Clone {
        self.policies_of(Kind::MeshHTTPRoute).filter(|route| !is_shadow(route))
    }

    /// The mesh as a Dataplane would see it if policies that only pretend to be there (`kuma.io/effect: shadow`) had
    /// an effect.
    #[must_use]
    pub fn with_shadows(&self, dataplane: &Resource) -> MeshSnapshot {
        let mut mesh = self.clone();
        let about = self.candidates(dataplane).chain(self.viewed(Kind::MeshHTTPRoute));
        for policy in about.filter(|policy| is_shadow(&policy.resource)) {
            let mut real = Resource::clone(&policy.resource);
            real.labels.remove(labels::EFFECT);
            // It selects what it selected: nothing else in it is different.
            if let Some(real) = Policy::of(Arc::new(real)) {
                mesh.policies.insert(policy.resource.key.clone(), Arc::new(real));
            }
        }
        mesh
    }

    /// The policies that may select a Dataplane, sorted by kind and name.
    pub fn candidates<'a>(&'a self, dataplane: &Resource) -> impl Iterator<Item = &'a Arc<Policy>> {
        self.selections.candidates(dataplane).into_iter().filter_map(|key| self.policies.get(key))
    }

    /// The Dataplanes that may be of a service by their tags or by their workload. Costs as many as there are of it.
    pub fn of_service(&self, service: &str) -> Vec<&Arc<Resource>> {
        let tags = TargetRef {
            kind: TargetRefKind::MeshService,
            name: Some(service.to_owned()),
            ..TargetRef::default()
        };
        let workload = Labels::from([(labels::WORKLOAD.to_owned(), service.to_owned())]);
        let labels =
            TargetRef { kind: TargetRefKind::Dataplane, labels: Some(workload), ..TargetRef::default() };
        let names = [&tags, &labels].map(|reference| self.selections.meant_by(reference));
        let names: BTreeSet<&Arc<str>> = names.into_iter().flatten().flatten().collect();
        names.into_iter().filter_map(|name| self.dataplanes.get(name)).collect()
    }

    /// The Dataplanes that a selector chooses, ready or not. Costs as many as have one of its tags or labels.
    pub fn chosen_by<'a>(&'a self, selector: &MemberSelector) -> Vec<&'a Arc<Resource>> {
        if let MemberSelector::Name(name) = selector {
            return self.dataplanes.get(name.as_str()).into_iter().collect();
        }
        let Some(reference) = selector.as_target_ref() else { return Vec::new() };
        let names = self.selections.meant_by(&reference);
        let names = names.unwrap_or_else(|| self.dataplanes.keys().collect());
        let dataplanes = names.into_iter().filter_map(|name| self.dataplanes.get(name));
        dataplanes.filter(|dataplane| selector.selects(dataplane)).collect()
    }

    /// The ports of the service that a name means: of the one that is stored under it, or else of the one that the
    /// global control plane calls so.
    pub fn named(&self, kind: Kind, stored: &str, name: &str) -> Option<&[DestinationId]> {
        let own = self.services.get(&Key::new(kind, &self.name, stored));
        own.or_else(|| self.services.get(self.labelled.of_global(kind, name)?)).map(|ports| &**ports)
    }

    /// The destination an outbound refers to: by name, or else the first by name that has the labels.
    pub fn backend(&self, reference: &BackendRef) -> Option<&Arc<Destination>> {
        let kind = Kind::by_name(&reference.kind)?;
        if reference.labels.is_empty() {
            let ports = self.named(kind, &reference.name, &reference.name)?;
            return self.port_of(ports, reference.port);
        }
        self.labelled(kind, &reference.labels).find_map(|ports| self.port_of(ports, reference.port))
    }

    /// The ports of the services of a kind that carry all labels, by name of the service.
    pub fn labelled<'a>(
        &'a self,
        kind: Kind,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a [DestinationId]> {
        self.labelled
            .find(kind, labels)
            .filter_map(|service| self.services.get(service))
            .map(|ports| &**ports)
    }

    /// The MeshOpenTelemetryBackend that a reference by labels means: the oldest that carries them all.
    pub fn telemetry_backend(&self, labels: &Labels) -> Option<&Arc<Resource>> {
        let carrying = self.telemetry.values().filter(|backend| carries(&backend.labels, labels));
        carrying.min_by_key(|backend| (backend.created, &backend.key.name))
    }

    /// No port means the only one, which is how a MeshExternalService is referred to.
    fn port_of(&self, ports: &[DestinationId], port: u32) -> Option<&Arc<Destination>> {
        let mut destinations = ports.iter().filter_map(|id| self.destinations.get(id));
        match (port, ports.len()) {
            (0, 1) => destinations.next(),
            _ => destinations.find(|destination| destination.port == port),
        }
    }
}

impl PartialEq for MeshSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && looks_same(&self.mesh, &other.mesh)
            && self.identities == other.identities
            && self.trusts == other.trusts
            && self.destinations == other.destinations
            && self.endpoints == other.endpoints
            && self.services == other.services
            && self.virtual_hosts == other.virtual_hosts
            && all_look_same(&self.dataplanes, &other.dataplanes, |dataplane| dataplane)
            && all_look_same(&self.policies, &other.policies, |policy| &policy.resource)
            && all_look_same(&self.telemetry, &other.telemetry, |backend| backend)
            && all_look_same(&self.globals, &other.globals, |resource| resource)
            && self.zones == other.zones
            && self.access == other.access
    }
}

/// The policy is a shadow, which only pretends to be there.
pub(crate) fn is_shadow(policy: &Resource) -> bool {
    policy.label(labels::EFFECT) == Some("shadow")
}

/// Returns the entries of one kind, in the order of names; the keys of a mesh differ in kind and name only.
pub(crate) fn of_kind<V>(map: &OrdMap<Key, V>, kind: Kind) -> impl Iterator<Item = (&Key, &V)> + Clone {
    let first = Key { kind, mesh: Arc::default(), name: Arc::default() };
    map.range(first..).take_while(move |(key, _)| key.kind == kind)
}

fn all_look_same<K: Ord, V>(
    a: &OrdMap<K, V>,
    b: &OrdMap<K, V>,
    resource: impl Fn(&V) -> &Arc<Resource>,
) -> bool {
    a.len() == b.len() && a.values().zip(b.values()).all(|(a, b)| looks_same(resource(a), resource(b)))
}

/// These labels contain all wanted ones.
pub(crate) fn carries(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Both versions of a resource are the same to a proxy.
pub(crate) fn looks_same(a: &Arc<Resource>, b: &Arc<Resource>) -> bool {
    Arc::ptr_eq(a, b) || (a.key == b.key && a.labels == b.labels && a.spec == b.spec)
}
