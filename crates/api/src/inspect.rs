//! Inspection of a proxy: what Envoy says about itself, and what the control plane sends to it.
//!
//! The API knows who may ask and what an answer looks like. How a proxy is reached is up to
//! the implementation of [`Inspect`].

pub mod access_question;
pub mod admin;
pub mod findings;
pub mod graph;
pub mod hostnames;
pub mod kuma_views;
pub mod logging;
mod names;
pub mod observed;
pub mod policies;
pub mod reachability;
pub mod signals;
pub mod suggestions;
pub mod sync;
pub mod targets;
pub mod what_if;

use std::{fmt, sync::Arc};

use axum::response::Response;
use bytes::Bytes;
use contract::{
    access::Access,
    configuration::ProxyConfiguration,
    graph::AccessGraph,
    hostnames::HostnameList,
    layout::{ProxyLayout, ZoneProxyLayout},
    logging::ProxyLogLevels,
    observed::ObservedCalls,
    pages::Selection,
    policies::{PolicyList, RouteList},
    reachability::{MeasuredProxies, ProxyReachabilityAnswer},
    rules::{ProxyRules, ResourceMeta},
    signals::SignalList,
    suggestions::Suggestions,
    sync::ProxySyncState,
    what_if::WhatIfConsequences,
};
use resources::{
    Key, Kind, Resource,
    kinds::mesh::{Mesh, MeshServicesMode},
    naming::{self, Kri},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Snapshot;

use crate::{
    Error,
    call::{Call, with_revision},
    json,
    list::Paging,
    patch,
    resource::RETRIEVE,
};
use access_question::AccessQuestion;
use logging::LogChange;
use observed::WantedEdges;
use policies::PoliciesOf;
use signals::WantedSignals;
use what_if::Hypothesis;

/// Reaches proxies.
#[async_trait::async_trait]
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Asks the proxy itself. The answer holds no secrets.
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError>;

    /// Log levels of the proxy, after a change if one is wanted.
    async fn logging(&self, proxy: &Key, change: Option<&LogChange>) -> Result<ProxyLogLevels, InspectError>;

    /// The configuration the proxy would be sent now, without secrets: resources by type URL and name.
    /// `with_shadow`: as if policies with `kuma.io/effect: shadow` had an effect.
    async fn config(&self, proxy: &Key, with_shadow: bool) -> Result<XdsConfig, InspectError>;

    /// State of the proxy with regard to every change made until now.
    async fn sync(&self, proxy: &Key) -> Result<ProxySyncState, InspectError>;

    /// Statistics of the proxy, by the names of its resources.
    async fn stats_summary(&self, proxy: &Key, used_only: bool) -> Result<Value, InspectError>;

    /// Parts of the proxy, connected or not.
    async fn layout(&self, proxy: &Key) -> Result<ProxyLayout, InspectError>;

    /// Parts of a zone ingress or egress, connected or not.
    async fn zone_layout(&self, proxy: &Key) -> Result<ZoneProxyLayout, InspectError>;

    /// The hostnames that the proxy offers something under, connected or not.
    async fn hostnames(&self, proxy: &Key) -> Result<HostnameList, InspectError>;

    /// Every rule in effect for the proxy.
    async fn rules(&self, proxy: &Key) -> Result<ProxyRules, InspectError>;

    /// The policies in effect for a part of the proxy.
    async fn policies(&self, proxy: &Key, of: &PoliciesOf) -> Result<PolicyList, InspectError>;

    /// The routes of one of the proxy's outbounds.
    async fn routes(&self, proxy: &Key, outbound: &Kri) -> Result<RouteList, InspectError>;

    /// The Dataplanes that a policy or a MeshService selects, by name.
    async fn selected(&self, selecting: &Key) -> Result<Vec<Arc<Resource>>, InspectError>;

    /// The policies in effect for the proxy, in any way.
    async fn matched(&self, proxy: &Key) -> Result<Vec<Arc<Resource>>, InspectError>;

    /// May one workload call another?
    async fn access(&self, question: &AccessQuestion) -> Result<Access, InspectError>;

    /// Observed calls of a mesh.
    async fn observed(&self, mesh: &str, wanted: WantedEdges) -> Result<ObservedCalls, InspectError>;

    /// Rates and latencies of calls in a mesh.
    async fn signals(&self, mesh: &str, wanted: WantedSignals) -> Result<SignalList, InspectError>;

    /// Destinations of the proxy; with `to`, the reason why it reaches that destination or not.
    async fn reachability(
        &self,
        proxy: &Key,
        to: Option<&str>,
    ) -> Result<ProxyReachabilityAnswer, InspectError>;

    /// Effect of trimming by permissions for the proxies of a mesh, from the offset on, in use or not.
    async fn reachability_of_mesh(
        &self,
        mesh: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError>;

    /// Access between all services; with `service`, only that service and those beside it.
    async fn graph(&self, mesh: &str, service: Option<&str>) -> Result<AccessGraph, InspectError>;

    /// The permissions that observed calls need; only those of one service if one is given.
    async fn suggestions(&self, mesh: &str, service: Option<&str>) -> Result<Suggestions, InspectError>;

    /// Consequences of changes that are admitted and not made.
    async fn what_if(&self, hypothesis: Hypothesis) -> Result<WhatIfConsequences, InspectError>;
}

/// A configuration, and what it would be without the policies that only pretend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XdsConfig {
    pub xds: Value,
    /// Made from the same moment; `None` where it is the same.
    pub without_shadow: Option<Value>,
}

