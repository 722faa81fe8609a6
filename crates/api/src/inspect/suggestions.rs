//! Permissions for the calls that were seen.

use axum::response::Response;

use super::{inspect, shown};
use crate::{Error, call::Call};

/// `GET /meshes/{mesh}/_suggestions`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let service = call.query("service").filter(|service| !service.is_empty());
    shown(inspect.suggestions(call.param("mesh"), service).await?, &snapshot).await
}
