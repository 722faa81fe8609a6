//! Synchronisation of a proxy: it runs what it should run now, or it does not.

use axum::response::Response;
use contract::sync::ProxySync;

use super::{MISSING, dataplane, inspect, written};
use crate::{Error, call::Call};

/// `GET /meshes/{mesh}/dataplanes/{name}/_sync`.
pub async fn get(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let proxy = dataplane(&call, MISSING)?;
    written(ProxySync { state: inspect.sync(&proxy).await? }).await
}
