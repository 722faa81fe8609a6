//! Clusters: the application, destinations, and the proxy itself.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, DnsLookupFamily, EdsClusterConfig, LbPolicy};
use envoy_types::pb::envoy::{
    config::{cluster::v3 as cluster, core::v3 as core, endpoint::v3 as endpoint},
    extensions::upstreams::http::v3 as http,
};
use http::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use plan::{AdminTarget, ConnectionTimeouts, Passthrough};
use prost::Message;
use resources::naming::Direction;
use topology::{ClientTls, Endpoints, Protocol};
use xds::Type;

use crate::{
    balancing, breaker, health_check,
    part::{
        AdminCluster, ExternalCluster, InboundCluster, MatchedCluster, MeshCluster, Part, PassthroughCluster,
        ReadinessCluster, RefusalCluster, origin,
    },
    proto::{address, any, duration, from_ads, ip_address, pipe, socket_address, u32_value},
    tls,
};

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// Time limit for connecting to the proxy itself.
const SYSTEM_CONNECT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

impl Part for InboundCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::INBOUND;
    const SHAPE: &'static str = "inbound cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let (ip, port) = self.workload;
        let mut made = plain(self.name, self.stats, self.timeouts.connect, DiscoveryType::Static);
        made.load_assignment = Some(at(self.name, ip_address(ip, port)));
        made.typed_extension_protocol_options = options(spoken(self.protocol), Some(self.timeouts));
        if self.from_loopback_source {
            made.upstream_bind_config = Some(loopback_source(ip.is_ipv6()));
        }
        breaker::apply(&mut made, self.breaker);
        made.encode_to_vec()
    }
}

impl Part for MeshCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::OUTBOUND;
    const SHAPE: &'static str = "mesh cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, self.timeouts.connect, DiscoveryType::Eds);
        made.eds_cluster_config =
            Some(EdsClusterConfig { eds_config: Some(from_ads()), service_name: String::new() });
        // Proxies always speak HTTP/2 with each other, whatever the applications speak.
        let timeouts = matches!(self.protocol, Protocol::Http | Protocol::Http2).then_some(self.timeouts);
        made.typed_extension_protocol_options = options(Some(Http::Two), timeouts);
        made.transport_socket = match (self.tls, self.security) {
            (ClientTls::Mesh { sni, spiffe_ids }, Some(security)) => {
                Some(tls::of_mesh_client(sni, spiffe_ids, security))
            }
            _ => None,
        };
        balancing::apply(&mut made, self.balancer);
        if self.weighted {
            balancing::by_shares_of_groups(&mut made);
        }
        health_check::apply(&mut made, self.health);
        // Last: what a breaker says about panic overrides what a check says.
        breaker::apply(&mut made, self.breaker);
        made.encode_to_vec()
    }
}

impl Part for ExternalCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::OUTBOUND;
    const SHAPE: &'static str = "external cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let is_ip = |address: &str| address.parse::<IpAddr>().is_ok();
        let resolved = self.endpoints.0.iter().all(|endpoint| is_ip(&endpoint.address));
        let mut made = looked_up(self.name, self.stats, self.timeouts.connect, resolved, self.ipv6);
        made.load_assignment = Some(outside(self.name, self.endpoints));
        let timeouts = matches!(self.protocol, Protocol::Http | Protocol::Http2).then_some(self.timeouts);
        made.typed_extension_protocol_options = options(spoken(self.protocol), timeouts);
        made.transport_socket = self.external.tls.as_ref().map(tls::of_external);
        balancing::apply(&mut made, self.balancer);
        health_check::apply(&mut made, self.health);
        // Last: what a breaker says about panic overrides what a check says.
        breaker::apply(&mut made, self.breaker);
        made.encode_to_vec()
    }
}

impl Part for PassthroughCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::TRANSPARENT;
    const SHAPE: &'static str = "passthrough cluster";

    fn name(&self) -> &str {
        &self.0.names.cluster
    }

    fn encode(&self) -> Vec<u8> {
        let Passthrough { names, address, direction, .. } = self.0;
        let stats = names.cluster_stats.as_deref();
        let mut made = plain(&names.cluster, stats, SYSTEM_CONNECT, DiscoveryType::OriginalDst);
        made.lb_policy = LbPolicy::ClusterProvided.into();
        if *direction == Direction::Inbound {
            made.upstream_bind_config = Some(loopback_source(address.is_ipv6()));
        }
        made.encode_to_vec()
    }
}

impl Part for MatchedCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::MATCHED;
    const SHAPE: &'static str = "matched cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, SYSTEM_CONNECT, DiscoveryType::OriginalDst);
        made.lb_policy = LbPolicy::ClusterProvided.into();
        made.typed_extension_protocol_options = options(self.http2.then_some(Http::Two), None);
        made.encode_to_vec()
    }
}

impl Part for RefusalCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::TRANSPARENT;
    const SHAPE: &'static str = "refusal cluster";

    fn name(&self) -> &str {
        self.name
    }

    /// It has no endpoints and never gets any.
    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, SYSTEM_CONNECT, DiscoveryType::Static);
        made.load_assignment = Some(endpoint::ClusterLoadAssignment {
            cluster_name: self.name.to_owned(),
            ..Default::default()
        });
        made.encode_to_vec()
    }
}

impl Part for AdminCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::ADMIN;
    const SHAPE: &'static str = "admin cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, SYSTEM_CONNECT, DiscoveryType::Static);
        let target = match self.target {
            AdminTarget::Pipe(path) => pipe(path),
            AdminTarget::Port(ip, port) => ip_address(*ip, *port),
        };
        made.load_assignment = Some(at(self.name, target));
        made.encode_to_vec()
    }
}

