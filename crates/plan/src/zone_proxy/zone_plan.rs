//! Plans of zone proxies for one mesh.

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
    policy::ProxySide,
};
use topology::{
    Affected, ClientTls, Destination, DestinationId, Endpoint, Endpoints, MeshSnapshot, PolicyChange,
    Protocol,
};

use super::{
    filter_chains::{FilterChain, TlsTermination},
    policies::{ATTEMPTS, AtEgress},
};
use crate::{
    AuthoritiesSecret, Code, ConnectionTimeouts, External, Finding, HealthChecks, Impact, Locality,
    NamingScheme, SecretNames, Security, Timeouts, ZoneProxyKind, external,
};

/// Zone proxies that do the same for every mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneClass {
    pub kind: ZoneProxyKind,
    pub unified_naming: bool,
    pub ipv6: bool,
    pub system_ca_path: Option<Arc<str>>,
}

/// Plan of a zone proxy for one mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZonePlan {
    pub filter_chains: Vec<FilterChain>,
    pub backends: Vec<ZoneBackend>,
    /// Secrets that it needs to act in the mesh; `None` if it only forwards.
    pub secrets: Option<SecretNames>,
    pub findings: Vec<Finding>,
}

/// Target of a chain.
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
    /// Limits and failures at which it gets no more traffic.
    pub breaker: Option<Arc<mesh_circuit_breaker::Conf>>,
    /// Health checks of its endpoints.
    pub health: Option<HealthChecks>,
    /// Algorithm that picks an endpoint.
    pub balancer: Option<Arc<LoadBalancer>>,
    /// Preference among zones, if a policy sets one.
    pub locality: Option<Arc<Locality>>,
}

/// Server behind a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ZoneServer {
    /// A proxy of the mesh, which gets what was sent as it was sent.
    Proxy,
    External(External),
}

impl ZoneClass {
    /// Plans the class's proxies for a mesh.
    pub fn plan(&self, mesh: &MeshSnapshot) -> ZonePlan {
        let mut zone_plan = ZonePlan::default();
        // Without certificates nothing crosses zones.
        if mesh.mtls.is_none() && !mesh.identities.any_ready() {
            return zone_plan;
        }
        match self.kind {
            ZoneProxyKind::Ingress => {
                mesh.destinations.values().for_each(|to| self.enter(mesh, to, &mut zone_plan));
            }
            ZoneProxyKind::Egress => {
                let policies = &AtEgress::of(mesh);
                mesh.destinations.values().for_each(|to| self.leave(mesh, policies, to, &mut zone_plan));
            }
        }
        zone_plan
    }

    /// Returns the endpoints of a destination behind the proxies of the class; `None` if they do not lead to
    /// it.
    pub fn endpoints(&self, mesh: &MeshSnapshot, destination: &Destination) -> Option<Arc<Endpoints>> {
        let known = mesh.endpoints.get(&destination.id)?;
        let DestinationId::Port(kri) = &destination.id else {
            return self.tagged(mesh, destination, known);
        };
        match (self.kind, kri.kind()?) {
            (ZoneProxyKind::Ingress, Kind::MeshService) => is_own(destination).then(|| known.clone()),
            (ZoneProxyKind::Ingress, Kind::MeshMultiZoneService) => Some(Arc::new(own_of(known))),
            (ZoneProxyKind::Egress, Kind::MeshService) => {
                let zone = destination.remote.as_deref()?;
                Some(Arc::new(Endpoints(entrances(mesh, zone).collect())))
            }
            (ZoneProxyKind::Egress, Kind::MeshMultiZoneService) => {
                let other = known.0.iter().filter(|endpoint| endpoint.instance.is_none());
                let zones: BTreeSet<&str> = other.filter_map(Endpoint::zone).collect();
                let all = zones.into_iter().flat_map(|zone| entrances(mesh, zone)).collect();
                Some(Arc::new(Endpoints(all)))
            }
            (ZoneProxyKind::Egress, Kind::MeshExternalService) => {
                let behind =
                    destination.external.as_ref().and_then(|external| external.behind_egress.clone());
                Some(behind.unwrap_or_else(|| known.clone()))
            }
            _ => None,
        }
    }

