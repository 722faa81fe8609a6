//! The parts of a class, one for each mesh that it is of, and what they are together.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use envoy::ClassPart;
use plan::{
    DestinationBackend, FilterChain, Finding, Impact, Locality, ProxyClass, Reads, SecretNames, SharedPlan,
    ZoneBackend, ZoneServer,
};
use topology::{DestinationId, MeshSnapshot};
use xds::{Layer, Type};

use super::Address;

/// Secrets by which a proxy acts in a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSecrets {
    pub mesh: Arc<str>,
    pub names: SecretNames,
}

/// Configuration that the members of a class share.
#[derive(Debug, Clone, Default)]
pub struct SharedConfig {
    pub layer: Arc<Layer>,
    pub findings: Arc<[Finding]>,
    /// Part of resources that each member makes of its own.
    pub part: ClassPart,
    /// Secrets that members need in addition to those of their own.
    pub secrets: Arc<[MeshSecrets]>,
}

/// The parts by mesh, and what members get of them.
#[derive(Debug, Default)]
pub(super) struct Parts {
    meshes: BTreeMap<Arc<str>, MeshPart>,
    shared: SharedConfig,
}

#[derive(Debug, Default)]
struct MeshPart {
    layer: Arc<Layer>,
    backends: HashMap<DestinationId, EndpointSource>,
    /// The addresses at which something is offered.
    addresses: BTreeSet<Address>,
    findings: Arc<[Finding]>,
    part: ClassPart,
    secrets: Option<SecretNames>,
}

/// Way of the endpoints of a destination to the proxy.
#[derive(Debug)]
enum EndpointSource {
    /// As the endpoints of this cluster, preferred like this.
    Discovered(Arc<str>, Option<Arc<Locality>>),
    /// As a part of this cluster, because they lie outside the mesh.
    InCluster(Arc<str>),
}

impl EndpointSource {
    /// `None` where a patch saw to it that they do not reach the proxy.
    fn of(backend: &DestinationBackend, layer: &Layer) -> Option<EndpointSource> {
        if backend.external.is_some() {
            return Some(EndpointSource::InCluster(cluster_name(&backend.cluster, layer)));
        }
        let endpoints = layer.get(Type::Endpoint, &backend.cluster)?;
        Some(EndpointSource::Discovered(endpoints.name.clone(), backend.locality.clone()))
    }

    fn of_zone(backend: &ZoneBackend, layer: &Layer) -> EndpointSource {
        let cluster = cluster_name(&backend.cluster, layer);
        match &backend.served {
            ZoneServer::Proxy => EndpointSource::Discovered(cluster, backend.locality.clone()),
            ZoneServer::External(_) => EndpointSource::InCluster(cluster),
        }
    }

    fn cluster(&self) -> &Arc<str> {
        match self {
            EndpointSource::Discovered(cluster, _) | EndpointSource::InCluster(cluster) => cluster,
        }
    }
}

/// The name of a cluster, shared with the resource if it is there.
fn cluster_name(cluster: &str, layer: &Layer) -> Arc<str> {
    let known = layer.get(Type::Cluster, cluster).map(|resource| resource.name.clone());
    known.unwrap_or_else(|| cluster.into())
}

impl Parts {
    pub(super) fn shared(&self) -> &SharedConfig {
        &self.shared
    }

    pub(super) fn is_empty(&self) -> bool {
        self.meshes.is_empty()
    }

    pub(super) fn offers_at(&self, address: &Address) -> bool {
        self.meshes.values().any(|part| part.addresses.contains(address))
    }

