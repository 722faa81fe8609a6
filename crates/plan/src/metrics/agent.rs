//! What the agent beside a proxy is sent through the proxy.
//!
//! Kuma's agent reads the same documents, and knows by a checksum whether one is new: every byte counts.

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    kinds::{
        dataplane::{Dataplane, ListenerType},
        mesh_metric::{BackendType, Conf, Sidecar},
    },
    labels,
    naming::{legacy, socket, system},
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::MetricsCollector;
use crate::{Names, OwnContext, names::AgentNames};

/// The part that a MeshMetric makes, and its path.
const MESH_METRIC: (&str, &str) = ("meshmetric", "/meshmetric");

/// Documents for the agent, each at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentConfiguration {
    pub names: AgentNames,
    /// Where the agent asks.
    pub socket: String,
    pub parts: Vec<AgentPart>,
    pub ipv6: bool,
}

/// One document for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentPart {
    pub path: &'static str,
    pub route: String,
    /// The route that answers when the agent has it already; older names have none.
    pub not_modified: String,
    pub body: String,
    /// SHA-256 of the body.
    pub etag: String,
}

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

impl AgentConfiguration {
    pub(super) fn of(
        context: &OwnContext<'_>,
        conf: &Conf,
        work_dir: &str,
        has_page: bool,
        collectors: &[MetricsCollector],
    ) -> AgentConfiguration {
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
        AgentConfiguration {
            names: context.names.agent_configuration(),
            socket: socket::configuration(work_dir),
            // Text and numbers under string keys: writing them cannot fail.
            parts: vec![part(
                context.names,
                MESH_METRIC,
                serde_json::to_string(&document).unwrap_or_default(),
            )],
            ipv6: context.traits.ipv6,
        }
    }
}

fn part(names: Names, (name, path): (&str, &'static str), body: String) -> AgentPart {
    let etag = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let (route, not_modified) = match names {
        Names::Unified => (system::dynamic_config(name), system::dynamic_config_not_modified(name)),
        Names::Legacy => (legacy::dynamic_config(path), String::new()),
    };
    AgentPart { path, route, not_modified, body, etag }
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

/// What is put on every sample. Tags are labels only where names are the older ones; unified names say
/// what they say.
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
    if context.names == Names::Unified {
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

/// What all inbounds, or the gateway, are tagged with.
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