    /// Returns the endpoints that tags select. Through an egress these are all endpoints of other zones with
    /// the tags.
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
            ZoneProxyKind::Ingress => Some(own_of(known)).filter(|own| !own.0.is_empty()).map(Arc::new),
            // Clients that come without TLS have no server name by which an egress could tell what they call.
            ZoneProxyKind::Egress if destination.tls == ClientTls::Off => None,
            ZoneProxyKind::Egress => {
                let DestinationId::Tags(wanted) = &destination.id else { return None };
                let other = mesh.zones.tagged(&mesh.name, wanted, false);
                let all = other.into_iter().map(|(endpoint, _)| Endpoint { priority: 0, ..endpoint });
                Some(Endpoints(all.collect())).filter(|all| !all.0.is_empty()).map(Arc::new)
            }
        }
    }

    /// Returns the effect of a change on proxies of the class that serve `zone`.
    pub fn impact(&self, zone: &str, affected: &Affected) -> Impact {
        let Affected {
            whole_mesh,
            policies,
            destinations,
            endpoints,
            zones,
            // A destination that these change is among the destinations or endpoints, too.
            proxies: _,
            services: _,
            globals: _,
            // Hostnames are resolved by clients.
            virtual_hosts: _,
            // Permissions reach an egress as policies, and an ingress reads none.
            access_rules: _,
            reachability: _,
            reachability_by_default: _,
        } = affected;
        let egress = self.kind == ZoneProxyKind::Egress;
        let led_to = |id: &&DestinationId| match id {
            // What is known to be of another zone is not entered here.
            DestinationId::Port(kri) => egress || kri.zone.is_empty() || *kri.zone == *zone,
            DestinationId::Tags(_) => true,
        };
        let elsewhere = egress && !zones.is_empty();
        let obeyed = |policy: &Arc<Policy>| {
            policy.view.traits.is_about(ProxySide::Egress) && is_for_every_sidecar(policy)
        };
        let ruled = egress && policies.iter().flat_map(PolicyChange::versions).any(obeyed);
        if *whole_mesh || elsewhere || ruled || destinations.iter().any(|id| led_to(&id)) {
            return Impact::Everything;
        }
        match endpoints.iter().filter(led_to).cloned().collect::<BTreeSet<_>>() {
            none if none.is_empty() => Impact::Nothing,
            some => Impact::Endpoints(some),
        }
    }

    /// A service of this zone, entered from others.
    fn enter(&self, mesh: &MeshSnapshot, destination: &Destination, zone_plan: &mut ZonePlan) {
        let Some(endpoints) = self.endpoints(mesh, destination) else { return };
        let backend = self.pass(&mesh.name, destination, endpoints, None, zone_plan);
        zone_plan.backends.push(backend);
    }

    /// Something outside of this zone.
    fn leave(
        &self,
        mesh: &MeshSnapshot,
        policies: &AtEgress<'_>,
        destination: &Destination,
        zone_plan: &mut ZonePlan,
    ) {
        let Some(endpoints) = self.endpoints(mesh, destination) else { return };
        if destination.external.is_none() {
            let backend = self.pass(&mesh.name, destination, endpoints, Some(ATTEMPTS), zone_plan);
            return zone_plan.backends.push(policies.elsewhere(backend));
        }
        // An egress acts in the mesh by a certificate of the mesh's own authority.
        if mesh.mtls.is_none() {
            return;
        }
        let names = NamingScheme::chosen(self.unified_naming);
        let Some(mut security) = Security::of(mesh, names, None, || None) else { return };
        // It acts in several meshes, which do not trust the same authorities.
        if let AuthoritiesSecret::TrustBundle(name) = &mut security.secrets.authorities {
            *name = system::trust_bundle(&mesh.name);
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
                zone_plan.findings.push(Finding::new(Code::UnusableDestination, text).or_about(service));
                return;
            }
        };
        zone_plan.secrets = Some(security.secrets.clone());
        zone_plan.filter_chains.push(FilterChain {
            server_names: destination.server_names.to_vec(),
            stats: cluster_stats.as_ref().unwrap_or(&cluster).clone(),
            counted: true,
            tls: Some(Arc::new(TlsTermination {
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
        zone_plan.backends.push(policies.outside(backend));
    }

    /// Passes connections for a destination on, to the backend that is returned.
    fn pass(
        &self,
        mesh: &str,
        destination: &Destination,
        endpoints: Arc<Endpoints>,
        attempts: Option<u32>,
        zone_plan: &mut ZonePlan,
    ) -> ZoneBackend {
        let names = NamingScheme::chosen(self.unified_naming);
        let (cluster, cluster_stats) = names.zone_backend(destination, mesh);
        let server_names = match &destination.id {
            DestinationId::Port(_) => destination.server_names.to_vec(),
            DestinationId::Tags(tags) => {
                let mut tags = BTreeMap::clone(tags);
                tags.insert("mesh".to_owned(), mesh.to_owned());
                vec![sni::from_tags(&tags)]
            }
        };
        zone_plan.filter_chains.push(FilterChain {
            server_names,
            stats: cluster_stats.as_ref().unwrap_or(&cluster).clone(),
            cluster: cluster.clone(),
            attempts,
            counted: matches!(destination.id, DestinationId::Port(_)),
            tls: None,
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

/// The MeshService belongs to this zone.
fn is_own(destination: &Destination) -> bool {
    let origin = destination.labels.get(labels::ORIGIN).map(String::as_str);
    origin.is_none_or(|origin| origin == labels::ORIGIN_ZONE)
}

/// Those of this zone.
fn own_of(all: &Endpoints) -> Endpoints {
    Endpoints(all.0.iter().filter(|endpoint| endpoint.instance.is_some()).cloned().collect())
}

/// Returns the ingresses of a zone as endpoints of an egress: all of them are as near as each other.
fn entrances(mesh: &MeshSnapshot, zone: &str) -> impl Iterator<Item = Endpoint> {
    mesh.zones.toward(zone, false).into_iter().map(|endpoint| Endpoint { priority: 0, ..endpoint })
}
