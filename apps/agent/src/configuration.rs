//! What the control plane has for the agent while it runs: documents that Envoy hands out at a socket in
//! the work directory.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::http_client::exchange;

/// Where Envoy hands out what MeshMetrics say; the listener of a page asks the agent under the same path.
pub const MESH_METRIC: &str = "/meshmetric";
/// Envoy answers from memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub socket: PathBuf,
}

/// A document, if it is not the one that is known already.
#[derive(Debug)]
pub enum Answered {
    Same,
    New { etag: Option<String>, document: Value },
}

impl Configuration {
    /// The document at a path.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        match self.newer(path, None).await? {
            Answered::New { document, .. } => Ok(document),
            Answered::Same => Ok(Value::Null),
        }
    }

    /// The document at a path, unless it is the one with the checksum `known`.
    pub async fn newer(&self, path: &str, known: Option<&str>) -> anyhow::Result<Answered> {
        let mut request = Request::get(path).header(header::HOST, "envoy");
        if let Some(known) = known {
            request = request.header(header::IF_NONE_MATCH, known);
        }
        let request = request.body(Full::new(Bytes::new()))?;
        let exchanged = async { exchange(UnixStream::connect(&self.socket).await?, request).await };
        let answer = tokio::time::timeout(PATIENCE, exchanged).await.context("no answer in time")??;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(Answered::Same);
        }
        anyhow::ensure!(answer.status == StatusCode::OK, "Envoy answered {}", answer.status);
        let etag = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Answered::New { etag, document: serde_json::from_slice(&answer.body)? })
    }
}
