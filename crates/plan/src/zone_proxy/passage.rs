//! What zone proxies do for one mesh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use policy::{Policy, select::is_for_every_sidecar};
use resources::{
    Kind,
    kinds::{mesh_circuit_breaker, mesh_load_balancing_strategy::LoadBalancer},
    labels,
    naming::{sni, system},
    policy::Side,
};
use topology::{
    Affected, ClientTls, Destination, DestinationId, Endpoint, Endpoints, MeshSnapshot, PolicyChange,
    Protocol,
};

use super::{
    lanes::{Lane, LaneEnd},
    policies::{ATTEMPTS, AtEgress},
};
use crate::{
    Code, ConnectionTimeouts, External, HealthChecks, Locality, Names, Problem, ProxyKind, SecretNames,
    Security, Timeouts, external,
};

/// Zone proxies that do the same for every mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneClass {
    pub kind: ProxyKind,
    pub unified_naming: bool,
    pub ipv6: bool,
    pub system_ca_path: Option<Arc<str>>,
}

/// What a zone proxy does for one mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passage {
    pub lanes: Vec<Lane>,
    pub backends: Vec<ZoneBackend>,
    /// What it needs to act in the mesh; `None` where it only passes on.
    pub secrets: Option<SecretNames>,
    pub problems: Vec<Problem>,
}

/// Where a lane leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneBackend {
    pub destination: DestinationId,
    /// Also the name of its endpoints.
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub protocol: Protocol,
    pub served: ZoneServer,
    pub endpoints: Arc<Endpoints>,
    pub ipv6: bool,
    pub timeouts: ConnectionTimeouts,
    /// When it gets no more.
    pub breaker: Option<Arc<mesh_circuit_breaker::Conf>>,
    /// Which endpoints are asked how they are.
    pub health: Option<HealthChecks>,
    /// By which algorithm an endpoint is picked.
    pub balancer: Option<Arc<LoadBalancer>>,
    /// Which zones are preferred, if a policy says so.
    pub locality: Option<Arc<Locality>>,
}

/// Who is behind a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ZoneServer {
    /// A proxy of the mesh, which gets what was sent as it was sent.
    Proxy,
    External(External),
}

/// What a change of a mesh means to zone proxies of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZoneImpact {
    Nothing,
    /// Only who serves these destinations is different.
    Endpoints(BTreeSet<DestinationId>),
    Everything,
}

impl ZoneClass {
    /// What proxies of the class do for a mesh.
    pub fn passage(&self, mesh: &MeshSnapshot) -> Passage {
        let mut passage = Passage::default();
        // Without certificates nothing crosses zones.
        if mesh.mtls.is_none() && !mesh.identities.any_ready() {
            return passage;
        }
        match self.kind {
            ProxyKind::Sidecar => {}
            ProxyKind::Ingress => {
                mesh.destinations.values().for_each(|to| self.enter(mesh, to, &mut passage));
            }
            ProxyKind::Egress => {
                let policies = &AtEgress::of(mesh);
                mesh.destinations.values().for_each(|to| self.leave(mesh, policies, to, &mut passage));
            }
        }
        passage
    }

    /// Who serves a destination behind the proxies of the class; `None` for what they do not lead to.
    pub fn endpoints(&self, mesh: &MeshSnapshot, destination: &Destination) -> Option<Arc<Endpoints>> {
        let known = mesh.endpoints.get(&destination.id)?;
        let DestinationId::Port(kri) = &destination.id else {
            return self.tagged(mesh, destination, known);
        };
        match (self.kind, kri.kind()?) {
            (ProxyKind::Ingress, Kind::MeshService) => is_own(destination).then(|| known.clone()),
            (ProxyKind::Ingress, Kind::MeshMultiZoneService) => Some(Arc::new(own_of(known))),
            (ProxyKind::Egress, Kind::MeshService) => {
                let zone = destination.remote.as_deref()?;
                Some(Arc::new(Endpoints(entrances(mesh, zone).collect())))
            }
            (ProxyKind::Egress, Kind::MeshMultiZoneService) => {
                let other = known.0.iter().filter(|endpoint| endpoint.instance.is_none());
                let zones: BTreeSet<&str> = other.filter_map(Endpoint::zone).collect();
                let all = zones.into_iter().flat_map(|zone| entrances(mesh, zone)).collect();
                Some(Arc::new(Endpoints(all)))
            }
            (ProxyKind::Egress, Kind::MeshExternalService) => {
                let behind =
                    destination.external.as_ref().and_then(|external| external.behind_egress.clone());
                Some(behind.unwrap_or_else(|| known.clone()))
            }
            _ => None,
        }
    }

