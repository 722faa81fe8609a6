//! Who serves a destination, in Envoy's words.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::config::{core::v3 as core, endpoint::v3 as endpoint},
    google::protobuf::UInt32Value,
};
use prost::Message;
use topology::Endpoint;
use xds::Type;

use crate::{
    part::{EndpointsOf, Part, origin},
    proto::{Metadata, address, u32_value},
};

/// Where tools read the labels of an endpoint's Dataplane.
const LABELS: &str = "io.kuma.labels";
/// What subsets of load balancing and choices of transport sockets look at.
const TAG_NAMESPACES: [&str; 2] = ["envoy.lb", "envoy.transport_socket_match"];

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`, as far as it is used here, with sorted maps.
#[derive(Clone, PartialEq, Message)]
struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
}

#[derive(Clone, PartialEq, Message)]
struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    locality: Option<core::Locality>,
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
    #[prost(uint32, tag = "5")]
    priority: u32,
}

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
        let mut by_priority: BTreeMap<u32, BTreeMap<Option<&str>, Vec<LbEndpoint>>> = BTreeMap::new();
        for endpoint in &self.endpoints.0 {
            let by_zone = by_priority.entry(endpoint.priority).or_default();
            by_zone.entry(endpoint.zone()).or_default().push(lb_endpoint(endpoint));
        }
        // Envoy refuses priorities with gaps.
        let groups = by_priority.into_values().zip(0..).flat_map(|(by_zone, priority)| {
            by_zone.into_iter().map(move |(zone, lb_endpoints)| LocalityLbEndpoints {
                locality: zone.map(|zone| core::Locality { zone: zone.to_owned(), ..Default::default() }),
                lb_endpoints,
                priority,
            })
        });
        let endpoints = groups.collect();
        ClusterLoadAssignment { cluster_name: self.cluster.to_owned(), endpoints }.encode_to_vec()
    }
}

fn lb_endpoint(of: &Endpoint) -> LbEndpoint {
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
            ..Default::default()
        }),
        metadata: (!metadata.filter_metadata.is_empty()).then_some(metadata),
        load_balancing_weight: Some(u32_value(of.weight.max(1))),
    }
}
