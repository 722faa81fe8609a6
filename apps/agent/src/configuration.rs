//! Documents of the control plane for the agent while it runs: Envoy hands them out at a socket in the work
//! directory.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use runtime::Shutdown;
use serde_json::Value;
use tokio::{net::UnixStream, sync::mpsc};

use crate::http_client::exchange_within;

/// Path where Envoy hands out the settings of MeshMetrics; the listener of a page asks the agent under the
/// same path.
pub const MESH_METRIC: &str = "/meshmetric";
/// Interval of looking for changed documents, as Kuma's agent has it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Envoy answers from memory; a large document takes a while on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// Fifty thousand names have a sixth of this.
const MAX_DOCUMENT: usize = 32 << 20;

/// Socket that hands out documents.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub socket: PathBuf,
}

/// A document, if it is not the one that is known already.
#[derive(Debug)]
enum DocumentAnswer {
    Same,
    New { etag: Option<String>, document: Bytes },
}

/// Looks for all documents, one after another, and hands out those that changed.
#[derive(Debug)]
pub struct Poller {
    configuration: Configuration,
    followed: Vec<WatchedDocument>,
}

#[derive(Debug)]
struct WatchedDocument {
    path: &'static str,
    /// The checksum of the document that was handed out last.
    known: Option<String>,
    news: mpsc::Sender<Option<Bytes>>,
}

impl Configuration {
    /// The document at a path.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        match self.newer(path, None).await? {
            DocumentAnswer::New { document, .. } => Ok(serde_json::from_slice(&document)?),
            DocumentAnswer::Same => Ok(Value::Null),
        }
    }

    /// The document at a path, unless it is the one with the checksum `known`.
    async fn newer(&self, path: &str, known: Option<&str>) -> anyhow::Result<DocumentAnswer> {
        let mut request = Request::get(path).header(header::HOST, "envoy");
        if let Some(known) = known.filter(|known| !known.is_empty()) {
            request = request.header(header::IF_NONE_MATCH, known);
        }
        let request = request.body(Full::new(Bytes::new()))?;
        let exchanged =
            async { exchange_within(MAX_DOCUMENT, UnixStream::connect(&self.socket).await?, request).await };
        let answer = tokio::time::timeout(PATIENCE, exchanged).await.context("no answer in time")??;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(DocumentAnswer::Same);
        }
        anyhow::ensure!(answer.status == StatusCode::OK, "Envoy answered {}", answer.status);
        let etag = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(DocumentAnswer::New { etag, document: answer.body })
    }
}

impl Poller {
    pub fn new(configuration: Configuration) -> Poller {
        Poller { configuration, followed: Vec::new() }
    }

    /// Every new document at a path from now on, and `None` when there was one and Envoy has none any more.
    pub fn follow(&mut self, path: &'static str) -> mpsc::Receiver<Option<Bytes>> {
        // A slow receiver delays the next look, so it never gets an outdated document.
        let (news, documents) = mpsc::channel(1);
        self.followed.push(WatchedDocument { path, known: None, news });
        documents
    }

    /// Looks until the shutdown begins.
    pub fn start(mut self, shutdown: &Shutdown) {
        let ends = shutdown.clone();
        shutdown.spawn(async move {
            let look = async {
                loop {
                    for followed in &mut self.followed {
                        followed.look(&self.configuration).await;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! {
                () = ends.begun() => {}
                () = look => {}
            }
        });
    }
}

impl WatchedDocument {
    async fn look(&mut self, configuration: &Configuration) {
        let news = match configuration.newer(self.path, self.known.as_deref()).await {
            Ok(DocumentAnswer::Same) => return,
            Ok(DocumentAnswer::New { etag, document }) => {
                // A document without a checksum is new each time.
                self.known = Some(etag.unwrap_or_default());
                Some(document)
            }
            // The control plane has nothing at this path, or Envoy is away.
            Err(error) => {
                tracing::trace!(path = self.path, error = format!("{error:#}"), "no configuration");
                if self.known.take().is_none() {
                    return;
                }
                None
            }
        };
        // Without a subscriber there is nothing to hand out.
        let _ = self.news.send(news).await;
    }
}
