//! Which endpoint of a destination is called next: MeshLoadBalancingStrategy.
//!
//! Preferences between zones (`localityAwareness`) have no effect yet.

use std::sync::Arc;

use policy::Policy;
use resources::{
    Kind,
    kinds::mesh_load_balancing_strategy::{Conf, HashPolicy, LoadBalancer, MeshLoadBalancingStrategy},
    naming::Kri,
};
use topology::DestinationId;

use crate::{Code, Effective, Problem, effective::Found};

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

    /// Policies that prefer zones or endpoints, which takes several zones.
    pub fn without_effect(&self) -> Vec<Problem> {
        let policies = self.effective.policies(Kind::MeshLoadBalancingStrategy).iter();
        let prefers = |entry: &policy::view::Entry| {
            let locality = entry.conf.value.get("localityAwareness");
            let disabled = locality.and_then(|locality| locality.get("disabled")?.as_bool());
            locality.is_some() && disabled != Some(true)
        };
        let prefer = policies.filter(|policy| policy.view.to.iter().any(prefers));
        let problem = |policy: &Arc<Policy>| {
            let kri = policy.view.kri.clone();
            let text = format!("{kri}: localityAwareness has no effect yet: there is one zone only");
            Problem::about(Code::NoEffect, kri, text)
        };
        prefer.map(problem).collect()
    }

    fn conf(&self, destination: &DestinationId) -> Option<Arc<Conf>> {
        conf(self.effective.conf::<MeshLoadBalancingStrategy>(destination))
    }
}

/// Confs were typed before they were merged, so one always reads back.
fn conf(found: Result<Option<Found<Conf>>, String>) -> Option<Arc<Conf>> {
    found.ok().flatten().map(|found| found.conf)
}
