//! MeshPassthrough as Envoy's configuration: a filter chain for each match.

use std::{collections::BTreeSet, time::Duration};

use envoy_types::pb::envoy::{
    config::{core::v3 as core, listener::v3 as listener, route::v3 as route},
    extensions::filters::listener::{
        http_inspector::v3::HttpInspector, original_dst::v3::OriginalDst, tls_inspector::v3::TlsInspector,
    },
    r#type::v3::Int32Range,
};
use listener::{
    listener_filter::ConfigType,
    listener_filter_chain_match_predicate::{MatchSet, Rule},
};
use plan::{AccessLog, Host, PassthroughMatch, PassthroughProtocol};
use prost::{Message, Name};

use crate::{
    access_log,
    chain::Chain,
    filter::{self, HttpFilter, ListenerSide},
    proto::{any, inline, u32_value},
    route as routes,
};

const NO_MATCH: &str = "This response comes from Kuma Sidecar. No routes matched this domain - check configuration of your MeshPassthrough policy.\n";

/// `ipv6`: whether the listener is one for IPv6.
pub(crate) fn chains(
    ways: &[PassthroughMatch],
    ipv6: bool,
    logs: &[AccessLog],
) -> Vec<listener::FilterChain> {
    ways.iter()
        .map(|way| listener::FilterChain {
            name: way.name.clone(),
            filter_chain_match: Some(told_by(way)),
            filters: vec![if way.protocol.is_http() { http(way, ipv6, logs) } else { bytes(way, logs) }],
            ..Default::default()
        })
        .collect()
}

/// They find out what matches depend on: the original destination of a connection, and its protocol. Servers
/// that speak first
/// would wait for clients that wait for them, so nothing is waited for at their ports.
pub(crate) fn listener_filters(ways: &[PassthroughMatch]) -> Vec<listener::ListenerFilter> {
    let silent: BTreeSet<u16> =
        ways.iter().filter(|way| way.server_first).filter_map(|way| way.port).collect();
    let mut rules = silent.into_iter().map(|port| predicate(Rule::DestinationPortRange(range(port))));
    let filter_disabled = match rules.len() {
        0 | 1 => rules.next(),
        _ => Some(predicate(Rule::OrMatch(MatchSet { rules: rules.collect() }))),
    };
    vec![
        listener_filter("envoy.filters.listener.original_dst", &OriginalDst::default(), None),
        listener_filter(
            "envoy.filters.listener.tls_inspector",
            &TlsInspector::default(),
            filter_disabled.clone(),
        ),
        listener_filter("envoy.filters.listener.http_inspector", &HttpInspector::default(), filter_disabled),
    ]
}

fn told_by(way: &PassthroughMatch) -> listener::FilterChainMatch {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    listener::FilterChainMatch {
        destination_port: way.port.map(|port| u32_value(port.into())),
        prefix_ranges: way
            .addresses
            .iter()
            .map(|of| core::CidrRange {
                address_prefix: of.first.to_string(),
                prefix_len: Some(u32_value(of.prefix.into())),
            })
            .collect(),
        server_names: way.server_name.iter().cloned().collect(),
        transport_protocol: if way.protocol == PassthroughProtocol::Tls { "tls" } else { "raw_buffer" }
            .to_owned(),
        application_protocols: if way.protocol.is_http() { texts(&["http/1.1", "h2c"]) } else { Vec::new() },
        ..Default::default()
    }
}

fn bytes(way: &PassthroughMatch, logs: &[AccessLog]) -> listener::Filter {
    let cluster = way.hosts.first().map_or("", |host| &host.cluster);
    filter::tcp(&way.stats, filter::to_cluster(cluster), None, None, access_log::of(logs), &[])
}

fn http(way: &PassthroughMatch, ipv6: bool, logs: &[AccessLog]) -> listener::Filter {
    let mut virtual_hosts: Vec<route::VirtualHost> = way.hosts.iter().map(virtual_host).collect();
    let catch_all = |host: &Host| host.domains.iter().any(|domain| domain == "*");
    if !way.hosts.iter().any(catch_all) {
        virtual_hosts.push(no_match());
    }
    let mut routes = routes::configuration(&way.name, &way.name, Vec::new());
    routes.virtual_hosts = virtual_hosts;
    HttpFilter {
        stats: way.stats.clone(),
        routes: filter::given(routes),
        filters: Chain::empty(),
        grpc: false,
        ipv6,
        request_headers: Duration::ZERO,
        direction: ListenerSide::Passthrough,
        logs: access_log::of(logs),
        tracing: None,
    }
    .build()
}

fn virtual_host(host: &Host) -> route::VirtualHost {
    route::VirtualHost {
        name: host.name.clone(),
        domains: host.domains.clone(),
        routes: vec![routes::prefix("/", &host.cluster, None)],
        ..Default::default()
    }
}

fn no_match() -> route::VirtualHost {
    let response =
        route::DirectResponseAction { status: 503, body: Some(inline(NO_MATCH)), ..Default::default() };
    let mut refused = routes::prefix("/", "", None);
    refused.action = Some(route::route::Action::DirectResponse(response));
    route::VirtualHost {
        name: "no_match".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![refused],
        ..Default::default()
    }
}

fn range(port: u16) -> Int32Range {
    Int32Range { start: port.into(), end: i32::from(port) + 1 }
}

fn predicate(rule: Rule) -> listener::ListenerFilterChainMatchPredicate {
    listener::ListenerFilterChainMatchPredicate { rule: Some(rule) }
}

fn listener_filter<M: Message + Name>(
    name: &str,
    config: &M,
    filter_disabled: Option<listener::ListenerFilterChainMatchPredicate>,
) -> listener::ListenerFilter {
    listener::ListenerFilter {
        name: name.to_owned(),
        filter_disabled,
        config_type: Some(ConfigType::TypedConfig(any(config))),
    }
}