/// Question to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminView {
    ConfigDump {
        include_eds: bool,
    },
    Stats {
        format: AdminFormat,
        used_only: bool,
    },
    Clusters {
        format: AdminFormat,
    },
    /// Counts of a zone proxy by server name.
    SniUsage,
}

/// Format of Envoy's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminFormat {
    Text,
    Json,
}

/// Answer of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAnswer {
    pub content_type: &'static str,
    pub body: Bytes,
}

/// Reasons why a proxy could not be looked into; each text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    #[error("there is no {0}")]
    Missing(Key),
    #[error("{0}")]
    NotFound(String),
    #[error(
        "{0} is not connected to this control plane: start its kuma-dp, or ask the control plane that it is connected to"
    )]
    NotConnected(Key),
    #[error("{0}")]
    Unreachable(String),
    /// Only the control plane of another zone can tell.
    #[error("{0}")]
    Elsewhere(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Failed(String),
}

const FAILED: &str = "Could not execute admin operation";
const MISSING: &str = "Could not get dataplane resource";

/// Title of the error where there is no resource that describes a proxy.
fn missing(kind: Kind) -> &'static str {
    match kind {
        Kind::ZoneIngress => "Could not get zone ingress resource",
        Kind::ZoneEgress => "Could not get zone egress resource",
        _ => MISSING,
    }
}

impl From<InspectError> for Error {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Missing(key) => Error::not_found(missing(key.kind)),
            InspectError::NotFound(reason) => Error::not_found(reason),
            InspectError::NotConnected(_) | InspectError::Unreachable(_) => {
                Error::Unavailable(error.to_string())
            }
            InspectError::Elsewhere(reason) => Error::NotImplemented(reason),
            InspectError::Unsupported(reason) => Error::BadRequest(reason),
            InspectError::Failed(cause) => Error::Internal { title: FAILED, cause },
        }
    }
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_config`.
pub async fn config(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let proxy = dataplane(&call, "Failed to fetch dataplane insight")?;
    let with_shadow = flag(&call, "shadow", false)?;
    let with_diff = includes_diff(&call)?;
    let snapshot = call.snapshot()?;
    let XdsConfig { xds, without_shadow } = inspect.config(&proxy, with_shadow).await?;
    let patch = || without_shadow.map(|before| patch::between(&before, &xds)).unwrap_or_default();
    let diff = with_diff.then(patch);
    shown(ProxyConfiguration { diff, xds }, &snapshot).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_layout`.
pub async fn layout(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    exclusive(&call, &snapshot, "_layout")?;
    let proxy = dataplane(&call, "Failed to retrieve Dataplane")?;
    let spelling = names::asked(&call, &proxy)?;
    let layout = inspect.layout(&proxy).await?;
    let layout = match &spelling {
        Some(spelling) => names::in_kumas_spelling(layout, spelling),
        None => layout,
    };
    shown(layout, &snapshot).await
}

/// `GET /zoneingresses/{name}/_layout`, and that of a ZoneEgress.
pub async fn zone_layout(call: Call, kind: Kind) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let proxy = call.key(kind);
    if snapshot.get(&proxy).is_none() {
        return Err(Error::not_found(missing(kind)));
    }
    let layout = inspect.zone_layout(&proxy).await?;
    shown(layout, &snapshot).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_rules`.
pub async fn rules(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let rules = inspect.rules(&dataplane(&call, "Could not retrieve Dataplane")?).await?;
    shown(rules, &snapshot).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes`.
pub async fn routes(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    exclusive(&call, &snapshot, "_policies")?;
    let proxy = dataplane(&call, "Failed to retrieve Dataplane")?;
    shown(inspect.routes(&proxy, &identifier(&call, "kri")?).await?, &snapshot).await
}

