//! Observed calls.

use axum::response::Response;

use super::{flag, inspect, shown};
use crate::{Error, call::Call, list::Paging};

/// Largest number of edges that one answer lists.
const MAX_LISTED: usize = 10_000;

/// Selection of the edges to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedEdges {
    pub offset: usize,
    pub size: usize,
    /// Only calls that would be trimmed.
    pub would_be_trimmed: bool,
}

/// `GET /meshes/{mesh}/_observed`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let paging = Paging::read(&call)?;
    let wanted = WantedEdges {
        offset: paging.offset,
        size: call.query("size").map_or(MAX_LISTED, |_| paging.size),
        would_be_trimmed: flag(&call, "wouldBeTrimmed", false)?,
    };
    shown(inspect.observed(call.param("mesh"), wanted).await?, &snapshot).await
}
