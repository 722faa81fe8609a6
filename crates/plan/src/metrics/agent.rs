//! Documents about metrics for the agent beside a proxy.

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    kinds::{
        dataplane::{Dataplane, ListenerType},
        mesh_metric::{BackendType, Conf, Sidecar},
    },
    labels,
};
use serde::Serialize;

use super::MetricsCollector;
use crate::{AgentPart, NamingScheme, OwnContext};

/// The part that a MeshMetric makes, and its path.
const MESH_METRIC: (&str, &str) = ("meshmetric", "/meshmetric");

#[derive(Serialize)]
struct Document<'a> {
    observability: Observability<'a>,
}

#[derive(Serialize)]
struct Observability<'a> {
    metrics: Metrics<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metrics<'a> {
    /// `null` when there is none.
    applications: Option<Vec<Application<'a>>>,
    backends: Vec<Backend<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sidecar: Option<&'a Sidecar>,
    extra_labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Application<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    path: &'a str,
    port: u32,
    address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Backend<'a> {
    #[serde(rename = "type")]
    kind: BackendType,
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_telemetry: Option<OpenTelemetry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenTelemetry<'a> {
    endpoint: &'a str,
    refresh_interval: &'a str,
}

/// The document about metrics.
pub(super) fn document(
    context: &OwnContext<'_>,
    conf: &Conf,
    has_page: bool,
    collectors: &[MetricsCollector],
) -> AgentPart {
    let page = Backend { kind: BackendType::Prometheus, name: None, open_telemetry: None };
    let pushed = collectors.iter().map(|to| Backend {
        kind: BackendType::OpenTelemetry,
        name: Some(&to.backend),
        open_telemetry: Some(OpenTelemetry { endpoint: &to.socket, refresh_interval: &to.interval }),
    });
    let metrics = Metrics {
        applications: applications(context, conf),
        backends: has_page.then_some(page).into_iter().chain(pushed).collect(),
        sidecar: conf.sidecar.as_ref(),
        extra_labels: extra_labels(context),
    };
    let document = Document { observability: Observability { metrics } };
    // Text and numbers under string keys: writing them cannot fail.
    AgentPart::new(context.names, MESH_METRIC, serde_json::to_string(&document).unwrap_or_default())
}

/// A proxy of a zone stands beside no application.
fn applications<'a>(context: &OwnContext<'_>, conf: &'a Conf) -> Option<Vec<Application<'a>>> {
    let list = conf.applications.as_ref().filter(|list| !list.is_empty() && !is_zone_proxy_only(context))?;
    let all = list.iter().map(|application| Application {
        name: application.name.as_deref(),
        path: application.path.as_deref().unwrap_or("/metrics"),
        port: application.port,
        address: application.address.as_deref().unwrap_or_default(),
    });
    Some(all.collect())
}

fn is_zone_proxy_only(context: &OwnContext<'_>) -> bool {
    let networking = context.networking;
    !networking.listeners.is_empty() && networking.inbound.is_empty() && networking.gateway.is_none()
}

/// Returns the labels of every sample. Tags are labels only with the older names; unified names contain them.
fn extra_labels(context: &OwnContext<'_>) -> BTreeMap<String, String> {
    let label = |name: &str| context.dataplane.label(name).filter(|value| !value.is_empty());
    let mut all = BTreeMap::from([
        ("mesh".to_owned(), context.snapshot.name.to_string()),
        ("kuma.proxy_role".to_owned(), role(context).to_owned()),
    ]);
    let mut put = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    if let Some(zone) = label(labels::ZONE) {
        put("zone", zone);
    }
    let workload = label(labels::WORKLOAD).filter(|_| !is_zone_proxy_only(context));
    if let Some(workload) = workload {
        put("kuma.workload", workload);
    }
    if context.names == NamingScheme::Unified {
        return all;
    }
    put("dataplane", &context.traits.name);
    let tags = tags(context);
    if workload.is_none() {
        let service = tags.get(labels::SERVICE).and_then(|values| values.first().copied());
        put("service", service.unwrap_or(&context.traits.name));
    }
    for (tag, values) in &tags {
        let name = sanitized(tag);
        let values: Vec<&str> = values.iter().copied().collect();
        put(&format!("{name}s"), &format!(",{},", values.join(",")));
        put(&name, values.first().copied().unwrap_or_default());
    }
    all
}

/// Returns the tags of all inbounds, or of the gateway.
fn tags<'a>(context: &'a OwnContext<'_>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let networking = context.networking;
    let of_inbounds = networking.inbound.iter().map(|inbound| &inbound.tags);
    let of_gateway = networking.gateway.iter().map(|gateway| &gateway.tags);
    let mut tags: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, value) in of_inbounds.chain(of_gateway).flatten() {
        tags.entry(name).or_default().insert(value);
    }
    tags
}

fn role(context: &OwnContext<'_>) -> &'static str {
    let dataplane = context.dataplane.spec.get::<Dataplane>();
    let serves = |kind| dataplane.is_some_and(|dataplane| dataplane.has_listener(kind));
    match (serves(ListenerType::ZoneIngress), serves(ListenerType::ZoneEgress)) {
        (true, true) => "zone-proxy",
        (true, false) => "zone-ingress",
        (false, true) => "zone-egress",
        (false, false) if context.networking.gateway.is_some() => "gateway",
        (false, false) => "sidecar",
    }
}

fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}
