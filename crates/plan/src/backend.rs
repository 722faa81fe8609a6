//! Backends: one per destination, however many outbounds and routes lead there.

use std::{collections::BTreeMap, sync::Arc};

use policy::NameScope;
use resources::{
    Kind, Labels,
    kinds::{
        mesh_circuit_breaker,
        mesh_load_balancing_strategy::LoadBalancer,
        target_ref::{BackendRef, TargetRefKind as K},
    },
    naming::Kri,
};
use topology::{ClientTls, Destination, DestinationId, Endpoints, Protocol};

use crate::{
    ConnectionTimeouts, Context, Dependency, External, HealthChecks, Locality, breakers, effective,
    external::{self, ExternalTlsError},
    health_checks,
};

/// A destination that the proxy sends traffic to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DestinationBackend {
    pub destination: DestinationId,
    /// Also the name of its endpoints.
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub protocol: Protocol,
    pub tls: ClientTls,
    pub external: Option<External>,
    pub endpoints: Arc<Endpoints>,
    pub ipv6: bool,
    pub timeouts: ConnectionTimeouts,
    /// Limits and failures at which the destination gets no more traffic.
    pub breaker: Option<Arc<mesh_circuit_breaker::Conf>>,
    /// Health checks of its endpoints.
    pub health: Option<HealthChecks>,
    /// Algorithm that picks an endpoint.
    pub balancer: Option<Arc<LoadBalancer>>,
    /// Preference among endpoints, if a policy sets one.
    pub locality: Option<Arc<Locality>>,
}

/// Reason that a route's reference leads to no backend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendReferenceError {
    #[error("backends of kind {0} are not supported")]
    Kind(K),
    #[error("{}", missing(.0))]
    Missing(Box<BackendRef>),
    #[error(transparent)]
    Destination(#[from] ExternalTlsError),
}

/// The backends found so far.
pub(crate) struct Backends<'a> {
    context: &'a Context<'a>,
    /// With the reason where a destination cannot be offered.
    found: BTreeMap<DestinationId, Result<DestinationBackend, ExternalTlsError>>,
}

impl<'a> Backends<'a> {
    pub fn none(context: &'a Context<'a>) -> Backends<'a> {
        Backends { context, found: BTreeMap::new() }
    }

    pub fn all(self) -> Vec<DestinationBackend> {
        self.found.into_values().filter_map(Result::ok).collect()
    }

    /// The backend of a destination; the error is the reason why it cannot be offered.
    pub fn lead_to(&mut self, destination: &Destination) -> Result<&DestinationBackend, ExternalTlsError> {
        let context = self.context;
        let found = self.found.entry(destination.id.clone()).or_insert_with(|| {
            context.reads.note(Dependency::Destination(destination.id.clone()));
            plan(context, destination)
        });
        found.as_ref().map_err(Clone::clone)
    }

    /// The backend that a route's reference means. `rule` is the rule it stands in.
    pub fn referred(
        &mut self,
        rule: &Kri,
        reference: &BackendRef,
    ) -> Result<&DestinationBackend, BackendReferenceError> {
        let destination = self.resolve(rule, reference)?;
        Ok(self.lead_to(&destination)?)
    }

    fn resolve(&self, rule: &Kri, reference: &BackendRef) -> Result<Arc<Destination>, BackendReferenceError> {
        let found = match reference.kind {
            // Where both are there, the service is meant: a part of it is known by tags only.
            K::MeshService => {
                self.port(Kind::MeshService, rule, reference).or_else(|| self.tagged(rule, reference))
            }
            K::MeshServiceSubset => self.tagged(rule, reference),
            K::MeshExternalService => self.port(Kind::MeshExternalService, rule, reference),
            K::MeshMultiZoneService => self.port(Kind::MeshMultiZoneService, rule, reference),
            ref other => return Err(BackendReferenceError::Kind(other.clone())),
        };
        found.cloned().ok_or_else(|| BackendReferenceError::Missing(Box::new(reference.clone())))
    }

    /// The port of a resource that is meant.
    fn port(&self, kind: Kind, rule: &Kri, reference: &BackendRef) -> Option<&'a Arc<Destination>> {
        let Context { snapshot, reads, .. } = self.context;
        let section = section(reference);
        if let Some(labels) = labels(reference) {
            reads.note(Dependency::Labelled(kind, labels.clone()));
            return snapshot.labelled(kind, labels).find_map(|ports| {
                let ports = ports.iter().filter_map(|port| snapshot.destinations.get(port));
                wanted(ports.collect(), section, reference.port)
            });
        }
        let service = NameScope::of(rule).kri_of(kind, &reference.target_ref())?;
        reads.note(Dependency::Resource(service.clone()));
        let own: Vec<&Arc<Destination>> = effective::ports(snapshot, &service).collect();
        if !own.is_empty() || rule.zone.is_empty() {
            return wanted(own, section, reference.port);
        }
        // A rule of a zone may mean a service that was written on the global control plane.
        reads.note_on_global(kind, &service.name);
        let ports = snapshot.services.get(snapshot.labelled.of_global(kind, &service.name)?)?;
        let ports = ports.iter().filter_map(|port| snapshot.destinations.get(port));
        wanted(ports.collect(), section, reference.port)
    }

    /// The inbounds that are meant by their tags, if any Dataplane has such. A rule of another zone means none: tags are
    /// the same in every zone.
    fn tagged(&self, rule: &Kri, reference: &BackendRef) -> Option<&'a Arc<Destination>> {
        if self.context.snapshot.zones.is_other(&rule.zone) {
            return None;
        }
        let id = DestinationId::Tags(Arc::new(reference.service_tags()?));
        self.context.reads.note(Dependency::Destination(id.clone()));
        self.context.snapshot.destinations.get(&id).filter(|destination| destination.exists)
    }
}

