//! Network filters: the treatment of a connection's bytes.

use std::time::Duration;

use envoy_types::pb::envoy::{
    config::{accesslog::v3::AccessLog, core::v3 as core, listener::v3 as listener, route::v3 as route},
    extensions::filters::{
        http::{grpc_stats::v3 as grpc_stats, router::v3::Router},
        network::{http_connection_manager::v3 as hcm, tcp_proxy::v3 as tcp_proxy},
    },
};
use hcm::http_connection_manager::{
    ForwardClientCertDetails, InternalAddressConfig, RouteSpecifier, SetCurrentClientCertDetails, Tracing,
};
use plan::Share;
use prost::{Message, Name};
use resources::kinds::mesh_load_balancing_strategy::HashPolicy;
use tcp_proxy::tcp_proxy::ClusterSpecifier;

use crate::{
    balancing,
    chain::{Chain, HttpSlot},
    proto::{any, bool_value, duration, u32_value},
};

/// Idle timeout of an incoming stream before a route has been found for it.
const STREAM_IDLE: Duration = Duration::from_secs(3600);
/// Addresses whose requests count as internal, with the length of their prefix.
const INTERNAL: [(&str, u32); 7] = [
    ("10.0.0.0", 8),
    ("192.168.0.0", 16),
    ("172.16.0.0", 12),
    ("fc00::", 7),
    ("fd00::", 8),
    ("127.0.0.1", 32),
    ("::1", 128),
];
/// Those of them that are the proxy's own machine.
const LOCAL: std::ops::RangeFrom<usize> = 5..;

/// Requests of HTTP.
pub(crate) struct HttpFilter {
    pub stats: String,
    pub routes: RouteSpecifier,
    /// Filters of policies; the filters of every request are added to them.
    pub filters: Chain<HttpSlot, hcm::HttpFilter>,
    pub grpc: bool,
    pub ipv6: bool,
    /// Time limit for the headers of a request.
    pub request_headers: Duration,
    pub direction: ListenerSide,
    pub logs: Vec<AccessLog>,
    pub tracing: Option<Tracing>,
}

/// Routes that are a part of the listener.
pub(crate) fn given(routes: route::RouteConfiguration) -> RouteSpecifier {
    RouteSpecifier::RouteConfig(routes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerSide {
    Inbound,
    Outbound,
    /// Out of the mesh.
    Passthrough,
    Admin,
}

impl HttpFilter {
    pub(crate) fn build(self) -> listener::Filter {
        handled(&self.manager())
    }

    pub(crate) fn manager(self) -> hcm::HttpConnectionManager {
        let grpc = self.grpc.then(|| {
            let config = grpc_stats::FilterConfig { emit_filter_state: true, ..Default::default() };
            http_filter("envoy.filters.http.grpc_stats", &config)
        });
        let router = http_filter("envoy.filters.http.router", &Router::default());
        // The proxy's own interface is for its own machine.
        let internal = match self.direction {
            ListenerSide::Admin => &INTERNAL[LOCAL],
            ListenerSide::Inbound | ListenerSide::Outbound | ListenerSide::Passthrough => &INTERNAL[..],
        };
        let understood = |(prefix, _): &&(&str, u32)| self.ipv6 || !prefix.contains(':');
        let internal = internal.iter().filter(understood).map(|&(prefix, length)| core::CidrRange {
            address_prefix: prefix.to_owned(),
            prefix_len: Some(u32_value(length)),
        });
        let mut manager = hcm::HttpConnectionManager {
            stat_prefix: self.stats,
            http_filters: self
                .filters
                .with(HttpSlot::GrpcStats, grpc)
                .with(HttpSlot::Router, [router])
                .in_order(),
            internal_address_config: Some(InternalAddressConfig {
                unix_sockets: false,
                cidr_ranges: internal.collect(),
            }),
            route_specifier: Some(self.routes),
            access_log: self.logs,
            tracing: self.tracing,
            ..Default::default()
        };
        if matches!(self.direction, ListenerSide::Inbound | ListenerSide::Outbound) {
            manager.request_headers_timeout = Some(duration(self.request_headers));
            manager.common_http_protocol_options = Some(core::HttpProtocolOptions {
                idle_timeout: Some(duration(Duration::ZERO)),
                ..Default::default()
            });
        }
        match self.direction {
            ListenerSide::Outbound => manager.normalize_path = Some(bool_value(true)),
            ListenerSide::Inbound => {
                manager.stream_idle_timeout = Some(duration(STREAM_IDLE));
                manager.forward_client_cert_details = ForwardClientCertDetails::SanitizeSet.into();
                manager.set_current_client_cert_details =
                    Some(SetCurrentClientCertDetails { uri: true, ..Default::default() });
            }
            ListenerSide::Admin | ListenerSide::Passthrough => {}
        }
        manager
    }
}

/// Requests, by a manager that is complete.
pub(crate) fn handled(manager: &hcm::HttpConnectionManager) -> listener::Filter {
    filter("envoy.filters.network.http_connection_manager", manager)
}

/// Bytes, whatever they mean.
pub(crate) fn tcp(
    stats: &str,
    to: ClusterSpecifier,
    idle: Option<Duration>,
    attempts: Option<u32>,
    logs: Vec<AccessLog>,
    hashed: &[HashPolicy],
) -> listener::Filter {
    let proxy = tcp_proxy::TcpProxy {
        stat_prefix: stats.to_owned(),
        idle_timeout: idle.map(duration),
        cluster_specifier: Some(to),
        max_connect_attempts: attempts.map(u32_value),
        access_log: logs,
        hash_policy: balancing::of_connection(hashed).into_iter().collect(),
        ..Default::default()
    };
    filter("envoy.filters.network.tcp_proxy", &proxy)
}

/// All bytes to one cluster.
pub(crate) fn to_cluster(cluster: &str) -> ClusterSpecifier {
    ClusterSpecifier::Cluster(cluster.to_owned())
}

/// Connections spread by weight.
pub(crate) fn to_shares(shares: &[Share]) -> ClusterSpecifier {
    if let [only] = shares {
        return to_cluster(&only.cluster);
    }
    let clusters = shares.iter().map(|share| tcp_proxy::tcp_proxy::weighted_cluster::ClusterWeight {
        name: share.cluster.clone(),
        weight: share.weight,
        ..Default::default()
    });
    ClusterSpecifier::WeightedClusters(tcp_proxy::tcp_proxy::WeightedCluster { clusters: clusters.collect() })
}

pub(crate) fn filter<M: Message + Name>(name: &str, config: &M) -> listener::Filter {
    listener::Filter {
        name: name.to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(any(config))),
    }
}

pub(crate) fn http_filter<M: Message + Name>(name: &str, config: &M) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(config))),
        ..Default::default()
    }
}
