//! Policies that are in effect for a proxy, an inbound, an outbound or a route.

use axum::response::Response;
use resources::naming::Kri;

use super::{dataplane, exclusive, identifier, inspect, shown};
use crate::{Error, call::Call};

/// Part of a proxy that policies are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoliciesOf {
    /// Those that configure the proxy as a whole.
    Proxy,
    /// The section says which inbound.
    Inbound(Kri),
    Outbound(Kri),
    /// A route of an outbound.
    Route {
        outbound: Kri,
        route: Kri,
    },
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_policies`.
pub async fn of_proxy(call: Call) -> Result<Response, Error> {
    of(call, |_| Ok(PoliciesOf::Proxy)).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_inbounds/{kri}/_policies`.
pub async fn of_inbound(call: Call) -> Result<Response, Error> {
    of(call, |call| Ok(PoliciesOf::Inbound(identifier(call, "kri")?))).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_policies`.
pub async fn of_outbound(call: Call) -> Result<Response, Error> {
    of(call, |call| Ok(PoliciesOf::Outbound(identifier(call, "kri")?))).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes/{route}/_policies`.
pub async fn of_route(call: Call) -> Result<Response, Error> {
    let route = |call: &Call| {
        let outbound = identifier(call, "kri")?;
        Ok(PoliciesOf::Route { outbound, route: identifier(call, "route")? })
    };
    of(call, route).await
}

async fn of(call: Call, part: impl Fn(&Call) -> Result<PoliciesOf, Error>) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    exclusive(&call, &snapshot, "_policies")?;
    let proxy = dataplane(&call, "Failed to retrieve Dataplane")?;
    let part = part(&call)?;
    shown(inspect.policies(&proxy, &part).await?, &snapshot).await
}
