//! Documents about metrics for the agent beside a proxy.

use std::collections::BTreeMap;

use resources::kinds::{
    dataplane::Dataplane,
    mesh_metric::{BackendType, Conf, Sidecar},
};
use serde::Serialize;

use super::{
    MetricsCollector,
    labels::{ScrapeLabels, is_zone_proxy_only, sanitized},
};
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
    let list =
        conf.applications.as_ref().filter(|list| !list.is_empty() && !is_beside_no_application(context))?;
    let all = list.iter().map(|application| Application {
        name: application.name.as_deref(),
        path: application.path.as_deref().unwrap_or("/metrics"),
        port: application.port,
        address: application.address.as_deref().unwrap_or_default(),
    });
    Some(all.collect())
}

fn is_beside_no_application(context: &OwnContext<'_>) -> bool {
    context.dataplane.spec.get::<Dataplane>().is_some_and(is_zone_proxy_only)
}

/// Returns the labels of every sample. Tags are labels only with the older names; unified names contain them. Kuma has
/// `kuma.workload` only for proxies whose labels name a workload; a page without it would not say whose it is.
fn extra_labels(context: &OwnContext<'_>) -> BTreeMap<String, String> {
    let of_proxy = ScrapeLabels::of(context.dataplane, &context.traits.name);
    let mut all = BTreeMap::from([
        ("mesh".to_owned(), context.snapshot.name.to_string()),
        ("kuma.proxy_role".to_owned(), of_proxy.role.to_owned()),
    ]);
    let mut put = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    if let Some(zone) = of_proxy.zone {
        put("zone", zone);
    }
    if let Some(workload) = of_proxy.workload {
        put("kuma.workload", workload);
    }
    if context.names == NamingScheme::Unified {
        return all;
    }
    put("dataplane", &context.traits.name);
    if of_proxy.labelled_workload.is_none() {
        put("service", of_proxy.service);
    }
    for (tag, values) in &of_proxy.tags {
        let name = sanitized(tag);
        let values: Vec<&str> = values.iter().copied().collect();
        put(&format!("{name}s"), &format!(",{},", values.join(",")));
        put(&name, values.first().copied().unwrap_or_default());
    }
    all
}
