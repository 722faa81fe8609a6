//! Access between services, as a graph.

use axum::response::Response;

use super::{inspect, shown};
use crate::{Error, call::Call};

/// `GET /meshes/{mesh}/_graph`.
pub async fn get(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    shown(inspect.graph(call.param("mesh"), call.query("service")).await?, &snapshot).await
}
