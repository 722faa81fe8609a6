//! Counts requests to a Kafka broker.
//!
//! The filter is one of those that usual builds of Envoy leave out, and so do the generated types. Only a proxy that
//! lists it gets it: any other would reject the whole listener.

use envoy_types::pb::envoy::config::listener::v3 as listener;
use prost::{Message, Name};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::filter;

/// Name of the filter in Envoy, in its list of extensions too.
pub const FILTER: &str = "envoy.filters.network.kafka_broker";
const PACKAGE: &str = "envoy.extensions.filters.network.kafka_broker.v3";

/// `envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker`
#[derive(Clone, PartialEq, Eq, Message)]
struct KafkaBroker {
    #[prost(string, tag = "1")]
    stat_prefix: String,
}

impl Name for KafkaBroker {
    const NAME: &'static str = "KafkaBroker";
    const PACKAGE: &'static str = PACKAGE;

    fn type_url() -> String {
        format!("type.googleapis.com/{PACKAGE}.{}", Self::NAME)
    }
}

pub(crate) fn filter(stats: &str) -> listener::Filter {
    filter::filter(FILTER, &KafkaBroker { stat_prefix: stats.to_owned() })
}

/// Returns the description of the message, by which it is shown.
pub(crate) fn description() -> FileDescriptorProto {
    let mut stat_prefix = FieldDescriptorProto {
        name: Some("stat_prefix".to_owned()),
        json_name: Some("statPrefix".to_owned()),
        number: Some(1),
        ..FieldDescriptorProto::default()
    };
    stat_prefix.set_type(Type::String);
    stat_prefix.set_label(Label::Optional);
    FileDescriptorProto {
        name: Some("kafka_broker.proto".to_owned()),
        package: Some(PACKAGE.to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![DescriptorProto {
            name: Some(KafkaBroker::NAME.to_owned()),
            field: vec![stat_prefix],
            ..DescriptorProto::default()
        }],
        ..FileDescriptorProto::default()
    }
}
