//! Notifies the control plane that this proxy is about to stop, so that others stop calling it first.

use std::{sync::Arc, time::Duration};

use contract::agent::DrainRequest;
use http::StatusCode;

use crate::control_plane::{ControlPlaneClient, NoAnswer};

/// Stopping is not put off for long by a control plane that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The announcement, and where it is sent.
pub struct DrainNotice {
    client: Arc<ControlPlaneClient>,
    request: DrainRequest,
}

impl DrainNotice {
    pub fn new(client: Arc<ControlPlaneClient>, mesh: &str, name: &str, token: &str) -> DrainNotice {
        let request =
            DrainRequest { mesh: mesh.to_owned(), name: name.to_owned(), dataplane_token: token.to_owned() };
        DrainNotice { client, request }
    }

    /// Returns when the control plane has notified the others, or will not.
    pub async fn say(&self) {
        match self.client.post_json("/drain", &self.request, PATIENCE).await {
            Ok(answer) if answer.status.is_success() => {
                tracing::info!("announced to the control plane: other proxies no longer call this one")
            }
            // Kuma's own control plane does not know drain notices; it finds out when the connection ends.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {}
            Ok(answer) => {
                tracing::warn!(status = %answer.status, "the control plane rejected the announcement that this proxy stops")
            }
            Err(NoAnswer::Away(error)) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the control plane could not be reached to announce that this proxy stops"
                );
            }
            Err(NoAnswer::Untrusted(error) | NoAnswer::NotTls(error)) => {
                tracing::warn!(%error, "the control plane could not be reached to announce that this proxy stops");
            }
        }
    }
}
