//! The endpoints of a destination, as Envoy's configuration.

use std::collections::BTreeMap;

use endpoint::endpoint::HealthCheckConfig;
use envoy_types::pb::{
    envoy::config::{core::v3 as core, endpoint::v3 as endpoint},
    google::protobuf::UInt32Value,
};
use plan::{Affinity, EndpointRank, Locality};
use prost::Message;
use topology::Endpoint;
use xds::Type;

use crate::{
    part::{EndpointsOf, Part, origin},
    proto::{Metadata, address, u32_value},
};

/// Key of the metadata where tools read the labels of an endpoint's Dataplane.
const LABELS: &str = "io.kuma.labels";
/// Keys of the metadata that subsets of load balancing and choices of transport sockets look at.
const TAG_NAMESPACES: [&str; 2] = ["envoy.lb", "envoy.transport_socket_match"];

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`, as far as it is used here, with sorted maps.
#[derive(Clone, PartialEq, Message)]
struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
    #[prost(message, optional, tag = "4")]
    policy: Option<endpoint::cluster_load_assignment::Policy>,
}

#[derive(Clone, PartialEq, Message)]
struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    locality: Option<core::Locality>,
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    load_balancing_weight: Option<UInt32Value>,
    #[prost(uint32, tag = "5")]
    priority: u32,
}

/// Endpoints that stand alike: their zone, and why they are preferred there.
type Group<'e> = (Option<&'e str>, Option<&'e Affinity>);

#[derive(Clone, PartialEq, Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<endpoint::Endpoint>,
    #[prost(message, optional, tag = "3")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "4")]
    load_balancing_weight: Option<UInt32Value>,
}

impl Part for EndpointsOf<'_> {
    const TYPE: Type = Type::Endpoint;
    const ORIGIN: &'static str = origin::OUTBOUND;
    const SHAPE: &'static str = "endpoints";

    fn name(&self) -> &str {
        self.cluster
    }

    fn encode(&self) -> Vec<u8> {
        let mut by_priority: BTreeMap<u32, BTreeMap<Group<'_>, Vec<LbEndpoint>>> = BTreeMap::new();
        let mut known = None;
        let all = &self.endpoints.0;
        for (at, endpoint) in all.iter().enumerate() {
            // An egress stands for several zones, and is one endpoint all the same.
            let place = Some((endpoint.address.as_str(), endpoint.port));
            let usual = EndpointRank { priority: endpoint.priority, affinity: None };
            let standing = self.locality.map_or(Some(usual), |locality| locality.standing(endpoint));
            let Some(EndpointRank { priority, affinity }) = standing.filter(|_| known != place) else {
                continue;
            };
            known = place;
            let groups = by_priority.entry(priority).or_default();
            let before = at.checked_sub(1).and_then(|before| all.get(before));
            let shared = before.into_iter().chain(all.get(at + 1)).any(|next| endpoint.is_where(next));
            groups.entry((endpoint.zone(), affinity)).or_default().push(lb_endpoint(endpoint, shared));
        }
        let weighted = self.locality.is_some_and(Locality::is_weighted);
        // Envoy refuses priorities with gaps.
        let groups = by_priority.into_values().zip(0..).flat_map(|(groups, priority)| {
            groups.into_iter().map(move |((zone, affinity), lb_endpoints)| LocalityLbEndpoints {
                locality: locality(zone, affinity),
                lb_endpoints,
                load_balancing_weight: weighted.then(|| u32_value(affinity.map_or(1, |it| it.weight))),
                priority,
            })
        });
        let policy = self.locality.and_then(Locality::overprovisioning).map(|factor| {
            endpoint::cluster_load_assignment::Policy {
                overprovisioning_factor: Some(u32_value(factor)),
                ..Default::default()
            }
        });
        let cluster_name = self.cluster.to_owned();
        let endpoints = groups.collect();
        ClusterLoadAssignment { cluster_name, endpoints, policy }.encode_to_vec()
    }
}

fn locality(zone: Option<&str>, affinity: Option<&Affinity>) -> Option<core::Locality> {
    let sub_zone = affinity.map(|Affinity { key, value, .. }| format!("{key}={value}"));
    (zone.is_some() || sub_zone.is_some()).then(|| core::Locality {
        zone: zone.unwrap_or_default().to_owned(),
        sub_zone: sub_zone.unwrap_or_default(),
        ..Default::default()
    })
}

/// `shared`: whether it stands for several zones, of which a check would find one only.
fn lb_endpoint(of: &Endpoint, shared: bool) -> LbEndpoint {
    let tags = of.tags.iter().filter(|(name, _)| *name != resources::labels::SERVICE);
    let mut metadata = Metadata::default();
    if tags.clone().next().is_some() {
        metadata = Metadata::of_tags(&TAG_NAMESPACES, tags);
    }
    if let Some(labels) = of.labels() {
        metadata.filter_metadata.extend(Metadata::of_tags(&[LABELS], labels.iter()).filter_metadata);
    }
    LbEndpoint {
        endpoint: Some(endpoint::Endpoint {
            address: Some(address(&of.address, of.port)),
            health_check_config: shared
                .then(|| HealthCheckConfig { disable_active_health_check: true, ..Default::default() }),
            ..Default::default()
        }),
        metadata: (!metadata.filter_metadata.is_empty()).then_some(metadata),
        load_balancing_weight: Some(u32_value(of.weight.max(1))),
    }
}
