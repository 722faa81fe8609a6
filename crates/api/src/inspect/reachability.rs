//! Destinations that a proxy reaches, those that trimming by permissions takes from it or would take, and the reasons.

use axum::response::Response;
use contract::reachability::{MeasuredProxies, MeshReachability};

use super::{dataplane, inspect, shown};
use crate::{Error, call::Call, list::Paging};

/// `GET /meshes/{mesh}/dataplanes/{name}/_reachability`.
pub async fn of_proxy(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let proxy = dataplane(&call, "Failed to retrieve Dataplane")?;
    shown(inspect.reachability(&proxy, call.query("to")).await?, &snapshot).await
}

/// `GET /meshes/{mesh}/_reachability`.
pub async fn of_mesh(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let paging = Paging::read(&call)?;
    let found = inspect.reachability_of_mesh(call.param("mesh"), paging.offset, paging.size).await?;
    let MeasuredProxies { total, items, zones } = found;
    let next = paging.next_by_offset(&call, total);
    shown(MeshReachability { total, items, next, zones }, &snapshot).await
}
