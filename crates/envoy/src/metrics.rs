//! Resources of a MeshMetric: pages that the agent writes, and ways to collectors.

use std::time::Duration;

use config::{core::v3::TrafficDirection, listener::v3 as listener, route::v3 as route};
use envoy_types::pb::envoy::{
    config,
    extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier,
};
use plan::{MetricsCollector, MetricsPage, SystemNames};
use prost::Message;
use xds::Type;

use crate::{
    chain::Chain,
    cluster,
    filter::{self, HttpFilter, ListenerSide},
    listener::at,
    part::{MetricsCluster, MetricsOutCluster, MetricsOutListener, PageListener, Part, origin},
    proto::pipe,
    route as routes, tls,
};

/// Path that the agent is asked for.
const PATH: &str = "/meshmetric";

impl Part for PageListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::METRICS;
    const SHAPE: &'static str = "metrics page";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let MetricsPage { names, address, port, path, tls: files, reuse_port, ipv6, .. } = self.0;
        let mut asked = routes::prefix(path, &names.cluster, None);
        if let Some(route::route::Action::Route(action)) = &mut asked.action {
            PATH.clone_into(&mut action.prefix_rewrite);
        }
        let routes = filter::given(routes::configuration("", &names.listener, vec![asked]));
        let chain = listener::FilterChain {
            transport_socket: files.as_ref().map(tls::of_page),
            ..handled(&names.filter_stats, routes, false, *ipv6)
        };
        listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.listener_stats.clone().unwrap_or_default(),
            filter_chains: vec![chain],
            traffic_direction: TrafficDirection::Inbound.into(),
            ..at((*address, *port), true, Some(*reuse_port))
        }
        .encode_to_vec()
    }
}

impl Part for MetricsCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::METRICS;
    const SHAPE: &'static str = "metrics cluster";

    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self) -> Vec<u8> {
        cluster::at_socket(self.name, self.stats, self.socket).encode_to_vec()
    }
}

impl Part for MetricsOutListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::METRICS;
    const SHAPE: &'static str = "metrics out listener";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let MetricsCollector { names, socket, ipv6, .. } = self.0;
        let SystemNames { listener: name, listener_stats, cluster, filter_stats, .. } = names;
        let all = routes::configuration("", name, vec![routes::prefix("/", cluster, None)]);
        let all = filter::given(all);
        at_socket(name, listener_stats.as_deref(), socket, handled(filter_stats, all, true, *ipv6))
    }
}

impl Part for MetricsOutCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::METRICS;
    const SHAPE: &'static str = "metrics out cluster";

    fn name(&self) -> &str {
        &self.0.names.cluster
    }

    fn encode(&self) -> Vec<u8> {
        let MetricsCollector { names, host, port, ipv6, .. } = self.0;
        let stats = names.cluster_stats.as_deref();
        let mut made = cluster::at_host(&names.cluster, stats, (host, *port), *ipv6);
        made.typed_extension_protocol_options = cluster::http2();
        made.encode_to_vec()
    }
}

pub(crate) fn handled(stats: &str, routes: RouteSpecifier, grpc: bool, ipv6: bool) -> listener::FilterChain {
    let handled = HttpFilter {
        stats: stats.to_owned(),
        routes,
        filters: Chain::empty(),
        grpc,
        ipv6,
        request_headers: Duration::ZERO,
        direction: ListenerSide::Admin,
        logs: Vec::new(),
        tracing: None,
    };
    listener::FilterChain { filters: vec![handled.build()], ..Default::default() }
}

pub(crate) fn at_socket(
    name: &str,
    stats: Option<&str>,
    socket: &str,
    chain: listener::FilterChain,
) -> Vec<u8> {
    listener::Listener {
        name: name.to_owned(),
        stat_prefix: stats.unwrap_or_default().to_owned(),
        address: Some(pipe(socket)),
        filter_chains: vec![chain],
        ..Default::default()
    }
    .encode_to_vec()
}