impl Part for ReadinessCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::ADMIN;
    const SHAPE: &'static str = "readiness cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, SYSTEM_CONNECT, DiscoveryType::Static);
        made.load_assignment = Some(at(self.name, ip_address(self.address, self.port)));
        made.encode_to_vec()
    }
}

/// Something of the proxy's own machine that listens at a socket.
pub(crate) fn at_socket(name: &str, stats: Option<&str>, socket: &str) -> cluster::Cluster {
    let mut made = plain(name, stats, SYSTEM_CONNECT, DiscoveryType::Static);
    made.load_assignment = Some(at(name, pipe(socket)));
    made
}

/// A server outside of the mesh that the proxy itself needs.
pub(crate) fn at_host(
    name: &str,
    stats: Option<&str>,
    (host, port): (&str, u16),
    ipv6: bool,
) -> cluster::Cluster {
    let mut made = looked_up(name, stats, SYSTEM_CONNECT, host.parse::<IpAddr>().is_ok(), ipv6);
    made.load_assignment = Some(at(name, address(host, port.into())));
    made
}

/// A cluster whose endpoints are not discovered: they are addresses, or names that Envoy looks up.
fn looked_up(
    name: &str,
    stats: Option<&str>,
    connect: Duration,
    are_addresses: bool,
    ipv6: bool,
) -> cluster::Cluster {
    if are_addresses {
        return plain(name, stats, connect, DiscoveryType::Static);
    }
    let family = if ipv6 { DnsLookupFamily::V4Preferred } else { DnsLookupFamily::V4Only };
    let mut made = plain(name, stats, connect, DiscoveryType::StrictDns);
    made.dns_lookup_family = family.into();
    made
}

pub(crate) fn plain(
    name: &str,
    stats: Option<&str>,
    connect: Duration,
    kind: DiscoveryType,
) -> cluster::Cluster {
    cluster::Cluster {
        name: name.to_owned(),
        alt_stat_name: stats.unwrap_or_default().to_owned(),
        connect_timeout: Some(duration(connect)),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
        circuit_breakers: Some(breaker::counted()),
        ..Default::default()
    }
}

/// Returns the version of HTTP that is spoken with a server that is not a proxy of the mesh.
fn spoken(protocol: Protocol) -> Option<Http> {
    match protocol {
        Protocol::Http => Some(Http::One),
        Protocol::Http2 | Protocol::Grpc => Some(Http::Two),
        Protocol::Kafka | Protocol::Tcp => None,
    }
}

/// HTTP/2 and nothing else.
pub(crate) fn http2() -> HashMap<String, envoy_types::pb::google::protobuf::Any> {
    options(Some(Http::Two), None)
}

fn options(
    http: Option<Http>,
    timeouts: Option<ConnectionTimeouts>,
) -> HashMap<String, envoy_types::pb::google::protobuf::Any> {
    let Some(http) = http else { return HashMap::new() };
    let protocol_config = match http {
        Http::One => ProtocolConfig::HttpProtocolOptions(core::Http1ProtocolOptions::default()),
        Http::Two => ProtocolConfig::Http2ProtocolOptions(core::Http2ProtocolOptions::default()),
    };
    let explicit = ExplicitHttpConfig { protocol_config: Some(protocol_config) };
    let options = http::HttpProtocolOptions {
        common_http_protocol_options: timeouts.map(|timeouts| core::HttpProtocolOptions {
            idle_timeout: Some(duration(timeouts.idle)),
            max_stream_duration: timeouts.max_stream.map(duration),
            max_connection_duration: timeouts.max_connection.map(duration),
            ..Default::default()
        }),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)),
        ..Default::default()
    };
    HashMap::from([(HTTP_OPTIONS.to_owned(), any(&options))])
}

/// The source address that transparent proxying does not redirect again.
pub(crate) fn loopback_source(ipv6: bool) -> core::BindConfig {
    let ip = if ipv6 {
        IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6))
    } else {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6))
    };
    core::BindConfig { source_address: Some(socket_address(&ip.to_string(), 0)), ..Default::default() }
}

fn at(cluster: &str, address: core::Address) -> endpoint::ClusterLoadAssignment {
    let group = endpoint::LocalityLbEndpoints {
        lb_endpoints: vec![lb_endpoint(address, String::new(), None)],
        ..Default::default()
    };
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![group],
        ..Default::default()
    }
}

fn outside(cluster: &str, endpoints: &Endpoints) -> endpoint::ClusterLoadAssignment {
    let mut by_priority: std::collections::BTreeMap<u32, Vec<endpoint::LbEndpoint>> = Default::default();
    for of in &endpoints.0 {
        // The host name is also the server name that TLS asks for.
        let hostname = if of.address.parse::<IpAddr>().is_ok() { String::new() } else { of.address.clone() };
        let made = lb_endpoint(address(&of.address, of.port), hostname, Some(of.weight.max(1)));
        by_priority.entry(of.priority).or_default().push(made);
    }
    // Envoy refuses priorities with gaps.
    let groups = by_priority.into_values().zip(0..).map(|(lb_endpoints, priority)| {
        endpoint::LocalityLbEndpoints { lb_endpoints, priority, ..Default::default() }
    });
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: groups.collect(),
        ..Default::default()
    }
}

fn lb_endpoint(address: core::Address, hostname: String, weight: Option<u32>) -> endpoint::LbEndpoint {
    let endpoint = endpoint::Endpoint { address: Some(address), hostname, ..Default::default() };
    endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        load_balancing_weight: weight.map(u32_value),
        ..Default::default()
    }
}
