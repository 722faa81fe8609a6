//! Listeners, where connections arrive.

use std::{net::IpAddr, time::Duration};

use envoy_types::pb::envoy::{
    config::{core::v3::TrafficDirection, listener::v3 as listener, route::v3::Route},
    extensions::filters::{
        listener::tls_inspector::v3::TlsInspector,
        network::{direct_response::v3 as direct_response, http_connection_manager::v3 as hcm},
    },
};
use plan::{Admin, Inbound, Passthrough, Routing, ServerTls, is_http};
use policy::ClientMatch;
use prost::Message;
use resources::naming::Direction;
use topology::Protocol;
use xds::Type;

use crate::{
    access_log,
    chain::{Chain, HttpSlot, NetworkSlot},
    client, fault,
    filter::{self, HttpFilter, ListenerSide},
    kafka,
    part::{AdminListener, InboundListener, OutboundListener, Part, PassthroughListener, origin},
    passthrough, permission,
    proto::{Metadata, any, bool_value, ip_address},
    rate_limit, route,
    telemetry::{self, TracedListener},
    tls,
};

/// Key of the metadata where tools read a listener's tags.
const TAGS: &str = "io.kuma.tags";
/// The header that carried the tags of a client to other proxies; never for the application.
const TAGS_HEADER: &str = "x-kuma-tags";

/// The one field of a listener that holds a map, encoded apart so that its order is sorted.
///
/// Messages of protobuf are joined by joining their bytes.
#[derive(Clone, PartialEq, Message)]
struct OnlyMetadata {
    #[prost(message, optional, tag = "6")]
    metadata: Option<Metadata>,
}

