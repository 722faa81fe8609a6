//! Whether a proxy runs what it should run now.

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MISSING, dataplane, inspect, written};
use crate::{Error, call::Call};

/// Where a proxy stands with every change that was made before the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ProxySyncState")]
pub enum SyncState {
    /// It has acknowledged all of them that affect it.
    Synced,
    /// It has not been sent all of them, or has not answered yet.
    Behind,
    /// It has answered, and rejected something.
    Rejected,
    /// It is not connected to this control plane; its insight says whether it is connected to another.
    Unknown,
}

/// The answer about one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ProxySync")]
pub struct ProxySync {
    pub state: SyncState,
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_sync`.
pub async fn get(call: Call) -> Result<Response, Error> {
    call.check_access(resources::Kind::Dataplane)?;
    let (inspect, proxy) = (inspect(&call), dataplane(&call, MISSING)?);
    written(ProxySync { state: inspect.sync(&proxy).await? }).await
}
