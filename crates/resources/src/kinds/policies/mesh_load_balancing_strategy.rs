//! Distribution of requests over the endpoints of a destination.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    entry::{Entry, EntryDescription, InEntry},
    target_ref::{self, Allowed, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    policy::{MESH_LOAD_BALANCING_STRATEGY, Policy},
};

mod hashing;
mod locality;

pub use hashing::{
    Connection, Cookie, FilterState, HashFunction, HashPolicy, HashPolicyType, Header, LeastRequest,
    LoadBalancer, LoadBalancerType, Maglev, QueryParameter, Random, RingHash, RoundRobin,
};
pub use locality::{
    AffinityTag, CrossZone, Failover, FailoverThreshold, FromZone, LocalZone, LocalityAwareness, ToZone,
    ToZoneType,
};

const TO_OF_GATEWAY: &[K] = &[K::Mesh, K::MeshService, K::MeshMultiZoneService];
const ONLY_HASH_POLICIES: &str =
    "field is not allowed when targetRef.kind is MeshHTTPRoute, only hashPolicies is supported";

/// The load balancing of traffic that the selected proxies send.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshLoadBalancingStrategy {
    /// The proxies whose outgoing traffic is balanced; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The settings, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
}

/// Preferred zones and endpoints, the algorithm, and its hash input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Preferred zones and endpoints; the zone of the client by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality_awareness: Option<LocalityAwareness>,
    /// The algorithm that picks an endpoint; round robin by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    /// Parts of a request that `RingHash` and `Maglev` hash to pick an endpoint; without any they pick a
    /// random one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "ToEntry", about: "The load balancing of traffic to one destination." };
}

impl Conf {
    /// Returns the hash policies from any of their places.
    pub fn hashed(&self) -> &[HashPolicy] {
        let nested = || self.load_balancer.as_ref().and_then(LoadBalancer::hash_policies);
        self.hash_policies.as_deref().or_else(nested).unwrap_or_default()
    }

    fn validate(&self, to: &TargetRef, path: &Path, found: &mut Violations) {
        if to.kind == K::MeshHttpRoute {
            hashing::validate_policies(self.hash_policies.as_deref(), &path.field("hashPolicies"), found);
            found.require(self.load_balancer.is_none(), path.field("loadBalancer"), ONLY_HASH_POLICIES);
            found.require(
                self.locality_awareness.is_none(),
                path.field("localityAwareness"),
                ONLY_HASH_POLICIES,
            );
            return;
        }
        if let Some(balancer) = &self.load_balancer {
            balancer.validate(&path.field("loadBalancer"), found);
        }
        if let Some(locality) = &self.locality_awareness {
            locality.validate(to, &path.field("localityAwareness"), found);
        }
        hashing::validate_policies(self.hash_policies.as_deref(), &path.field("hashPolicies"), found);
        if self.hash_policies.is_some() {
            for algorithm in self.nested_hash_policies() {
                let nested = path.field("loadBalancer").field(algorithm).field("hashPolicies");
                found.add(nested, "hashPolicies already specified in the root level");
            }
        }
    }

    /// The algorithms that carry hash policies of their own, as was usual before they moved up.
    fn nested_hash_policies(&self) -> Vec<&'static str> {
        let Some(balancer) = &self.load_balancer else { return Vec::new() };
        let ring = balancer.ring_hash.as_ref().and_then(|ring| ring.hash_policies.as_ref());
        let maglev = balancer.maglev.as_ref().and_then(|maglev| maglev.hash_policies.as_ref());
        [("ringHash", ring), ("maglev", maglev)]
            .into_iter()
            .filter_map(|(name, policies)| policies.map(|_| name))
            .collect()
    }
}

fn validate_entry(entry: &Entry<Conf>, top: &K, path: &Path, found: &mut Violations) {
    let allowed = match top {
        K::MeshGateway if entry.default.load_balancer.is_some() => Allowed {
            kinds: &[K::Mesh],
            unsupported: Some(
                "value 'MeshGateway' is not supported, only Mesh is allowed if loadBalancer is set",
            ),
            ..Allowed::default()
        },
        K::MeshGateway => Allowed::kinds(TO_OF_GATEWAY),
        _ => Allowed::of(MESH_LOAD_BALANCING_STRATEGY.to),
    };
    entry.target_ref.validate(allowed, &path.field("targetRef"), found);
    entry.default.validate(&entry.target_ref, &path.field("default"), found);
}

impl Policy for MeshLoadBalancingStrategy {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshLoadBalancingStrategy {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let allowed =
            Allowed { gateway_listener_tags: true, ..Allowed::at_top(MESH_LOAD_BALANCING_STRATEGY) };
        target_ref::validate_top(self.target_ref.as_ref(), allowed, found);
        let top = target_ref::top_kind(self.target_ref.as_ref());
        for (i, to) in self.to.iter().enumerate() {
            validate_entry(to, top, &spec.field("to").index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = target_ref::top_level_warnings(self.target_ref.as_ref());
        for (i, to) in self.to.iter().enumerate() {
            for algorithm in to.default.nested_hash_policies() {
                warnings.push(format!(
                    "'hashPolicies' in 'to[{i}].default.loadBalancer.{algorithm}' is deprecated, \
                     use 'to[{i}].default.hashPolicies' instead"
                ));
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
