//! What a MeshMetric needs of Envoy: pages that the agent writes, ways to collectors, and documents for the
//! agent.

use std::time::Duration;

use config::{
    core::v3::{HeaderValue, HeaderValueOption, TrafficDirection},
    listener::v3 as listener,
    route::v3 as route,
};
use envoy_types::pb::envoy::{config, r#type::matcher::v3 as matcher};
use matcher::string_matcher::MatchPattern;
use plan::{AgentConfiguration, MetricsCollector, MetricsPage, SystemNames, metrics::AgentPart};
use prost::Message;
use route::{header_matcher::HeaderMatchSpecifier, route_match::PathSpecifier};
use xds::Type;

use crate::{
    chain::Chain,
    cluster,
    filter::{HttpFilter, Side},
    listener::at,
    part::{
        AgentListener, MetricsCluster, MetricsOutCluster, MetricsOutListener, PageListener, Part, origin,
    },
    proto::{inline, pipe, u32_value},
    route as routes, tls,
};

/// What the agent is asked for.
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
        let routes = routes::configuration("", &names.listener, vec![asked]);
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

impl Part for AgentListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::AGENT;
    const SHAPE: &'static str = "agent listener";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let AgentConfiguration { names, socket, parts, ipv6 } = self.0;
        let all = parts.iter().flat_map(answers).collect();
        let largest = parts.iter().map(|part| part.body.len()).max().unwrap_or_default();
        let mut all = routes::configuration("", &names.listener, all);
        all.validate_clusters = None;
        // Documents are as long as policies; no policy comes near the limit of the field.
        all.max_direct_response_body_size_bytes = Some(u32_value(u32::try_from(largest).unwrap_or(u32::MAX)));
        let chain = handled(&names.filter_stats, all, false, *ipv6);
        at_socket(&names.listener, names.listener_stats.as_deref(), socket, chain)
    }
}

/// Two routes: one for an agent that has the document already, and one for any other.
fn answers(part: &AgentPart) -> [route::Route; 2] {
    let path = || route::RouteMatch {
        path_specifier: Some(PathSpecifier::Path(part.path.to_owned())),
        ..Default::default()
    };
    let known = route::HeaderMatcher {
        name: "If-None-Match".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher::StringMatcher {
            match_pattern: Some(MatchPattern::Exact(part.etag.clone())),
            ..Default::default()
        })),
        ..Default::default()
    };
    let answer = |status, body| {
        let answer = route::DirectResponseAction { status, body, ..Default::default() };
        Some(route::route::Action::DirectResponse(answer))
    };
    let etag = HeaderValue { key: "Etag".to_owned(), value: part.etag.clone(), ..Default::default() };
    [
        route::Route {
            name: part.not_modified.clone(),
            r#match: Some(route::RouteMatch { headers: vec![known], ..path() }),
            action: answer(304, None),
            ..Default::default()
        },
        route::Route {
            name: part.route.clone(),
            r#match: Some(path()),
            action: answer(200, Some(inline(&part.body))),
            response_headers_to_add: vec![HeaderValueOption { header: Some(etag), ..Default::default() }],
            ..Default::default()
        },
    ]
}

fn handled(stats: &str, routes: route::RouteConfiguration, grpc: bool, ipv6: bool) -> listener::FilterChain {
    let handled = HttpFilter {
        stats: stats.to_owned(),
        routes,
        filters: Chain::empty(),
        grpc,
        ipv6,
        request_headers: Duration::ZERO,
        direction: Side::Admin,
        logs: Vec::new(),
        tracing: None,
    };
    listener::FilterChain { filters: vec![handled.build()], ..Default::default() }
}

fn at_socket(name: &str, stats: Option<&str>, socket: &str, chain: listener::FilterChain) -> Vec<u8> {
    listener::Listener {
        name: name.to_owned(),
        stat_prefix: stats.unwrap_or_default().to_owned(),
        address: Some(pipe(socket)),
        filter_chains: vec![chain],
        ..Default::default()
    }
    .encode_to_vec()
}
