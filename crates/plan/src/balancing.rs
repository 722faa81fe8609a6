//! Which endpoint of a destination is called next: MeshLoadBalancingStrategy.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    kinds::mesh_load_balancing_strategy::{Conf, HashPolicy, LoadBalancer, MeshLoadBalancingStrategy},
    naming::Kri,
};
use topology::DestinationId;

use crate::{Effective, Locality, effective::Found};

/// How the endpoints of everything the proxy calls are picked.
pub(crate) struct Balancing<'a> {
    effective: &'a Effective<'a>,
}

impl<'a> Balancing<'a> {
    pub fn of(effective: &'a Effective<'a>) -> Balancing<'a> {
        Balancing { effective }
    }

    /// By which algorithm; `None` where no policy says so. What is hashed is said with the traffic.
    pub fn algorithm(&self, destination: &DestinationId) -> Option<Arc<LoadBalancer>> {
        self.conf(destination)?.load_balancer.as_ref().map(|balancer| Arc::new(balancer.without_hashing()))
    }

    /// What is hashed of traffic to a destination.
    pub fn hashed(&self, destination: &DestinationId) -> Vec<HashPolicy> {
        self.conf(destination).map(|conf| conf.hashed().to_vec()).unwrap_or_default()
    }

    /// What is hashed of requests that take a route to a destination.
    pub fn route(&self, route: &Kri, destination: &Kri) -> Vec<HashPolicy> {
        let found = self.effective.conf_of_route::<MeshLoadBalancingStrategy>(route, destination);
        conf(found).map(|conf| conf.hashed().to_vec()).unwrap_or_default()
    }

    /// Which endpoints are preferred; `None` where what the mesh says is all.
    pub fn locality(
        &self,
        destination: &DestinationId,
        zone: &Arc<str>,
        client: &BTreeMap<String, String>,
    ) -> Option<Arc<Locality>> {
        let conf = self.conf(destination)?;
        let locality = Locality::of(conf.locality_awareness.as_ref(), zone, client);
        // Services of several zones are called in the client's zone first anyway.
        let usual = matches!(locality, Locality::OwnZoneFirst { .. })
            && matches!(destination, DestinationId::Port(_));
        (!usual).then(|| Arc::new(locality))
    }

    fn conf(&self, destination: &DestinationId) -> Option<Arc<Conf>> {
        conf(self.effective.conf::<MeshLoadBalancingStrategy>(destination))
    }
}

/// Confs were typed before they were merged, so one always reads back.
fn conf(found: Result<Option<Found<Conf>>, String>) -> Option<Arc<Conf>> {
    found.ok().flatten().map(|found| found.conf)
}