impl Part for InboundListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::INBOUND;
    const SHAPE: &'static str = "inbound listener";

    fn name(&self) -> &str {
        &self.inbound.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let inbound = self.inbound;
        let made = listener::Listener {
            name: inbound.names.listener.clone(),
            stat_prefix: inbound.names.listener_stats.clone().unwrap_or_default(),
            filter_chains: self.chains(),
            listener_filters: match inbound.tls {
                ServerTls::Permissive => vec![tls_inspector()],
                // Envoy does not tell which server name was asked for unless it was inspected.
                ServerTls::Strict if self.asks_for_server_names() => vec![tls_inspector()],
                ServerTls::Off | ServerTls::Strict | ServerTls::Closed => Vec::new(),
            },
            traffic_direction: TrafficDirection::Inbound.into(),
            ..at((inbound.address, inbound.port), inbound.bind, Some(inbound.reuse_port))
        };
        with_tags(made, &Metadata::of_tags(&[TAGS], inbound.tags.iter()))
    }

    fn tags(&self) -> Vec<(&str, &str)> {
        self.inbound.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

impl InboundListener<'_> {
    fn asks_for_server_names(&self) -> bool {
        let Inbound { permissions, clients, faults, limits, .. } = self.inbound;
        let rules = permissions.iter().flat_map(|permissions| &permissions.rules).map(|rule| &rule.client);
        let mut told_apart = rules
            .chain(clients.iter().map(|own| &own.client))
            .chain(faults.clients())
            .chain(limits.clients.iter().map(|own| &own.client));
        told_apart.any(|client| matches!(client, ClientMatch::Sni { .. }))
            || access_log::asks_for_server_names(&self.inbound.logs)
    }

    fn chains(&self) -> Vec<listener::FilterChain> {
        match self.inbound.tls {
            ServerTls::Off => vec![self.chain(false, None)],
            ServerTls::Strict => vec![self.chain(true, None)],
            ServerTls::Closed => vec![closed()],
            // Plain traffic, the application's own TLS, and that of the mesh.
            ServerTls::Permissive => {
                let tls = |protocols: &[&str]| listener::FilterChainMatch {
                    transport_protocol: "tls".to_owned(),
                    application_protocols: protocols.iter().map(|&p| p.to_owned()).collect(),
                    ..Default::default()
                };
                let plain = listener::FilterChainMatch {
                    transport_protocol: "raw_buffer".to_owned(),
                    ..Default::default()
                };
                let passed_on = listener::FilterChain {
                    filter_chain_match: Some(tls(&[])),
                    filters: Chain::empty()
                        .with(NetworkSlot::RateLimit, self.connection_limit())
                        .with(NetworkSlot::Handler, [self.tcp()])
                        .in_order(),
                    ..Default::default()
                };
                vec![self.chain(false, Some(plain)), passed_on, self.chain(true, Some(tls(&[tls::ALPN])))]
            }
        }
    }

    fn chain(
        &self,
        secured: bool,
        filter_chain_match: Option<listener::FilterChainMatch>,
    ) -> listener::FilterChain {
        let socket = self.security.map(tls::of_mesh_server);
        listener::FilterChain {
            filter_chain_match,
            filters: self.filters(secured),
            transport_socket: socket.filter(|_| secured),
            ..Default::default()
        }
    }

    fn filters(&self, secured: bool) -> Vec<listener::Filter> {
        let Inbound { names, permissions, protocol, kafka_filter, clients, faults, limits, .. } =
            self.inbound;
        let permissions = permissions.as_ref().filter(|_| secured);
        if is_http(*protocol) {
            let asked = permissions.map(|permissions| {
                let config = permission::http(self.mesh, permissions, &names.permission_stats);
                filter::http_filter("envoy.filters.http.rbac", &config)
            });
            let told_apart = secured && !clients.is_empty();
            let filters = Chain::empty()
                .with(HttpSlot::Permission, asked)
                .with(HttpSlot::Fault, fault::filters(self.mesh, faults, secured))
                .with(HttpSlot::RateLimit, rate_limit::requests(self.mesh, limits, secured));
            return Chain::empty()
                .with(NetworkSlot::ClientState, told_apart.then(client::remembered))
                .with(NetworkSlot::RateLimit, self.connection_limit())
                .with(NetworkSlot::Handler, [self.http(filters, told_apart)])
                .in_order();
        }
        let asked = permissions.map(|permissions| {
            let config = permission::network(self.mesh, permissions, &names.permission_stats);
            filter::filter("envoy.filters.network.rbac", &config)
        });
        Chain::empty()
            .with(NetworkSlot::Permission, asked)
            .with(NetworkSlot::RateLimit, self.connection_limit())
            .with(NetworkSlot::Kafka, kafka_filter.then(|| kafka::filter(&names.filter_stats)))
            .with(NetworkSlot::Handler, [self.tcp()])
            .in_order()
    }

    /// Counted once for all chains of the listener.
    fn connection_limit(&self) -> Option<listener::Filter> {
        rate_limit::connections(&self.inbound.limits, &self.inbound.names.listener)
    }

    fn http(&self, filters: Chain<HttpSlot, hcm::HttpFilter>, told_apart: bool) -> listener::Filter {
        let Inbound { names, timeouts, clients, protocol, ipv6, .. } = self.inbound;
        let clients = if told_apart { clients.as_slice() } else { &[] };
        let all = route::of_clients(&names.cluster, timeouts.request, clients);
        let mut routes = route::configuration(&names.route_configuration, &names.virtual_host, all);
        routes.request_headers_to_remove = vec![TAGS_HEADER.to_owned()];
        HttpFilter {
            stats: names.filter_stats.clone(),
            routes: filter::given(routes),
            filters,
            grpc: *protocol == Protocol::Grpc,
            ipv6: *ipv6,
            request_headers: timeouts.request_headers,
            direction: ListenerSide::Inbound,
            logs: access_log::of(&self.inbound.logs),
            tracing: self.tracing.map(|tracing| telemetry::tracing(tracing, &TracedListener::Inbound)),
        }
        .build()
    }

    fn tcp(&self) -> listener::Filter {
        let Inbound { names, timeouts, logs, .. } = self.inbound;
        let to = filter::to_cluster(&names.cluster);
        let idle = Some(timeouts.connection.idle);
        filter::tcp(&names.filter_stats, to, idle, None, access_log::of(logs), &[])
    }
}