fn section(reference: &BackendRef) -> Option<&str> {
    reference.section_name.as_deref().filter(|section| !section.is_empty())
}

fn labels(reference: &BackendRef) -> Option<&Labels> {
    reference.labels.as_ref().filter(|labels| !labels.is_empty())
}

/// Says that there is nothing that a reference means.
fn missing(reference: &BackendRef) -> String {
    let tags = reference.service_tags();
    if let (K::MeshServiceSubset, Some(tags)) = (&reference.kind, &tags) {
        return format!("there is no Dataplane with an inbound with tags {tags:?} in the mesh");
    }
    let port = match (section(reference), reference.port) {
        (Some(section), _) => format!("port {section:?}"),
        (None, Some(number)) => format!("port {number}"),
        (None, None) => "exactly one port (name one with port)".to_owned(),
    };
    let who = match (&reference.name, labels(reference)) {
        (_, Some(labels)) => format!("labels {labels:?}"),
        (name, None) => format!("name {:?}", name.as_deref().unwrap_or_default()),
    };
    let or_tags = tags.map(|tags| format!(", and no Dataplane with an inbound with tags {tags:?}"));
    format!("there is no {} with {who} and {port} in the mesh{}", reference.kind, or_tags.unwrap_or_default())
}

/// The port of a service that a reference means; without any it is the only one.
fn wanted<'d>(
    ports: Vec<&'d Arc<Destination>>,
    section: Option<&str>,
    port: Option<u32>,
) -> Option<&'d Arc<Destination>> {
    match (section, port) {
        (Some(section), _) => ports.into_iter().find(|port| section_of(port) == section),
        (None, Some(number)) => ports.into_iter().find(|port| port.port == number),
        (None, None) => ports.first().copied().filter(|_| ports.len() == 1),
    }
}

fn section_of(destination: &Destination) -> &str {
    match &destination.id {
        DestinationId::Port(kri) => &kri.section,
        DestinationId::Tags(_) => "",
    }
}

fn plan(context: &Context<'_>, destination: &Destination) -> Result<DestinationBackend, ExternalTlsError> {
    let endpoints = context.snapshot.endpoints.get(&destination.id).cloned().unwrap_or_default();
    let external = external::plan(destination, &endpoints, context.class.system_ca_path.as_deref())?;
    let (cluster, cluster_stats) = context.names.backend(destination);
    Ok(DestinationBackend {
        destination: destination.id.clone(),
        cluster,
        cluster_stats,
        protocol: destination.protocol,
        tls: destination.tls.clone(),
        external,
        endpoints,
        ipv6: context.class.ipv6,
        timeouts: context.timeouts.destination(&destination.id).connection,
        breaker: breakers::of_called(context.effective, destination),
        health: health_checks::of_destination(context.effective, &destination.id, destination.protocol),
        balancer: context.balancing.algorithm(&destination.id),
        locality: context.balancing.locality(
            &destination.id,
            &context.snapshot.zone,
            &context.class.affinities,
        ),
    })
}
