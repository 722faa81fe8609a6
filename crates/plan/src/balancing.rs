//! Choice of the next endpoint of a destination: MeshLoadBalancingStrategy.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    kinds::mesh_load_balancing_strategy::{Conf, HashPolicy, LoadBalancer, MeshLoadBalancingStrategy},
    naming::Kri,
};
use topology::DestinationId;

use crate::{Effective, Locality, effective::EffectiveConf};

/// Picks endpoints for everything that the proxy calls.
pub(crate) struct Balancing<'a> {
    effective: &'a Effective<'a>,
}

impl<'a> Balancing<'a> {
    pub fn of(effective: &'a Effective<'a>) -> Balancing<'a> {
        Balancing { effective }
    }

    /// Returns the algorithm; `None` without a policy. The hash policies belong to the traffic.
    pub fn algorithm(&self, destination: &DestinationId) -> Option<Arc<LoadBalancer>> {
        self.conf(destination)?.load_balancer.as_ref().map(|balancer| Arc::new(balancer.without_hashing()))
    }

    /// Returns the parts of traffic to a destination that are hashed.
    pub fn hashed(&self, destination: &DestinationId) -> Vec<HashPolicy> {
        self.conf(destination).map(|conf| conf.hashed().to_vec()).unwrap_or_default()
    }

    /// Returns the parts of requests that are hashed, for requests that take a route to a destination.
    pub fn route(&self, route: &Kri, destination: &Kri) -> Vec<HashPolicy> {
        let found = self.effective.conf_of_route::<MeshLoadBalancingStrategy>(route, destination);
        conf(found).map(|conf| conf.hashed().to_vec()).unwrap_or_default()
    }

    /// Returns the preference among endpoints; `None` if only the settings of the mesh count.
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
fn conf(found: Result<Option<EffectiveConf<Conf>>, String>) -> Option<Arc<Conf>> {
    found.ok().flatten().map(|found| found.conf)
}
