//! Zone proxies as Envoy's configuration: one listener that forwards connections by server name.

use std::time::Duration;

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::cluster::{DiscoveryType, EdsClusterConfig},
            core::v3::{DataSource, TrafficDirection, data_source::Specifier},
            listener::v3 as listener,
            rbac::v3 as rbac,
        },
        extensions::filters::network::{
            connection_limit::v3 as connection_limit, direct_response::v3 as direct_response,
            rbac::v3 as network_rbac,
        },
    },
    google::protobuf::UInt64Value,
};
use plan::{FilterChain, TlsTermination, ZoneBackend, ZoneListener, is_http};
use prost::Message;
use resources::{
    kinds::{mesh_circuit_breaker, mesh_load_balancing_strategy::HashPolicy},
    naming::system,
};
use topology::Protocol;
use xds::Type;

use crate::{
    breaker,
    chain::{Chain, HttpSlot, NetworkSlot},
    cluster::plain,
    filter::{self, HttpFilter, ListenerSide},
    listener::{at, tls_inspector},
    part::{Part, origin},
    permission,
    proto::from_ads,
    route, tls,
};

/// The listener of a zone proxy with everything it leads to.
#[derive(Hash)]
pub(crate) struct ServerNameListener<'a> {
    pub listener: &'a ZoneListener,
    pub filter_chains: &'a [FilterChain],
}

/// The cluster of proxies that get what was sent as it was sent.
#[derive(Hash)]
pub(crate) struct ForwardingCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub connect: Duration,
    pub breaker: Option<&'a mesh_circuit_breaker::Conf>,
}

impl<'a> ForwardingCluster<'a> {
    pub(crate) fn of(backend: &'a ZoneBackend) -> ForwardingCluster<'a> {
        let name = backend.cluster.as_str();
        let stats = backend.cluster_stats.as_deref();
        ForwardingCluster {
            name,
            stats,
            connect: backend.timeouts.connect,
            breaker: backend.breaker.as_deref(),
        }
    }
}

impl Part for ServerNameListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::ZONE;
    const SHAPE: &'static str = "zone listener";

    fn name(&self) -> &str {
        &self.listener.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let ZoneListener { names, address, port, reuse_port, greeting } = self.listener;
        let filter_chains = if self.filter_chains.is_empty() {
            vec![greeted(greeting)]
        } else {
            self.filter_chains.iter().flat_map(encoded).collect()
        };
        listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.listener_stats.clone().unwrap_or_default(),
            filter_chains,
            listener_filters: vec![tls_inspector()],
            traffic_direction: TrafficDirection::Inbound.into(),
            ..at((*address, *port), true, Some(*reuse_port))
        }
        .encode_to_vec()
    }
}

impl Part for ForwardingCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::ZONE;
    const SHAPE: &'static str = "passed cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        let mut made = plain(self.name, self.stats, self.connect, DiscoveryType::Eds);
        made.eds_cluster_config =
            Some(EdsClusterConfig { eds_config: Some(from_ads()), service_name: String::new() });
        breaker::apply(&mut made, self.breaker);
        made.encode_to_vec()
    }
}

/// Says which proxy it is, for those who look for the reason why nothing is led on.
fn greeted(greeting: &str) -> listener::FilterChain {
    let said =
        DataSource { specifier: Some(Specifier::InlineString(greeting.to_owned())), ..Default::default() };
    let config = direct_response::Config { response: Some(said) };
    let filters = vec![filter::filter("envoy.filters.network.direct_response", &config)];
    listener::FilterChain { filters, ..Default::default() }
}

/// A chain of filters for each server name. With one for all of them, a name that comes or goes would end the
/// connections of the others: Envoy keeps only those whose chain is the same.
fn encoded(chain: &FilterChain) -> impl Iterator<Item = listener::FilterChain> {
    chain.server_names.iter().map(move |name| {
        // Envoy compares what was asked for in lower case.
        let name = name.to_ascii_lowercase();
        let mut made = unmatched(chain);
        if chain.counted {
            made.filters.splice(..0, counters(&name));
        }
        made.filter_chain_match = Some(listener::FilterChainMatch {
            transport_protocol: "tls".to_owned(),
            server_names: vec![name],
            ..Default::default()
        });
        made
    })
}

fn unmatched(chain: &FilterChain) -> listener::FilterChain {
    let through = |hashed: &[HashPolicy]| {
        filter::tcp(
            &chain.stats,
            filter::to_cluster(&chain.cluster),
            None,
            chain.attempts,
            Vec::new(),
            hashed,
        )
    };
    match &chain.tls {
        None => listener::FilterChain { filters: vec![through(&[])], ..Default::default() },
        Some(termination) => listener::FilterChain {
            name: termination.name.clone(),
            filters: if is_http(termination.protocol) {
                requests(chain, termination)
            } else {
                let permissions = termination.permissions.as_ref().map(|permissions| {
                    let config = permission::network(&termination.mesh, permissions, &rbac_stats(chain));
                    filter::filter("envoy.filters.network.rbac", &config)
                });
                Chain::empty()
                    .with(NetworkSlot::Permission, permissions)
                    .with(NetworkSlot::Handler, [through(&termination.hashed)])
                    .in_order()
            },
            transport_socket: Some(tls::of_mesh_server(&termination.security)),
            ..Default::default()
        },
    }
}

/// Count connections, and those that are open. Neither filter keeps out anything: rules that only pretend to deny,
/// and deny nothing, and a limit that is never reached.
fn counters(server_name: &str) -> [listener::Filter; 2] {
    let stats = system::sni(server_name);
    let all = network_rbac::Rbac {
        shadow_rules: Some(rbac::Rbac { action: rbac::rbac::Action::Deny.into(), ..Default::default() }),
        stat_prefix: format!("{stats}."),
        ..Default::default()
    };
    let open = connection_limit::ConnectionLimit {
        stat_prefix: stats,
        max_connections: Some(UInt64Value { value: u64::MAX }),
        ..Default::default()
    };
    [
        filter::filter("envoy.filters.network.rbac", &all),
        filter::filter("envoy.filters.network.connection_limit", &open),
    ]
}

fn requests(chain: &FilterChain, termination: &TlsTermination) -> Vec<listener::Filter> {
    let permissions = termination.permissions.as_ref().map(|permissions| {
        let config = permission::http(&termination.mesh, permissions, &rbac_stats(chain));
        filter::http_filter("envoy.filters.http.rbac", &config)
    });
    let routes = vec![route::to_outside(&chain.cluster, &termination.hashed)];
    let handled = HttpFilter {
        stats: chain.stats.clone(),
        routes: filter::given(route::configuration(&termination.name, &termination.name, routes)),
        filters: Chain::empty().with(HttpSlot::Permission, permissions),
        grpc: termination.protocol == Protocol::Grpc,
        ipv6: termination.ipv6,
        request_headers: Duration::ZERO,
        // Who called is not for those outside of the mesh.
        direction: ListenerSide::Passthrough,
        logs: Vec::new(),
        tracing: None,
    };
    vec![handled.build()]
}

/// Ends with a dot, as a prefix of statistics does.
fn rbac_stats(chain: &FilterChain) -> String {
    format!("{}.", chain.stats)
}
