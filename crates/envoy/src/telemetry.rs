//! Collectors of logs and spans, and how spans are made for them.

use std::time::Duration;

use core::{grpc_service, http_uri::HttpUpstreamType};
use envoy_types::pb::envoy::{
    config::{
        core::v3 as core,
        trace::v3::{
            DatadogConfig, OpenTelemetryConfig, ZipkinConfig,
            tracing::{Http, http::ConfigType},
            zipkin_config::CollectorEndpointVersion,
        },
    },
    extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
    r#type::{
        tracing::v3::{CustomTag, custom_tag},
        v3::Percent,
    },
};
use plan::{Collector, SpanTag, Tracer};
use prost::{Message, Name};
use xds::Type;

use crate::{
    cluster::{at_host, http2},
    part::{CollectorCluster, Part, origin},
    proto::{any, bool_value, duration},
    tls,
};

/// Time limit of a request to a collector.
const PATIENCE: Duration = Duration::from_secs(10);
const MILLION: f64 = 1_000_000.0;

impl Part for CollectorCluster<'_> {
    const TYPE: Type = Type::Cluster;
    const ORIGIN: &'static str = origin::TELEMETRY;
    const SHAPE: &'static str = "collector cluster";

    fn name(&self) -> &str {
        &self.0.cluster
    }

    fn encode(&self) -> Vec<u8> {
        let Collector { cluster, cluster_stats, host, port, tls, ipv6, .. } = self.0;
        let mut made = at_host(cluster, cluster_stats.as_deref(), (host, *port), *ipv6);
        if self.0.http2 {
            made.typed_extension_protocol_options = http2();
        }
        made.transport_socket = tls.as_ref().map(tls::of_external);
        made.encode_to_vec()
    }
}

pub(crate) fn grpc_to(cluster: &str) -> core::GrpcService {
    core::GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc_service::EnvoyGrpc {
            cluster_name: cluster.to_owned(),
            ..Default::default()
        })),
        ..Default::default()
    }
}

pub(crate) fn http_to(cluster: &str, url: &str) -> core::HttpService {
    core::HttpService {
        http_uri: Some(core::HttpUri {
            uri: url.to_owned(),
            timeout: Some(duration(PATIENCE)),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster.to_owned())),
        }),
        ..Default::default()
    }
}

/// Listener that spans are from.
pub(crate) enum TracedListener<'a> {
    Inbound,
    /// With the name of the destination.
    Outbound(&'a str),
}

/// Encodes the tracing of a listener's requests.
pub(crate) fn tracing(of: &plan::Tracing, traced: &TracedListener<'_>) -> Tracing {
    let percent = |share: Option<i64>| {
        share.map(|millionths| {
            #[allow(clippy::cast_precision_loss, reason = "no percentage has that many digits")]
            let value = millionths as f64 / MILLION;
            Percent { value }
        })
    };
    Tracing {
        client_sampling: percent(of.sampling.client),
        random_sampling: percent(of.sampling.random),
        overall_sampling: percent(of.sampling.overall),
        custom_tags: of.tags.iter().map(tag).collect(),
        provider: Some(provider(&of.tracer, traced)),
        ..Default::default()
    }
}

fn provider(tracer: &Tracer, traced: &TracedListener<'_>) -> Http {
    match tracer {
        Tracer::Zipkin { cluster, host, path, protobuf, trace_id_128bit, shared_span_context } => {
            let version = if *protobuf {
                CollectorEndpointVersion::HttpProto
            } else {
                CollectorEndpointVersion::HttpJson
            };
            let config = ZipkinConfig {
                collector_cluster: cluster.clone(),
                collector_endpoint: path.clone(),
                collector_hostname: host.clone(),
                collector_endpoint_version: version.into(),
                trace_id_128bit: *trace_id_128bit,
                shared_span_context: Some(bool_value(*shared_span_context)),
                ..Default::default()
            };
            named("envoy.tracers.zipkin", &config)
        }
        Tracer::Datadog { cluster, service, split } => {
            let service_name = match traced {
                _ if !split => service.clone(),
                TracedListener::Inbound => format!("{service}_INBOUND"),
                TracedListener::Outbound(destination) => format!("{service}_OUTBOUND_{destination}"),
            };
            let config =
                DatadogConfig { collector_cluster: cluster.clone(), service_name, ..Default::default() };
            named("envoy.tracers.datadog", &config)
        }
        Tracer::OpenTelemetry { cluster, service, url } => {
            let config = OpenTelemetryConfig {
                service_name: service.clone(),
                grpc_service: url.is_none().then(|| grpc_to(cluster)),
                http_service: url.as_ref().map(|url| http_to(cluster, url)),
                ..Default::default()
            };
            named("envoy.tracers.opentelemetry", &config)
        }
    }
}

fn named<M: Message + Name>(name: &str, config: &M) -> Http {
    Http { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(any(config))) }
}

fn tag(tag: &SpanTag) -> CustomTag {
    let kind = match tag {
        SpanTag::Literal { value, .. } => {
            custom_tag::Type::Literal(custom_tag::Literal { value: value.clone() })
        }
        SpanTag::Header { header, default, .. } => custom_tag::Type::RequestHeader(custom_tag::Header {
            name: header.clone(),
            default_value: default.clone().unwrap_or_default(),
        }),
    };
    CustomTag { tag: tag.name().to_owned(), r#type: Some(kind) }
}