impl Part for OutboundListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::OUTBOUND;
    const SHAPE: &'static str = "outbound listener";

    fn name(&self) -> &str {
        &self.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let names = self.names;
        let handled = match self.routing {
            Routing::Requests(planned) => {
                let routes = planned.iter().flat_map(route::of).collect();
                HttpFilter {
                    stats: names.filter_stats.clone(),
                    routes: filter::given(route::configuration(
                        &names.route_configuration,
                        &names.virtual_host,
                        routes,
                    )),
                    filters: Chain::empty(),
                    grpc: self.protocol == Protocol::Grpc,
                    ipv6: self.ipv6,
                    request_headers: self.request_headers,
                    direction: ListenerSide::Outbound,
                    logs: access_log::of(self.logs),
                    tracing: self.tracing.map(|tracing| {
                        telemetry::tracing(tracing, &TracedListener::Outbound(&names.cluster))
                    }),
                }
                .build()
            }
            Routing::Connections(shares) => {
                let to = filter::to_shares(shares);
                let logs = access_log::of(self.logs);
                let attempts = self.connect_attempts;
                filter::tcp(&names.filter_stats, to, Some(self.idle), attempts, logs, self.hashed)
            }
        };
        let further = self.addresses.iter().skip(1).map(|&(ip, port)| listener::AdditionalAddress {
            address: Some(ip_address(ip, port)),
            ..Default::default()
        });
        let made = listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.listener_stats.clone().unwrap_or_default(),
            additional_addresses: further.collect(),
            filter_chains: vec![listener::FilterChain { filters: vec![handled], ..Default::default() }],
            traffic_direction: TrafficDirection::Outbound.into(),
            ..self.addresses.first().map(|&first| at(first, self.bind, None)).unwrap_or_default()
        };
        with_tags(made, &Metadata::of_tags(&[TAGS], self.tags.iter().copied()))
    }

    fn tags(&self) -> Vec<(&str, &str)> {
        self.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

impl Part for PassthroughListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::TRANSPARENT;
    const SHAPE: &'static str = "passthrough listener";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let Passthrough { names, address, port, direction, reuse_port, ways, logs, .. } = self.0;
        let to = filter::to_cluster(&names.cluster);
        let let_through = filter::tcp(&names.filter_stats, to, None, None, access_log::of(logs), &[]);
        let (filter_chains, listener_filters) = if ways.is_empty() {
            let all = listener::FilterChain { filters: vec![let_through], ..Default::default() };
            (vec![all], Vec::new())
        } else {
            (passthrough::chains(ways, address.is_ipv6(), logs), passthrough::listener_filters(ways))
        };
        let direction = match direction {
            Direction::Inbound => TrafficDirection::Inbound,
            Direction::Outbound => TrafficDirection::Outbound,
        };
        listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.listener_stats.clone().unwrap_or_default(),
            filter_chains,
            listener_filters,
            use_original_dst: Some(bool_value(true)),
            traffic_direction: direction.into(),
            ..at((*address, *port), true, *reuse_port)
        }
        .encode_to_vec()
    }
}

impl Part for AdminListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::ADMIN;
    const SHAPE: &'static str = "admin listener";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let Admin { names, address, port, reuse_port, .. } = self.0;
        listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.listener_stats.clone().unwrap_or_default(),
            filter_chains: vec![self.chain(vec![self.ready()])],
            listener_filters: vec![tls_inspector()],
            traffic_direction: TrafficDirection::Inbound.into(),
            ..at((*address, *port), true, Some(*reuse_port))
        }
        .encode_to_vec()
    }

    /// Messages are joined by joining their bytes: one more chain, with the key of the interface.
    fn sealed(&self) -> Vec<u8> {
        let Some(material) = &self.0.tls else { return Vec::new() };
        let mut secured = self.chain(vec![self.ready(), route::rewritten_prefix("/", &self.0.names.cluster)]);
        secured.filter_chain_match =
            Some(listener::FilterChainMatch { transport_protocol: "tls".to_owned(), ..Default::default() });
        secured.transport_socket = Some(tls::of_admin(material));
        listener::Listener { filter_chains: vec![secured], ..Default::default() }.encode_to_vec()
    }
}

impl AdminListener<'_> {
    fn ready(&self) -> Route {
        let Admin { names, readiness_port, .. } = self.0;
        let readiness = if *readiness_port == 0 { &names.cluster } else { &names.readiness_cluster };
        route::rewritten_prefix("/ready", readiness)
    }

    fn chain(&self, routes: Vec<Route>) -> listener::FilterChain {
        let names = &self.0.names;
        let handled = HttpFilter {
            stats: names.filter_stats.clone(),
            routes: filter::given(route::configuration(&names.listener, &names.listener, routes)),
            filters: Chain::empty(),
            grpc: false,
            ipv6: self.0.ipv6,
            request_headers: Duration::ZERO,
            direction: ListenerSide::Admin,
            logs: Vec::new(),
            tracing: None,
        };
        listener::FilterChain { filters: vec![handled.build()], ..Default::default() }
    }
}

/// Returns a listener at an address. `reuse_port` is set for incoming traffic; for the rest Envoy decides.
pub(crate) fn at((ip, port): (IpAddr, u16), bind: bool, reuse_port: Option<bool>) -> listener::Listener {
    listener::Listener {
        address: Some(ip_address(ip, port)),
        bind_to_port: (!bind).then(|| bool_value(false)),
        enable_reuse_port: reuse_port.map(bool_value),
        ..Default::default()
    }
}

/// Ends connections before anything of them is read, so that the application does not notice them.
fn closed() -> listener::FilterChain {
    let nothing = direct_response::Config::default();
    let filters = vec![filter::filter("envoy.filters.network.direct_response", &nothing)];
    listener::FilterChain { filters, ..Default::default() }
}

pub(crate) fn tls_inspector() -> listener::ListenerFilter {
    listener::ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(&TlsInspector::default()))),
        ..Default::default()
    }
}

fn with_tags(listener: listener::Listener, tags: &Metadata) -> Vec<u8> {
    let mut bytes = listener.encode_to_vec();
    bytes.extend(OnlyMetadata { metadata: Some(tags.clone()) }.encode_to_vec());
    bytes
}
