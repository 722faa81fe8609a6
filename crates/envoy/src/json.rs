//! Resources as JSON, for people who want to see what a proxy is sent.
//!
//! Messages are read with the descriptions of all of Envoy's types, so that whatever stands where any
//! message may stand is shown too. The descriptions (`descriptors.bin`) are those of `envoy-types`
//! without comments; a test keeps them in step. They are unpacked when first asked for.

use std::sync::OnceLock;

use prost_reflect::{
    DescriptorError, DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage,
    SerializeOptions,
};
use serde_json::{Value, value};

use crate::kafka;

static DESCRIPTORS: &[u8] = include_bytes!("../descriptors.bin");

/// Reason why a message cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the descriptions of Envoy's types cannot be read: {0}")]
    Descriptors(String),
    #[error("{0:?} is not an Envoy type")]
    UnknownType(String),
    #[error("this is not a message of type {type_name:?}: {reason}")]
    Message { type_name: String, reason: String },
}

/// A message as JSON, fields named as in protobuf's JSON form (`connectTimeout`). The type may be
/// given as a URL or as a bare name.
pub fn to_json(type_url: &str, message: &[u8]) -> Result<Value, Error> {
    show(&decode(type_url, message)?)
}

/// A message by the description of its type.
pub(crate) fn decode(type_url: &str, message: &[u8]) -> Result<DynamicMessage, Error> {
    let descriptor = descriptor(type_url)?;
    let type_name = descriptor.full_name().to_owned();
    let refused = |reason: String| Error::Message { type_name, reason };
    DynamicMessage::decode(descriptor, message).map_err(|error| refused(error.to_string()))
}

/// As [`to_json`].
pub(crate) fn show(message: &DynamicMessage) -> Result<Value, Error> {
    let shown = message.serialize_with_options(value::Serializer, &SerializeOptions::new());
    shown.map_err(|error| Error::Message {
        type_name: message.descriptor().full_name().to_owned(),
        reason: error.to_string(),
    })
}

/// A message from JSON, and what of it was ignored: a field that its type does not have. Other versions of Envoy
/// may have it.
pub(crate) fn read(type_url: &str, shown: &Value) -> Result<(DynamicMessage, Option<String>), Error> {
    let descriptor = descriptor(type_url)?;
    let read = |strict: bool| {
        let options = DeserializeOptions::new().deny_unknown_fields(strict);
        DynamicMessage::deserialize_with_options(descriptor.clone(), shown, &options)
            .map_err(|error| error.to_string())
    };
    let type_name = descriptor.full_name().to_owned();
    match read(true) {
        Ok(message) => Ok((message, None)),
        Err(reason) if reason.starts_with("unrecognized field name") => {
            let message = read(false).map_err(|reason| Error::Message { type_name, reason })?;
            Ok((message, Some(reason)))
        }
        Err(reason) => Err(Error::Message { type_name, reason }),
    }
}

fn descriptor(type_url: &str) -> Result<MessageDescriptor, Error> {
    let type_name = type_url.rsplit('/').next().unwrap_or(type_url);
    let known = pool()?.get_message_by_name(type_name);
    known.ok_or_else(|| Error::UnknownType(type_name.to_owned()))
}

fn pool() -> Result<&'static DescriptorPool, Error> {
    static POOL: OnceLock<Result<DescriptorPool, Error>> = OnceLock::new();
    let read = || {
        let mut pool = DescriptorPool::decode(DESCRIPTORS)?;
        pool.add_file_descriptor_proto(kafka::description())?;
        Ok(pool)
    };
    let read = || read().map_err(|error: DescriptorError| Error::Descriptors(error.to_string()));
    POOL.get_or_init(read).as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path, process::Command};

    use envoy_types::pb::envoy::{
        config::{
            listener::v3::{Filter, FilterChain, Listener, filter::ConfigType},
            route::v3::RouteConfiguration,
        },
        extensions::filters::{
            http::router::v3::Router,
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier,
                http_filter::ConfigType as HttpConfigType,
            },
        },
    };
    use prost::{Message, Name};
    use prost_types::FileDescriptorSet;
    use serde_json::json;

    use super::*;
    use crate::proto;

    fn listener() -> Listener {
        let router = HttpFilter {
            name: "router".to_owned(),
            config_type: Some(HttpConfigType::TypedConfig(proto::any(&Router {
                suppress_envoy_headers: true,
                ..Router::default()
            }))),
            ..HttpFilter::default()
        };
        let routes = RouteConfiguration { name: "inbound".to_owned(), ..RouteConfiguration::default() };
        let manager = HttpConnectionManager {
            stat_prefix: "web".to_owned(),
            request_timeout: Some(proto::duration(std::time::Duration::from_millis(1500))),
            http_filters: vec![router],
            route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
            ..HttpConnectionManager::default()
        };
        let filter = Filter {
            name: "manager".to_owned(),
            config_type: Some(ConfigType::TypedConfig(proto::any(&manager))),
        };
        Listener {
            name: "inbound:127.0.0.1:80".to_owned(),
            address: Some(proto::address("127.0.0.1", 80)),
            filter_chains: vec![FilterChain { filters: vec![filter], ..FilterChain::default() }],
            ..Listener::default()
        }
    }

    #[test]
    fn a_listener_is_shown_with_everything_nested_in_it() {
        let types = "type.googleapis.com/envoy.extensions.filters";
        let expect = json!({
            "name": "inbound:127.0.0.1:80",
            "address": { "socketAddress": { "address": "127.0.0.1", "portValue": 80 } },
            "filterChains": [{ "filters": [{
                "name": "manager",
                "typedConfig": {
                    "@type": format!("{types}.network.http_connection_manager.v3.HttpConnectionManager"),
                    "statPrefix": "web",
                    "routeConfig": { "name": "inbound" },
                    "httpFilters": [{
                        "name": "router",
                        "typedConfig": {
                            "@type": format!("{types}.http.router.v3.Router"),
                            "suppressEnvoyHeaders": true,
                        },
                    }],
                    "requestTimeout": "1.500s",
                },
            }] }],
        });
        let encoded = listener().encode_to_vec();
        assert_eq!(to_json(&Listener::type_url(), &encoded).unwrap(), expect);
        assert_eq!(to_json("envoy.config.listener.v3.Listener", &encoded).unwrap(), expect);
    }

    #[test]
    fn what_is_no_message_of_the_type_is_refused() {
        let unknown = to_json("type.googleapis.com/example.Nothing", b"");
        assert_eq!(unknown, Err(Error::UnknownType("example.Nothing".to_owned())));
        let garbage = to_json(&Listener::type_url(), b"\xff\xff\xff");
        assert!(matches!(garbage, Err(Error::Message { .. })), "{garbage:?}");
    }

    /// The descriptions that came with the crate, without comments.
    fn descriptors() -> Vec<u8> {
        let cargo = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .output()
            .unwrap();
        assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
        let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
        let manifests: BTreeMap<&str, &str> = metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| (package["name"].as_str().unwrap(), package["manifest_path"].as_str().unwrap()))
            .collect();
        let shipped = Path::new(manifests["envoy-types"]).with_file_name("src/generated/types.bin");
        let mut files = FileDescriptorSet::decode(&*fs::read(shipped).unwrap()).unwrap();
        for file in &mut files.file {
            file.source_code_info = None;
        }
        files.encode_to_vec()
    }

    #[test]
    fn the_committed_descriptions_are_those_of_the_types_in_use() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors.bin");
        let current = descriptors();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &current).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == current,
            "crates/envoy/descriptors.bin is out of date: run the tests of `envoy` with UPDATE=1"
        );
    }
}
