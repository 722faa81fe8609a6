//! Answers calls to trimmed destinations, as Envoy's configuration.
//!
//! One listener has the addresses of all of them. Requests are answered with 403 and with what decides; no chain of
//! filters takes anything else, which ends the connection and counts it. A virtual host stands for what decides, and is
//! chosen by the address of the connection, not by the host that the application asks for.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use core::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
    substitution_format_string::Format,
};
use envoy_types::pb::envoy::{
    config::{
        common::mutation_rules::v3::{HeaderMutation, header_mutation::Action},
        core::v3 as core,
        listener::v3 as listener,
        route::v3 as route,
    },
    extensions::{
        filters::{
            listener::http_inspector::v3::HttpInspector,
            network::http_connection_manager::v3::LocalReplyConfig,
        },
        http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyMutation,
    },
};
use plan::{PolicyRefusal, Stub};
use prost::Message;
use xds::Type;

use crate::{
    chain::Chain,
    filter::{self, HttpFilter, ListenerSide},
    listener::at,
    part::{Part, origin},
    proto::{any, duration, inline, ip_address, u32_value},
    route as routes,
};

/// Header of an answer that names the resource that decided.
const TRIMMED_BY: &str = "x-kuma-trimmed-by";
/// Header with the address of the connection, for choosing a virtual host.
const CALLED_AT: &str = "x-kuma-called-at";
/// Format of the answer: the reason, then the called host and address.
const CALLED: &str = "%LOCAL_REPLY_BODY%Called: %REQ(:AUTHORITY)% at %DOWNSTREAM_LOCAL_ADDRESS%\n";
/// Time limit for the first bytes of a client: those that wait for the server would wait for ever.
const FIRST_BYTES: Duration = Duration::from_secs(1);

/// The listener of all destinations that were trimmed.
#[derive(Hash)]
pub(crate) struct StubListener<'a>(pub &'a Stub);

impl Part for StubListener<'_> {
    const TYPE: Type = Type::Listener;
    const ORIGIN: &'static str = origin::STUB;
    const SHAPE: &'static str = "stub listener";

    fn name(&self) -> &str {
        &self.0.names.listener
    }

    fn encode(&self) -> Vec<u8> {
        let Stub { names, bind, .. } = self.0;
        let mut addresses: Vec<(IpAddr, u16)> = self.0.addresses().collect();
        addresses.sort_unstable();
        let further = addresses.iter().skip(1).map(|&(ip, port)| listener::AdditionalAddress {
            address: Some(ip_address(ip, port)),
            ..Default::default()
        });
        listener::Listener {
            name: names.listener.clone(),
            stat_prefix: names.stats.clone(),
            additional_addresses: further.collect(),
            filter_chains: vec![self.requests()],
            listener_filters: vec![http_inspector()],
            listener_filters_timeout: Some(duration(FIRST_BYTES)),
            continue_on_listener_filters_timeout: true,
            traffic_direction: core::TrafficDirection::Outbound.into(),
            ..addresses.first().map(|&first| at(first, *bind, None)).unwrap_or_default()
        }
        .encode_to_vec()
    }
}

impl StubListener<'_> {
    fn requests(&self) -> listener::FilterChain {
        let Stub { names, ipv6, client, refusals, .. } = self.0;
        let mut routes = routes::configuration(&names.listener, &names.listener, Vec::new());
        routes.virtual_hosts = refusals.iter().map(|refusal| virtual_host(client, refusal)).collect();
        CALLED_AT.clone_into(&mut routes.vhost_header);
        let mut manager = HttpFilter {
            stats: names.stats.clone(),
            routes: filter::given(routes),
            filters: Chain::empty(),
            grpc: false,
            ipv6: *ipv6,
            request_headers: Duration::ZERO,
            direction: ListenerSide::Passthrough,
            logs: Vec::new(),
            tracing: None,
        }
        .manager();
        manager.early_header_mutation_extensions = vec![called_at()];
        manager.local_reply_config =
            Some(LocalReplyConfig { body_format: Some(called()), mappers: Vec::new() });
        // The next request is for what is at the address by then.
        manager.common_http_protocol_options = Some(core::HttpProtocolOptions {
            max_requests_per_connection: Some(u32_value(1)),
            ..Default::default()
        });
        listener::FilterChain {
            filter_chain_match: Some(listener::FilterChainMatch {
                application_protocols: ["http/1.0", "http/1.1", "h2c"].map(str::to_owned).into(),
                ..Default::default()
            }),
            filters: vec![filter::handled(&manager)],
            ..Default::default()
        }
    }
}

fn virtual_host(client: &str, refusal: &PolicyRefusal) -> route::VirtualHost {
    let PolicyRefusal { decided_by, denied, addresses } = refusal;
    let decided_by = decided_by.to_string();
    let answer = route::DirectResponseAction {
        status: 403,
        body: Some(inline(&reason(client, &decided_by, *denied))),
        ..Default::default()
    };
    let mut refused = routes::prefix("/", "", None);
    refused.action = Some(route::route::Action::DirectResponse(answer));
    route::VirtualHost {
        name: decided_by.clone(),
        domains: addresses.iter().map(|&(ip, port)| SocketAddr::new(ip, port).to_string()).collect(),
        routes: vec![refused],
        response_headers_to_add: vec![header(TRIMMED_BY, decided_by)],
        ..Default::default()
    }
}

fn reason(client: &str, decided_by: &str, denied: bool) -> String {
    let why = if denied {
        format!("{decided_by} denies it")
    } else {
        "no MeshTrafficPermission allows it".to_owned()
    };
    format!(
        "{client} may not call this destination: {why}. The proxy of {client} has no configuration for it \
         (reachability.kuma.io/mode: enforce).\nA MeshTrafficPermission of the destination that allows {client} opens \
         it; `kumactl access` explains who may call whom.\n"
    )
}

fn header(key: &str, value: String) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value, ..Default::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    }
}

fn called_at() -> core::TypedExtensionConfig {
    let written = header(CALLED_AT, "%DOWNSTREAM_LOCAL_ADDRESS%".to_owned());
    let mutations = vec![HeaderMutation { action: Some(Action::Append(written)) }];
    core::TypedExtensionConfig {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(any(&EarlyMutation { mutations })),
    }
}

fn called() -> core::SubstitutionFormatString {
    core::SubstitutionFormatString {
        format: Some(Format::TextFormatSource(inline(CALLED))),
        ..Default::default()
    }
}

fn http_inspector() -> listener::ListenerFilter {
    listener::ListenerFilter {
        name: "envoy.filters.listener.http_inspector".to_owned(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(&HttpInspector::default()))),
        ..Default::default()
    }
}