    /// The clusters of destinations.
    pub(super) fn clusters(&self) -> impl Iterator<Item = (&DestinationId, &Arc<str>)> {
        let backends = self.meshes.values().flat_map(|part| &part.backends);
        backends.map(|(id, source)| (id, source.cluster()))
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Arc<str>) -> bool) {
        self.meshes.retain(|mesh, _| keep(mesh));
    }

    /// Replaces the part of a mesh; returns what its plan was made from.
    pub(super) fn replace(&mut self, mesh: &Arc<str>, plan: SharedPlan, encoder: &envoy::Encoder) -> Reads {
        let (next, unpatched) = encoder.shared(&plan);
        let part = self.meshes.entry(mesh.clone()).or_default();
        let layer = Arc::make_mut(&mut part.layer);
        layer.become_like(&next);
        part.part = ClassPart::of(&plan);
        match plan {
            SharedPlan::Sidecar(plan) => {
                let source = |backend: &DestinationBackend| {
                    Some((backend.destination.clone(), EndpointSource::of(backend, layer)?))
                };
                part.backends = plan.backends.iter().filter_map(source).collect();
                part.addresses = plan.addresses().collect();
                part.findings = plan.findings.into_iter().chain(unpatched).collect();
                plan.reads
            }
            SharedPlan::Zone(plan) => {
                let source = |backend: &ZoneBackend| {
                    (backend.destination.clone(), EndpointSource::of_zone(backend, layer))
                };
                part.backends = plan.backends.iter().map(source).collect();
                part.findings = plan.findings.into_iter().chain(unpatched).collect();
                part.secrets = plan.secrets;
                Reads::default()
            }
        }
    }

    /// The same plan with other endpoints; `false` where the mesh must be planned anew.
    pub(super) fn renew_endpoints(
        &mut self,
        class: &ProxyClass,
        mesh: &MeshSnapshot,
        impact: &Impact,
        encoder: &envoy::Encoder,
    ) -> bool {
        let ids = match impact {
            Impact::Nothing => return true,
            Impact::Endpoints(ids) => ids,
            Impact::Everything => return false,
        };
        let Some(part) = self.meshes.get_mut(&mesh.name) else { return false };
        for id in ids {
            let source = part.backends.get(id);
            let endpoints = class.endpoints(mesh, id);
            match (source, endpoints) {
                // Endpoints outside of the mesh are a part of their cluster.
                (Some(EndpointSource::InCluster(_)), _) => return false,
                (Some(EndpointSource::Discovered(cluster, locality)), Some(endpoints)) => {
                    let encoded = encoder.endpoints(cluster, &endpoints, locality.as_deref());
                    Arc::make_mut(&mut part.layer).insert(Type::Endpoint, encoded.clone());
                    // The layer of a single mesh is taken over as it is.
                    if class.mesh().is_none() {
                        Arc::make_mut(&mut self.shared.layer).insert(Type::Endpoint, encoded);
                    }
                }
                (None, None) => {}
                (Some(EndpointSource::Discovered(..)), None) | (None, Some(_)) => {
                    if class.offers_by_endpoints() {
                        return false;
                    }
                }
            }
        }
        if class.mesh().is_some() {
            self.shared.layer = part.layer.clone();
        }
        true
    }

    /// Puts together what there is of all meshes.
    pub(super) fn combine(&mut self, class: &ProxyClass) {
        match class {
            ProxyClass::Sidecar(_) => {
                let only = self.meshes.values().next().map(|part| SharedConfig {
                    layer: part.layer.clone(),
                    findings: part.findings.clone(),
                    part: part.part.clone(),
                    secrets: Arc::default(),
                });
                self.shared = only.unwrap_or_default();
            }
            ProxyClass::Zone(_) => self.combine_meshes(),
        }
    }

    fn combine_meshes(&mut self) {
        let mut all = Layer::default();
        for part in self.meshes.values() {
            for kind in Type::ALL {
                part.layer.of(kind).for_each(|resource| all.insert(kind, resource.clone()));
            }
        }
        Arc::make_mut(&mut self.shared.layer).become_like(&all);
        let chains: Vec<&FilterChain> = self
            .meshes
            .values()
            .flat_map(|part| match &part.part {
                ClassPart::FilterChains(chains) => &chains[..],
                ClassPart::Documents(_) => &[],
            })
            .collect();
        self.shared.part = ClassPart::FilterChains(plan::merged(chains.into_iter()).into());
        let secrets = self.meshes.iter().filter_map(|(mesh, part)| {
            Some(MeshSecrets { mesh: mesh.clone(), names: part.secrets.clone()? })
        });
        self.shared.secrets = secrets.collect();
        self.shared.findings = self.meshes.values().flat_map(|part| part.findings.iter().cloned()).collect();
    }
}
