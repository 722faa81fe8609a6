//! Small pieces of protobuf that every resource needs.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use envoy_types::pb::{
    envoy::config::core::v3 as core,
    google::protobuf::{self, Any, BoolValue, UInt32Value},
};
use prost::{Message, Name};

/// A message where any message may stand.
pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

pub(crate) fn duration(value: Duration) -> protobuf::Duration {
    protobuf::Duration {
        // No timeout comes near the limits of the wire form.
        seconds: i64::try_from(value.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(value.subsec_nanos()).unwrap_or_default(),
    }
}

pub(crate) fn bool_value(value: bool) -> BoolValue {
    BoolValue { value }
}

pub(crate) fn u32_value(value: u32) -> UInt32Value {
    UInt32Value { value }
}

pub(crate) fn socket_address(address: &str, port: u32) -> core::SocketAddress {
    core::SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
        ..Default::default()
    }
}

pub(crate) fn address(address: &str, port: u32) -> core::Address {
    let socket = socket_address(address, port);
    core::Address { address: Some(core::address::Address::SocketAddress(socket)) }
}

pub(crate) fn ip_address(ip: IpAddr, port: u16) -> core::Address {
    address(&ip.to_string(), port.into())
}

pub(crate) fn pipe(path: &str) -> core::Address {
    let pipe = core::Pipe { path: path.to_owned(), mode: 0 };
    core::Address { address: Some(core::address::Address::Pipe(pipe)) }
}

/// "Ask over the stream this came from."
pub(crate) fn from_ads() -> core::ConfigSource {
    core::ConfigSource {
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        ..Default::default()
    }
}

/// Keys and certificates.
pub(crate) fn inline_bytes(text: &str) -> core::DataSource {
    core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineBytes(text.as_bytes().to_vec())),
        ..Default::default()
    }
}

pub(crate) fn inline(text: &str) -> core::DataSource {
    core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineString(text.to_owned())),
        ..Default::default()
    }
}

/// `envoy.config.core.v3.Metadata` with sorted maps.
///
/// The generated type keeps its maps in random order, and with it the bytes of a resource would differ
/// from one encoding to the next.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, prost_types::Struct>,
}

impl Metadata {
    pub(crate) fn of_tags<'a>(
        namespaces: &[&str],
        tags: impl Iterator<Item = (&'a String, &'a String)> + Clone,
    ) -> Metadata {
        let text = |value: &String| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(value.clone())),
        };
        let fields: BTreeMap<_, _> = tags.map(|(name, value)| (name.clone(), text(value))).collect();
        let filter_metadata = namespaces
            .iter()
            .map(|name| ((*name).to_owned(), prost_types::Struct { fields: fields.clone() }))
            .collect();
        Metadata { filter_metadata }
    }
}
