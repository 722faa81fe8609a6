//! Documents for the agent, as Envoy's configuration: a listener at a socket that answers with them.
//!
//! Hostnames are the same for all proxies of a class and as long as the mesh is large. They are encoded once and joined
//! with what is each proxy's own when a response is made, so that a proxy costs the same memory however many
//! hostnames there are. Both must be in one route configuration, which therefore is discovered apart from the
//! listener: after everything that the hostnames lead to.

use std::sync::Arc;

use bytes::Bytes;
use config::{
    core::v3::{HeaderValue, HeaderValueOption},
    route::v3 as route,
};
use envoy_types::pb::envoy::{
    config,
    extensions::filters::network::http_connection_manager::v3::{
        Rds, http_connection_manager::RouteSpecifier,
    },
    r#type::matcher::v3 as matcher,
};
use matcher::string_matcher::MatchPattern;
use plan::{AgentConfiguration, AgentPart};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use route::{header_matcher::HeaderMatchSpecifier, route_match::PathSpecifier};
use xds::{Encoded, Type};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    filter,
    metrics::{at_socket, handled},
    part::{AgentListener, Part, origin},
    proto::{from_ads, inline, u32_value},
};

/// The field of a route configuration that holds its virtual hosts.
const VIRTUAL_HOSTS: u32 = 2;

/// Documents for all agents of a class, encoded.
#[derive(Debug, Clone)]
pub struct Documents(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    routes: Bytes,
    largest: usize,
    version: u128,
}

impl PartialEq for Documents {
    fn eq(&self, other: &Documents) -> bool {
        self.0.version == other.0.version
    }
}

impl Documents {
    pub fn of(part: &AgentPart) -> Documents {
        let only_routes = route::VirtualHost { routes: answers(part).into(), ..Default::default() };
        let routes: Bytes = only_routes.encode_to_vec().into();
        Documents(Arc::new(Shared { version: xxh3_128(&routes), routes, largest: part.body.len() }))
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
        let AgentConfiguration { names, socket, with_hostnames, ipv6, .. } = self.0;
        let routes = if *with_hostnames {
            RouteSpecifier::Rds(Rds {
                config_source: Some(from_ads()),
                route_config_name: names.listener.clone(),
            })
        } else {
            filter::given(configuration(self.0, "", None))
        };
        let chain = handled(&names.filter_stats, routes, false, *ipv6);
        at_socket(&names.listener, names.listener_stats.as_deref(), socket, chain)
    }
}

/// The answers of an agent's listener where hostnames are among them.
pub(crate) fn routes(agent: &AgentConfiguration, shared: Option<&Documents>) -> Encoded {
    let name = &agent.names.listener;
    let mut whole = configuration(agent, name, shared);
    let host = whole.virtual_hosts.pop().unwrap_or_default().encode_to_vec();
    let tail = shared.map(|documents| documents.0.routes.clone()).unwrap_or_default();
    // The virtual host comes last, and its routes last in it, so that those of the class can follow.
    let mut own = whole.encode_to_vec();
    encode_key(VIRTUAL_HOSTS, WireType::LengthDelimited, &mut own);
    encode_varint((host.len() + tail.len()) as u64, &mut own);
    own.extend(host);
    let mut version = Xxh3::new();
    version.update(&own);
    version.update(&shared.map_or(0, |documents| documents.0.version).to_le_bytes());
    Encoded::joined(Type::Route, name, version.digest128(), &own, tail)
}

/// With the documents for one agent, and room for those of the class.
fn configuration(
    agent: &AgentConfiguration,
    name: &str,
    shared: Option<&Documents>,
) -> route::RouteConfiguration {
    let lengths = agent.parts.iter().map(|part| part.body.len());
    let largest = lengths.chain(shared.map(|documents| documents.0.largest)).max().unwrap_or_default();
    let all = agent.parts.iter().flat_map(answers).collect();
    let mut made = crate::route::configuration(name, &agent.names.listener, all);
    made.validate_clusters = None;
    // Messages of more than 4 GiB cannot be sent over gRPC.
    made.max_direct_response_body_size_bytes = Some(u32_value(u32::try_from(largest).unwrap_or(u32::MAX)));
    made
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