/// `GET /meshes/{mesh}/{policies}/{name}/_resources/dataplanes`, and that of a MeshService.
pub async fn selected(call: Call, kind: Kind) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let paging = Paging::read(&call)?;
    let part = call.query("name").unwrap_or_default();
    let selecting = call.key(kind);
    if snapshot.get(&selecting).is_none() {
        let of_service = kind == Kind::MeshService;
        return Err(Error::not_found(if of_service { RETRIEVE } else { "Could not retrieve policy" }));
    }
    let mut selected = inspect.selected(&selecting).await?;
    selected.retain(|dataplane| dataplane.name().contains(part));
    let page = paging.cut(&call, selected.into_iter(), |dataplane| ResourceMeta::of(dataplane));
    shown(Selection::from(page), &snapshot).await
}

/// `GET /meshes/{mesh}/_access`.
pub async fn access(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let question = question(&call)?;
    shown(inspect.access(&question).await?, &snapshot).await
}

fn question(call: &Call) -> Result<AccessQuestion, Error> {
    let given = |name: &str| {
        let value = call.query(name).map(str::to_owned);
        value.ok_or_else(|| {
            let text = "a Dataplane, a MeshService or a value of kuma.io/service";
            Error::BadRequest(format!("{name} is missing: it is the name of {text}"))
        })
    };
    Ok(AccessQuestion {
        mesh: call.param("mesh").to_owned(),
        from: given("from")?,
        to: given("to")?,
        port: call.query("port").map(str::to_owned),
    })
}

fn inspect(call: &Call) -> &Arc<dyn Inspect> {
    &call.context.inspect
}

/// True if the request asks for the difference to the configuration that the proxy has now.
fn includes_diff(call: &Call) -> Result<bool, Error> {
    let asked = call.query_pairs().iter().filter(|(name, _)| name == "include");
    let mut asked = asked.flat_map(|(_, value)| value.split(',')).filter(|word| !word.is_empty()).peekable();
    let any = asked.peek().is_some();
    match asked.find(|word| *word != "diff") {
        Some(other) => Err(Error::BadRequest(format!("include {other:?} is not known: it is `diff`"))),
        None => Ok(any),
    }
}

async fn shown<T: Serialize + Send + 'static>(answer: T, snapshot: &Snapshot) -> Result<Response, Error> {
    Ok(with_revision(written(answer).await?, snapshot))
}

/// An answer about a proxy of a large mesh is long, and other requests should not wait until it is written.
async fn written<T: Serialize + Send + 'static>(answer: T) -> Result<Response, Error> {
    let written = tokio::task::spawn_blocking(move || json::ok(&answer)).await;
    written.map_err(|error| Error::Internal { title: FAILED, cause: error.to_string() })
}

/// Views that speak of services by identifier make sense only where every service has one.
fn exclusive(call: &Call, snapshot: &Snapshot, view: &str) -> Result<(), Error> {
    let mesh = snapshot.get(&Key::global(Kind::Mesh, call.param("mesh")));
    let mode = mesh.and_then(|mesh| mesh.spec.get::<Mesh>()).map(Mesh::mesh_services_mode);
    if mode == Some(MeshServicesMode::Exclusive) {
        return Ok(());
    }
    Err(Error::BadRequest(format!("can't use {view} endpoint without meshService enabled")))
}

fn identifier(call: &Call, param: &str) -> Result<Kri, Error> {
    call.param(param).parse().map_err(|error: naming::Error| Error::BadRequest(error.to_string()))
}

/// The Dataplane of the path; `missing` is what to say when there is none.
fn dataplane(call: &Call, missing: &str) -> Result<Key, Error> {
    described(call, Kind::Dataplane, missing)
}

/// The resource of the path that describes a proxy.
fn described(call: &Call, kind: Kind, missing: &str) -> Result<Key, Error> {
    let snapshot = call.snapshot()?;
    call.mesh(&snapshot)?;
    let key = call.key(kind);
    match snapshot.get(&key) {
        Some(_) => Ok(key),
        None => Err(Error::not_found(missing)),
    }
}

/// A parameter that is on or off. Named without a value it is on, as in Envoy.
pub(crate) fn flag(call: &Call, name: &str, default: bool) -> Result<bool, Error> {
    match call.query_pairs().iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str()) {
        None => Ok(default),
        Some("" | "true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => {
            Err(Error::BadRequest(format!("{name} {other:?} is not known: it is `true` or `false`")))
        }
    }
}