    /// Who serves what is chosen by tags. Through an egress it is everything of other zones that carries them.
    fn tagged(
        &self,
        mesh: &MeshSnapshot,
        destination: &Destination,
        known: &Endpoints,
    ) -> Option<Arc<Endpoints>> {
        if !destination.exists {
            return None;
        }
        match self.kind {
            ProxyKind::Ingress => Some(own_of(known)).filter(|own| !own.0.is_empty()).map(Arc::new),
            // Clients that come without TLS have no server name by which an egress could tell what they call.
            ProxyKind::Egress if destination.tls == ClientTls::Off => None,
            ProxyKind::Egress => {
                let DestinationId::Tags(wanted) = &destination.id else { return None };
                let other = mesh.zones.tagged(&mesh.name, wanted, false);
                let all = other.into_iter().map(|(endpoint, _)| Endpoint { priority: 0, ..endpoint });
                Some(Endpoints(all.collect())).filter(|all| !all.0.is_empty()).map(Arc::new)
            }
            ProxyKind::Sidecar => None,
        }
    }

    /// What a change means to proxies of the class that serve `zone`.
    pub fn impact(&self, zone: &str, affected: &Affected) -> ZoneImpact {
        let egress = self.kind == ProxyKind::Egress;
        let led_to = |id: &&DestinationId| match id {
            // What is known to be of another zone is not entered here.
            DestinationId::Port(kri) => egress || kri.zone.is_empty() || *kri.zone == *zone,
            DestinationId::Tags(_) => true,
        };
        let elsewhere = egress && !affected.zones.is_empty();
        let obeyed =
            |policy: &Arc<Policy>| policy.view.traits.is_about(Side::Egress) && is_for_every_sidecar(policy);
        let ruled = egress && affected.policies.iter().flat_map(PolicyChange::versions).any(obeyed);
        if affected.whole_mesh || elsewhere || ruled || affected.destinations.iter().any(|id| led_to(&id)) {
            return ZoneImpact::Everything;
        }
        match affected.endpoints.iter().filter(led_to).cloned().collect::<BTreeSet<_>>() {
            none if none.is_empty() => ZoneImpact::Nothing,
            some => ZoneImpact::Endpoints(some),
        }
    }

    /// A service of this zone, entered from others.
    fn enter(&self, mesh: &MeshSnapshot, destination: &Destination, passage: &mut Passage) {
        let Some(endpoints) = self.endpoints(mesh, destination) else { return };
        let backend = self.pass(&mesh.name, destination, endpoints, None, passage);
        passage.backends.push(backend);
    }

