//! What happens to the bytes of a connection.

use std::time::Duration;

use envoy_types::pb::envoy::{
    config::{core::v3 as core, listener::v3 as listener, route::v3 as route},
    extensions::filters::{
        http::{grpc_stats::v3 as grpc_stats, router::v3::Router},
        network::{http_connection_manager::v3 as hcm, tcp_proxy::v3 as tcp_proxy},
    },
};
use hcm::http_connection_manager::{
    ForwardClientCertDetails, InternalAddressConfig, RouteSpecifier, SetCurrentClientCertDetails,
};
use plan::Timeouts;
use prost::{Message, Name};
use topology::Protocol;

use crate::proto::{any, bool_value, duration, u32_value};

/// How long a stream may rest before a route has been found for it.
const STREAM_IDLE: Duration = Duration::from_secs(3600);
/// Addresses whose requests count as internal, with the length of their prefix.
const INTERNAL_V4: [(&str, u32); 4] =
    [("10.0.0.0", 8), ("192.168.0.0", 16), ("172.16.0.0", 12), ("127.0.0.1", 32)];
const INTERNAL_V6: [(&str, u32); 2] = [("fd00::", 8), ("::1", 128)];

/// Whether the protocol is understood request by request.
pub(crate) fn is_http(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc)
}

/// Requests of HTTP.
pub(crate) struct HttpFilter {
    pub stats: String,
    pub routes: route::RouteConfiguration,
    /// In front of all others.
    pub first: Option<hcm::HttpFilter>,
    pub grpc: bool,
    pub ipv6: bool,
    pub direction: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Inbound,
    Outbound,
    Admin,
}

impl HttpFilter {
    pub(crate) fn build(self) -> listener::Filter {
        let grpc = self.grpc.then(|| {
            let config = grpc_stats::FilterConfig { emit_filter_state: true, ..Default::default() };
            http_filter("envoy.filters.http.grpc_stats", &config)
        });
        let router = http_filter("envoy.filters.http.router", &Router::default());
        let v6 = INTERNAL_V6.iter().filter(|_| self.ipv6);
        let internal = INTERNAL_V4.iter().chain(v6).map(|&(prefix, length)| core::CidrRange {
            address_prefix: prefix.to_owned(),
            prefix_len: Some(u32_value(length)),
        });
        let mut manager = hcm::HttpConnectionManager {
            stat_prefix: self.stats,
            http_filters: self.first.into_iter().chain(grpc).chain([router]).collect(),
            internal_address_config: Some(InternalAddressConfig {
                unix_sockets: false,
                cidr_ranges: internal.collect(),
            }),
            route_specifier: Some(RouteSpecifier::RouteConfig(self.routes)),
            ..Default::default()
        };
        if self.direction != Side::Admin {
            manager.stream_idle_timeout = Some(duration(STREAM_IDLE));
            manager.request_headers_timeout = Some(duration(Duration::ZERO));
            manager.common_http_protocol_options = Some(core::HttpProtocolOptions {
                idle_timeout: Some(duration(Duration::ZERO)),
                ..Default::default()
            });
        }
        match self.direction {
            Side::Outbound => manager.normalize_path = Some(bool_value(true)),
            Side::Inbound => {
                manager.forward_client_cert_details = ForwardClientCertDetails::SanitizeSet.into();
                manager.set_current_client_cert_details =
                    Some(SetCurrentClientCertDetails { uri: true, ..Default::default() });
            }
            Side::Admin => {}
        }
        filter("envoy.filters.network.http_connection_manager", &manager)
    }
}

/// Bytes, whatever they mean.
pub(crate) fn tcp(stats: &str, cluster: &str, idle: Option<Duration>) -> listener::Filter {
    let proxy = tcp_proxy::TcpProxy {
        stat_prefix: stats.to_owned(),
        idle_timeout: idle.map(duration),
        cluster_specifier: Some(tcp_proxy::tcp_proxy::ClusterSpecifier::Cluster(cluster.to_owned())),
        ..Default::default()
    };
    filter("envoy.filters.network.tcp_proxy", &proxy)
}

/// One virtual host for every domain.
pub(crate) fn routes(
    configuration: &str,
    host: &str,
    routes: Vec<route::Route>,
) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name: configuration.to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            name: host.to_owned(),
            domains: vec!["*".to_owned()],
            routes,
            ..Default::default()
        }],
        validate_clusters: Some(bool_value(false)),
        ..Default::default()
    }
}

/// Requests whose path starts like this go to that cluster.
pub(crate) fn prefix_route(
    name: &str,
    prefix: &str,
    cluster: &str,
    timeouts: Option<Timeouts>,
) -> route::Route {
    let to = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(cluster.to_owned())),
        timeout: timeouts.map(|timeouts| duration(timeouts.request)),
        idle_timeout: timeouts.map(|timeouts| duration(timeouts.stream_idle)),
        ..Default::default()
    };
    route::Route {
        name: name.to_owned(),
        r#match: Some(route::RouteMatch {
            path_specifier: Some(route::route_match::PathSpecifier::Prefix(prefix.to_owned())),
            ..Default::default()
        }),
        action: Some(route::route::Action::Route(to)),
        ..Default::default()
    }
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
