//! Pages of metrics, as Prometheus' `http_sd` reads them.

use std::{fmt, sync::Arc};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{ETAG, IF_NONE_MATCH},
};

use super::InspectError;
use crate::{Error, call::Call, json};

/// Knows the pages of metrics of proxies.
#[async_trait::async_trait]
pub trait ScrapeTargets: fmt::Debug + Send + Sync {
    /// The pages of a mesh, or of all: those for a client of this name, or those for any client if none is for it alone.
    async fn listed(&self, mesh: Option<&str>, client: &str) -> Result<TargetPage, InspectError>;
}

/// A list of target groups in JSON.
#[derive(Debug, Clone)]
pub struct TargetPage {
    /// Another for each content.
    pub version: Arc<str>,
    pub body: Bytes,
}

/// `GET /prometheus/targets`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let client = call.query("clientId").unwrap_or_default();
    let TargetPage { version, body } = call.context.targets.listed(call.query("mesh"), client).await?;
    let tag = format!("\"{version}\"");
    let known = call.header(IF_NONE_MATCH).unwrap_or_default();
    let is_known = known.split(',').map(str::trim).any(|known| known == tag || known == "*");
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { json::encoded(body) };
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}
