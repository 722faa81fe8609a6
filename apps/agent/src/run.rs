//! `kuma-dp run`, from the settings to the end of Envoy.

use std::{
    fs::{DirBuilder, File},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Command};
use runtime::{Shutdown, logs::Level};
use tempfile::TempDir;

use crate::{
    bootstrap,
    control_plane::Client,
    envoy::{
        Envoy,
        admin::Admin,
        logs,
        process::{Recipe, level},
    },
    failure::Result,
    farewell::Farewell,
    metrics::Sources,
    proxy,
    readiness::Health,
    settings::{Settings, unknown_variables},
    supervise::{Signals, Supervisor},
};

/// How long open requests to the agent itself get when it ends.
const FAREWELL: Duration = Duration::from_secs(1);

pub async fn run(settings: Settings) -> Result<()> {
    start_logs(&settings)?;
    warn_about(&settings);
    let identity = proxy::identify(&settings.proxy)?;
    let client = Client::new(&settings.control_plane)?;
    if settings.control_plane.skip_verify {
        tracing::warn!("nobody checks that the control plane is who it says (--skip-verify)");
    }
    // For Envoy, which inherits it.
    if let Err(error) = runtime::files::allow_all() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let envoy = Envoy::find(settings.envoy.binary().map(PathBuf::as_path))?;
    let work_dir = WorkDir::open(settings.envoy.work_dir())?;
    let mut signals = Signals::listen()?;
    let shutdown = Shutdown::default();
    let health = Health::new(Sources::new(&settings.metrics, identity.dataplane.clone()));
    if settings.proxy.readiness_port != 0 {
        health.serve(settings.proxy.readiness_port, &shutdown).await?;
    }
    if let Some(address) = settings.metrics.address {
        health.serve_metrics(address, &shutdown).await?;
    }
    tracing::info!(name = identity.name, mesh = identity.mesh, control_plane = %client.url(), "asking for a configuration");
    let request = || bootstrap::request(&settings, &identity, &envoy, work_dir.path(), &client.ca_pem);
    let text = tokio::select! {
        text = bootstrap::fetch(&client, &settings, request) => text?,
        name = signals.next() => {
            tracing::info!(signal = name, "asked to end before there was a configuration");
            return Ok(());
        }
    };
    let admin = Admin::of_bootstrap(&text).context("the control plane's configuration cannot be used")?;
    let config = work_dir.write("bootstrap.yaml", &text)?;
    health.ask_envoy_at(admin.clone());
    let recipe = Recipe::new(&settings, envoy, &config);
    let token = settings.proxy.token()?.unwrap_or_default();
    let farewell = Farewell::new(client, &identity.mesh, &identity.name, &token);
    let ended = Supervisor { recipe, admin, health, signals, farewell }.run().await;
    shutdown.finish(FAREWELL).await;
    ended
}

fn start_logs(settings: &Settings) -> Result<()> {
    let heard = match &settings.envoy.envoy_component_log_level {
        // Parts of Envoy may say more than the whole.
        Some(levels) if !levels.is_empty() => Level::Trace,
        _ => level(settings).heard_at(),
    };
    let (level, format) = (settings.logs.log_level, settings.logs.log_format);
    Ok(runtime::logs::init_with(level, format, logs::TARGET, heard).context("cannot start logging")?)
}

fn warn_about(settings: &Settings) {
    for flag in settings.ignored.given() {
        tracing::warn!(flag, "this agent does not do this yet; the setting is ignored");
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for variable in unknown_variables(&Settings::augment_args(Command::new("run")), names) {
        tracing::warn!(variable, "there is no such setting; the variable is ignored");
    }
}

/// Where configuration and sockets are; what nobody named is removed at the end.
enum WorkDir {
    Named(PathBuf),
    Temporary(TempDir),
}

impl WorkDir {
    fn open(named: Option<&PathBuf>) -> Result<WorkDir> {
        let Some(named) = named else {
            let made = tempfile::Builder::new()
                .prefix("kuma-dp-")
                .permissions(PermissionsExt::from_mode(0o700))
                .tempdir()
                .context("cannot make a temporary directory; pass --work-dir")?;
            return Ok(WorkDir::Temporary(made));
        };
        let failed = || format!("cannot use the work directory {}", named.display());
        let path = std::path::absolute(named).with_context(failed)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&path).with_context(failed)?;
        Ok(WorkDir::Named(path))
    }

    fn path(&self) -> &Path {
        match self {
            WorkDir::Named(path) => path,
            WorkDir::Temporary(made) => made.path(),
        }
    }

    /// Writes a file nobody else may read: a bootstrap configuration has the proxy's token in it.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        let write = || -> std::io::Result<()> {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            // A file that was there before may have had other rights.
            file.set_permissions(PermissionsExt::from_mode(0o600))?;
            file.write_all(text.as_bytes())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
