//! Questions to the admin interface of a proxy: configuration dump, statistics, clusters.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header::CONTENT_TYPE};
use resources::Kind;

use super::{AdminFormat, AdminView, MISSING, dataplane, described, flag, inspect, missing, names, written};
use crate::{
    Error,
    access::{VIEW_CLUSTERS, VIEW_CONFIG_DUMP, VIEW_STATS},
    call::Call,
};

/// True if the statistics of the proxies of a kind have a form by the names of resources.
pub fn has_summary(kind: Kind) -> bool {
    kind == Kind::Dataplane
}

/// Checks the right to see a configuration. Like the other checks here it refuses a question that has no answer before
/// it looks at the right.
pub fn check_xds(call: &Call) -> Result<(), Error> {
    config_dump(call)?;
    VIEW_CONFIG_DUMP.check(call)
}

/// Checks the right to see statistics.
pub fn check_stats(call: &Call, kind: Kind) -> Result<(), Error> {
    if !wants_summary(call, kind) {
        statistics(call, kind)?;
    }
    VIEW_STATS.check(call)
}

/// Checks the right to see clusters.
pub fn check_clusters(call: &Call) -> Result<(), Error> {
    clusters_view(call)?;
    VIEW_CLUSTERS.check(call)
}

/// `GET …/{name}/xds` of a Dataplane, a ZoneIngress or a ZoneEgress.
pub async fn xds(call: Call, kind: Kind) -> Result<Response, Error> {
    let view = config_dump(&call)?;
    ask(call, kind, view).await
}

/// `GET …/{name}/stats`.
pub async fn stats(call: Call, kind: Kind) -> Result<Response, Error> {
    if wants_summary(&call, kind) {
        return summary(call).await;
    }
    let view = statistics(&call, kind)?;
    ask(call, kind, view).await
}

/// `GET …/{name}/clusters`.
pub async fn clusters(call: Call, kind: Kind) -> Result<Response, Error> {
    let view = clusters_view(&call)?;
    ask(call, kind, view).await
}

fn config_dump(call: &Call) -> Result<AdminView, Error> {
    Ok(AdminView::ConfigDump { include_eds: flag(call, "include_eds", false)? })
}

fn statistics(call: &Call, kind: Kind) -> Result<AdminView, Error> {
    let summary = if has_summary(kind) { ", or `summary`" } else { "" };
    Ok(AdminView::Stats { format: format(call, summary)?, used_only: flag(call, "usedonly", true)? })
}

fn clusters_view(call: &Call) -> Result<AdminView, Error> {
    Ok(AdminView::Clusters { format: format(call, "")? })
}

fn wants_summary(call: &Call, kind: Kind) -> bool {
    has_summary(kind) && call.query("format") == Some("summary")
}

/// The format of the query; `others` says which it could have beside the two of Envoy.
fn format(call: &Call, others: &str) -> Result<AdminFormat, Error> {
    match call.query("format") {
        None | Some("text") => Ok(AdminFormat::Text),
        Some("json") => Ok(AdminFormat::Json),
        Some(other) => {
            let known = format!("it is `text` or `json`{others}");
            Err(Error::BadRequest(format!("format {other:?} is not known: {known}")))
        }
    }
}

async fn ask(call: Call, kind: Kind, view: AdminView) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let proxy = described(&call, kind, missing(kind))?;
    let spelling = names::asked(&call, &proxy)?;
    let answer = inspect.admin(&proxy, view).await?;
    let mut response = Body::from(names::spelled(answer.body, spelling).await?).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    Ok(response)
}

/// `GET /meshes/{mesh}/dataplanes/{name}/stats?format=summary`.
async fn summary(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let proxy = dataplane(&call, MISSING)?;
    let used_only = flag(&call, "usedonly", true)?;
    let spelling = names::asked(&call, &proxy)?;
    let summary = inspect.stats_summary(&proxy, used_only).await?;
    written(names::spelled_value(summary, spelling).await?).await
}
