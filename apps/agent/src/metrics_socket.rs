//! Metrics for a listener of Envoy: a control plane may let Envoy answer Prometheus and ask the agent,
//! which is found by the name of its socket in the work directory.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Request, StatusCode, Uri, header},
    response::IntoResponse,
};
use http_body_util::Full;
use runtime::Shutdown;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};

use crate::{
    bootstrap::Sidecar,
    failure::Result,
    http_client::exchange,
    metrics::{CONTENT_TYPE, View},
    proxy::Identity,
    readiness::Health,
};

/// The longest path of a socket that a control plane writes, without its ending.
const LONGEST: usize = 98;
/// Where a MeshMetric's listener asks; any other path belongs to the metrics of a Mesh.
const MESH_METRIC: &str = "/meshmetric";
/// Envoy answers from memory.
const PATIENCE: Duration = Duration::from_secs(1);

struct Socket {
    health: Health,
    sidecar: Sidecar,
    /// Where Envoy hands out what the control plane has for the agent.
    configuration: PathBuf,
}

/// Answers until the shutdown begins.
pub fn serve(
    health: &Health,
    identity: &Identity,
    sidecar: Sidecar,
    work_dir: &Path,
    shutdown: &Shutdown,
) -> Result<()> {
    let path = socket_path(work_dir, &format!("kuma-mh-{}-{}", identity.name, identity.mesh));
    let bind = || -> io::Result<UnixListener> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    let listener = bind().with_context(|| format!("cannot offer metrics at {}", path.display()))?;
    let configuration = socket_path(work_dir, "kuma-mesh-metric-config");
    let socket = Arc::new(Socket { health: health.clone(), sidecar, configuration });
    let router = Router::new().fallback(answer).with_state(socket);
    let ends = shutdown.clone();
    shutdown.spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(async move { ends.begun().await });
        if let Err(error) = served.await {
            tracing::warn!(%error, "metrics are no longer offered to Envoy");
        }
    });
    Ok(())
}

/// The path of a socket as control planes write it: cut, because the system has a limit.
fn socket_path(work_dir: &Path, name: &str) -> PathBuf {
    let mut path = work_dir.join(name).display().to_string();
    let mut end = path.len().min(LONGEST);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.truncate(end);
    PathBuf::from(path + ".sock")
}

async fn answer(State(socket): State<Arc<Socket>>, uri: Uri) -> impl IntoResponse {
    let view = if uri.path().starts_with(MESH_METRIC) {
        let told = socket.ask().await.unwrap_or_else(|error| {
            tracing::debug!(
                error = format!("{error:#}"),
                "Envoy has no configuration of metrics for the agent"
            );
            Value::Null
        });
        View::of_mesh_metric(&told, &socket.sidecar.address)
    } else {
        View { applications: socket.sidecar.applications.clone(), ..View::default() }
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], socket.health.page(&view).await)
}

impl Socket {
    async fn ask(&self) -> anyhow::Result<Value> {
        let request =
            Request::get(MESH_METRIC).header(header::HOST, "envoy").body(Full::new(Bytes::new()))?;
        let exchanged = async { exchange(UnixStream::connect(&self.configuration).await?, request).await };
        let answer = tokio::time::timeout(PATIENCE, exchanged).await.context("no answer in time")??;
        anyhow::ensure!(answer.status == StatusCode::OK, "Envoy answered {}", answer.status);
        Ok(serde_json::from_slice(&answer.body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_cut_before_its_ending() {
        assert_eq!(socket_path(Path::new("/w"), "kuma-mh-a-b"), Path::new("/w/kuma-mh-a-b.sock"));
        let long = socket_path(Path::new("/w"), &"é".repeat(90)).display().to_string();
        assert!(long.len() <= 98 + 5 && long.ends_with("é.sock"), "{long}");
    }
}
