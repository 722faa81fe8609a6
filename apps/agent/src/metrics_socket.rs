//! Metrics for a listener of Envoy: a control plane may let Envoy answer Prometheus and ask the agent,
//! which is found by the name of its socket in the work directory.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Uri, header},
    response::IntoResponse,
};
use resources::naming::socket;
use runtime::Shutdown;
use serde_json::Value;
use tokio::{net::UnixListener, sync::Semaphore};

use crate::{
    bootstrap::Sidecar,
    configuration::{Configuration, MESH_METRIC},
    failure::Result,
    metrics::{CONTENT_TYPE, View},
    proxy::ProxyIdentity,
    readiness::ProxyHealth,
};

/// Each page costs Envoy and every application one; more readers at a time wait for each other.
const PAGES_AT_A_TIME: usize = 4;

struct Socket {
    health: ProxyHealth,
    sidecar: Sidecar,
    configuration: Configuration,
    turns: Semaphore,
}

/// Answers until the shutdown begins.
pub fn serve(
    health: &ProxyHealth,
    identity: &ProxyIdentity,
    sidecar: Sidecar,
    configuration: &Configuration,
    work_dir: &Path,
    shutdown: &Shutdown,
) -> Result<()> {
    let path = socket::metrics(&work_dir.display().to_string(), &identity.name, &identity.mesh);
    let bind = || -> io::Result<UnixListener> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    let listener = bind().with_context(|| format!("cannot offer metrics at {path}"))?;
    let socket = Arc::new(Socket {
        health: health.clone(),
        sidecar,
        configuration: configuration.clone(),
        turns: Semaphore::new(PAGES_AT_A_TIME),
    });
    let router = Router::new().fallback(answer).with_state(socket);
    let ends = shutdown.clone();
    shutdown.spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(async move { ends.begun().await });
        if let Err(error) = served.await {
            tracing::warn!(%error, "no longer serving metrics to Envoy");
        }
    });
    Ok(())
}

async fn answer(State(socket): State<Arc<Socket>>, uri: Uri, headers: HeaderMap) -> impl IntoResponse {
    // It is never closed.
    let _turn = socket.turns.acquire().await;
    // Any other path belongs to the metrics of a Mesh.
    let view = if uri.path().starts_with(MESH_METRIC) {
        let told = socket.configuration.get(MESH_METRIC).await.unwrap_or_else(|error| {
            tracing::debug!(error = format!("{error:#}"), "Envoy has no metrics configuration for the agent");
            Value::Null
        });
        View::of_mesh_metric(&told, &socket.sidecar.address)
    } else {
        let Sidecar { applications, labels, .. } = &socket.sidecar;
        View { applications: applications.clone(), labels: labels.clone(), ..View::default() }
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], socket.health.page(&view.for_reader(&headers)).await)
}
