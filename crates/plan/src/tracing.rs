//! Selection of traced requests, and targets of their spans: MeshTrace.

use std::sync::Arc;

use resources::{
    Kind,
    kinds::{
        host_port::Url,
        int_or_string::IntOrString,
        mesh_trace::{ApiVersion, Backend, Conf, Datadog, Tag, Zipkin},
    },
    naming::system,
};
use topology::MeshSnapshot;

use crate::{
    Code, Collector, Effective, Finding, NamingScheme, ProxyTraits, Reporter, access_logs,
    telemetry::{CollectorAddress, Unavailable},
};

const SIGNAL: &str = "v1/traces";

/// Configuration of tracing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tracing {
    pub tracer: Tracer,
    pub sampling: Sampling,
    pub tags: Vec<SpanTag>,
}

/// Collector of the spans.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tracer {
    Zipkin {
        cluster: String,
        /// Host in requests to the collector.
        host: String,
        path: String,
        protobuf: bool,
        trace_id_128bit: bool,
        shared_span_context: bool,
    },
    Datadog {
        cluster: String,
        service: String,
        /// The name of the service contains direction and destination, too.
        split: bool,
    },
    OpenTelemetry {
        cluster: String,
        service: String,
        /// URL for spans that are sent without gRPC.
        url: Option<String>,
    },
}

/// Shares of requests that are traced, in millionths of a percent; `None` traces all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sampling {
    pub overall: Option<i64>,
    pub client: Option<i64>,
    pub random: Option<i64>,
}

/// Attribute of spans.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SpanTag {
    Literal { name: String, value: String },
    Header { name: String, header: String, default: Option<String> },
}

impl SpanTag {
    pub fn name(&self) -> &str {
        match self {
            SpanTag::Literal { name, .. } | SpanTag::Header { name, .. } => name,
        }
    }
}

/// Input for planning traces.
pub(crate) struct Traces<'a> {
    pub snapshot: &'a MeshSnapshot,
    pub names: NamingScheme,
    pub effective: &'a Effective<'a>,
    pub reporter: &'a Reporter,
    pub system_ca_path: Option<&'a str>,
}

impl Traces<'_> {
    /// Plans tracing; `None` if requests are not traced, or cannot be.
    pub fn plan(&self) -> Option<Arc<Tracing>> {
        let conf = self.effective.proxy(Kind::MeshTrace)?.typed::<Conf>().ok()?;
        let (tracer, _) = self.tracer(conf.backends.as_ref()?.first()?).ok()?;
        let sampling = conf.sampling.clone().unwrap_or_default();
        let share = |value: Option<&IntOrString>| value.and_then(IntOrString::millionths);
        Some(Arc::new(Tracing {
            tracer,
            sampling: Sampling {
                overall: share(sampling.overall.as_ref()),
                client: share(sampling.client.as_ref()),
                random: share(sampling.random.as_ref()),
            },
            tags: self.tags(conf.tags.as_deref().unwrap_or_default()),
        }))
    }

    /// The cluster of the collector, or why there is none.
    pub fn collector(&self, traits: &ProxyTraits, findings: &mut Vec<Finding>) -> Option<Collector> {
        let merged = self.effective.proxy(Kind::MeshTrace)?;
        let conf = merged.typed::<Conf>().ok()?;
        match self.tracer(conf.backends.as_ref()?.first()?) {
            Ok((tracer, place)) => {
                let cluster = self.named(&tracer, &place.name);
                Some(place.collector(cluster, traits))
            }
            Err((code, reason)) => {
                let text = format!("requests are not traced: {reason}");
                findings
                    .extend(merged.origins.last().map(|policy| Finding::about(code, policy.clone(), text)));
                None
            }
        }
    }

    fn tracer(&self, backend: &Backend) -> Result<(Tracer, CollectorAddress), Unavailable> {
        let service = self.reporter.service.clone();
        let url_of = |text: &str| {
            Url::parse(text).ok_or_else(|| (Code::UnusableCollector, format!("{text:?} is not a URL")))
        };
        if let Some(Zipkin { url, trace_id_128bit, api_version, shared_span_context }) = &backend.zipkin {
            let parsed = url_of(url)?;
            let tracer = Tracer::Zipkin {
                cluster: self.names.tracing(system::Tracing::Zipkin, url).0,
                host: match (&parsed.at.host, parsed.at.port) {
                    (host, Some(port)) if host.contains(':') => format!("[{host}]:{port}"),
                    (host, Some(port)) => format!("{host}:{port}"),
                    (host, None) => host.clone(),
                },
                path: parsed.path.clone(),
                protobuf: *api_version == Some(ApiVersion::HttpProto),
                trace_id_128bit: trace_id_128bit.unwrap_or(false),
                shared_span_context: shared_span_context.unwrap_or(true),
            };
            return Ok((tracer, CollectorAddress::of_url(url, &parsed, self.system_ca_path)?));
        }
        if let Some(Datadog { url, split_service }) = &backend.datadog {
            let cluster = self.names.tracing(system::Tracing::Datadog, url).0;
            let tracer = Tracer::Datadog { cluster, service, split: split_service.unwrap_or(false) };
            return Ok((tracer, CollectorAddress::of_url(url, &url_of(url)?, None)?));
        }
        let backend = backend.open_telemetry.as_ref();
        let named = (
            backend.and_then(|backend| backend.endpoint.as_deref()),
            backend.and_then(|backend| backend.backend_ref.as_ref()),
        );
        let place = CollectorAddress::of_opentelemetry(self.snapshot, named, SIGNAL, self.system_ca_path)?;
        let cluster = self.names.tracing(system::Tracing::OpenTelemetry, &place.name).0;
        Ok((Tracer::OpenTelemetry { cluster, service, url: place.url.clone() }, place))
    }

    /// The names of the cluster of a tracer.
    fn named(&self, tracer: &Tracer, target: &str) -> (String, Option<String>) {
        let system = match tracer {
            Tracer::Zipkin { .. } => system::Tracing::Zipkin,
            Tracer::Datadog { .. } => system::Tracing::Datadog,
            Tracer::OpenTelemetry { .. } => system::Tracing::OpenTelemetry,
        };
        self.names.tracing(system, target)
    }

    /// Returns the tags that the user asks for, then the identity of the proxy, unless the user set it.
    fn tags(&self, wanted: &[Tag]) -> Vec<SpanTag> {
        let of_user = |tag: &Tag| {
            let name = tag.name.clone();
            match (&tag.header, &tag.literal) {
                (Some(header), _) => {
                    let default = header.default.clone().filter(|default| !default.is_empty());
                    Some(SpanTag::Header { name, header: header.name.clone(), default })
                }
                (None, Some(value)) => Some(SpanTag::Literal { name, value: value.clone() }),
                (None, None) => None,
            }
        };
        let mut tags: Vec<SpanTag> = wanted.iter().filter_map(of_user).collect();
        for (name, value) in access_logs::resource(&self.snapshot.name, self.reporter) {
            if tags.iter().all(|tag| tag.name() != name) {
                tags.push(SpanTag::Literal { name, value });
            }
        }
        tags
    }
}
