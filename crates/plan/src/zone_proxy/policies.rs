//! Policies at an egress. It stands for every client of the mesh, so that only policies for all sidecars
//! count, and of these only those kinds whose row says so.

use std::{collections::BTreeMap, sync::Arc};

use policy::Permissions;
use resources::{
    Kind,
    kinds::{
        mesh::Mesh,
        mesh_circuit_breaker::{Conf, ConsecutiveFailures, Detectors, OutlierDetection},
        mesh_load_balancing_strategy::HashPolicy,
    },
};
use topology::{Destination, DestinationId, MeshSnapshot};

use super::ZoneBackend;
use crate::{Applying, Effective, Locality, balancing::Balancing, breakers, health_checks};

/// Attempts to connect to another zone: where one ingress does not answer, another one may.
pub(super) const ATTEMPTS: u32 = 3;
/// After so many failures in a row to connect to an ingress others are preferred for a while.
const FAILURES: u32 = 3;
/// Some are left, however many fail: a zone that does not answer may be the only one.
const MOST_LEFT_OUT: u32 = 50;

/// The policies that an egress obeys in a mesh.
pub(super) struct AtEgress<'a> {
    mesh: &'a MeshSnapshot,
    effective: Effective<'a>,
}

impl<'a> AtEgress<'a> {
    pub(super) fn of(mesh: &'a MeshSnapshot) -> AtEgress<'a> {
        AtEgress { mesh, effective: Effective::for_class(mesh, Applying::at_egress(mesh)) }
    }

    /// Returns the permissions to leave the mesh for a destination outside; `None` allows everyone.
    pub(super) fn permissions(&self, destination: &Destination) -> Option<Permissions> {
        let forbidden = self.mesh.mesh.spec.get::<Mesh>().is_some_and(Mesh::forbids_external_services);
        self.effective.permissions_behind(&destination.server_names, forbidden)
    }

    /// Returns the hash policies that choose the endpoint of a request or a connection outside of the mesh.
    pub(super) fn hashed(&self, destination: &DestinationId) -> Vec<HashPolicy> {
        Balancing::of(&self.effective).hashed(destination)
    }

    /// A backend outside of the mesh, as policies want it to be called.
    pub(super) fn outside(&self, backend: ZoneBackend) -> ZoneBackend {
        let id = &backend.destination;
        ZoneBackend {
            breaker: breakers::of_destination(&self.effective, id),
            health: health_checks::of_destination(&self.effective, id, backend.protocol),
            balancer: Balancing::of(&self.effective).algorithm(id),
            ..backend
        }
    }

    /// A backend in other zones. Their order is for the egress to keep, because its clients see nothing but the egress.
    pub(super) fn elsewhere(&self, backend: ZoneBackend) -> ZoneBackend {
        ZoneBackend {
            breaker: Some(Arc::new(connecting())),
            locality: self.locality(&backend.destination),
            ..backend
        }
    }

    /// Returns the preference among zones, for destinations that several of them may serve.
    fn locality(&self, destination: &DestinationId) -> Option<Arc<Locality>> {
        if let DestinationId::Port(kri) = destination
            && kri.kind() != Some(Kind::MeshMultiZoneService)
        {
            return None;
        }
        Balancing::of(&self.effective).locality(destination, &self.mesh.zone, &BTreeMap::new())
    }
}

/// Leaves out ingresses that cannot be connected to. An egress does not judge the traffic on a connection.
fn connecting() -> Conf {
    let detectors = Detectors {
        local_origin_failures: Some(ConsecutiveFailures { consecutive: Some(FAILURES) }),
        ..Detectors::default()
    };
    let detection = OutlierDetection {
        split_external_and_local_errors: Some(true),
        max_ejection_percent: Some(MOST_LEFT_OUT),
        detectors: Some(detectors),
        ..OutlierDetection::default()
    };
    Conf { outlier_detection: Some(detection), ..Conf::default() }
}