    /// Something outside of this zone.
    fn leave(
        &self,
        mesh: &MeshSnapshot,
        policies: &AtEgress<'_>,
        destination: &Destination,
        passage: &mut Passage,
    ) {
        let Some(endpoints) = self.endpoints(mesh, destination) else { return };
        if destination.external.is_none() {
            let backend = self.pass(&mesh.name, destination, endpoints, Some(ATTEMPTS), passage);
            return passage.backends.push(policies.elsewhere(backend));
        }
        // An egress acts in the mesh by a certificate of the mesh's own authority.
        if mesh.mtls.is_none() {
            return;
        }
        let names = Names::chosen(self.unified_naming);
        let Some(mut security) = Security::of(mesh, names, None, || None) else { return };
        // It acts in several meshes, which do not trust the same authorities.
        if system::is_trust_bundle(&security.secrets.authorities) {
            security.secrets.authorities = system::trust_bundle(&mesh.name);
        }
        let (cluster, cluster_stats) = names.backend(destination);
        let served = match external::behind_egress(destination, &endpoints, self.system_ca_path.as_deref()) {
            Ok(served) => served,
            Err(reason) => {
                let service = match &destination.id {
                    DestinationId::Port(kri) => Some(kri.without_section()),
                    DestinationId::Tags(_) => None,
                };
                let text = format!("{cluster}: {reason}");
                passage.problems.push(Problem::new(Code::UnusableDestination, text).or_about(service));
                return;
            }
        };
        passage.secrets = Some(security.secrets.clone());
        passage.lanes.push(Lane {
            server_names: destination.server_names.to_vec(),
            stats: cluster_stats.as_ref().unwrap_or(&cluster).clone(),
            counted: true,
            end: Some(Arc::new(LaneEnd {
                mesh: mesh.name.clone(),
                name: cluster.clone(),
                protocol: destination.protocol,
                security,
                permissions: policies.permissions(destination),
                hashed: policies.hashed(&destination.id),
                ipv6: self.ipv6,
            })),
            cluster: cluster.clone(),
            attempts: None,
        });
        let served = ZoneServer::External(served);
        let backend = self.backend(destination, (cluster, cluster_stats), served, endpoints);
        passage.backends.push(policies.outside(backend));
    }

    /// Passes connections for a destination on, to the backend that is returned.
    fn pass(
        &self,
        mesh: &str,
        destination: &Destination,
        endpoints: Arc<Endpoints>,
        attempts: Option<u32>,
        passage: &mut Passage,
    ) -> ZoneBackend {
        let names = Names::chosen(self.unified_naming);
        let (cluster, cluster_stats) = names.zone_backend(destination, mesh);
        let server_names = match &destination.id {
            DestinationId::Port(_) => destination.server_names.to_vec(),
            DestinationId::Tags(tags) => {
                let mut tags = BTreeMap::clone(tags);
                tags.insert("mesh".to_owned(), mesh.to_owned());
                vec![sni::from_tags(&tags)]
            }
        };
        passage.lanes.push(Lane {
            server_names,
            stats: cluster_stats.as_ref().unwrap_or(&cluster).clone(),
            cluster: cluster.clone(),
            attempts,
            counted: matches!(destination.id, DestinationId::Port(_)),
            end: None,
        });
        self.backend(destination, (cluster, cluster_stats), ZoneServer::Proxy, endpoints)
    }

    fn backend(
        &self,
        destination: &Destination,
        (cluster, cluster_stats): (String, Option<String>),
        served: ZoneServer,
        endpoints: Arc<Endpoints>,
    ) -> ZoneBackend {
        ZoneBackend {
            destination: destination.id.clone(),
            cluster,
            cluster_stats,
            protocol: destination.protocol,
            served,
            endpoints,
            ipv6: self.ipv6,
            timeouts: Timeouts::default().connection,
            breaker: None,
            health: None,
            balancer: None,
            locality: None,
        }
    }
}

/// Whether a MeshService belongs to this zone.
fn is_own(destination: &Destination) -> bool {
    let origin = destination.labels.get(labels::ORIGIN).map(String::as_str);
    origin.is_none_or(|origin| origin == labels::ORIGIN_ZONE)
}

/// Those of this zone.
fn own_of(all: &Endpoints) -> Endpoints {
    Endpoints(all.0.iter().filter(|endpoint| endpoint.instance.is_some()).cloned().collect())
}

/// Where a zone is entered, as endpoints of an egress: all of them are as near as each other.
fn entrances(mesh: &MeshSnapshot, zone: &str) -> impl Iterator<Item = Endpoint> {
    mesh.zones.toward(zone, false).into_iter().map(|endpoint| Endpoint { priority: 0, ..endpoint })
}
