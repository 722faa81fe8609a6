//! `kuma-dp run`, from the settings to the end of Envoy.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Command};
use resources::naming::socket;
use runtime::{Shutdown, logs::Level};

use crate::{
    access_log,
    bootstrap::{self, Sidecar},
    configuration::Configuration,
    control_plane::Client,
    envoy::{
        Envoy,
        admin::Admin,
        logs,
        process::{Recipe, level},
    },
    failure::Result,
    farewell::Farewell,
    log_file::LogFile,
    metrics::Sources,
    metrics_push, metrics_socket, probes,
    proxy::{self, Identity},
    readiness::Health,
    settings::{Settings, unknown_variables},
    supervise::{Announcement, Signals, Supervisor},
    work_dir::WorkDir,
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
    if let Some(token) = settings.proxy.inline_token() {
        work_dir.write(bootstrap::TOKEN, token)?;
    }
    let (mut signals, announcement) = (Signals::listen()?, Announcement::listen()?);
    let shutdown = Shutdown::default();
    let health = Health::new(Sources::new(&settings.metrics, identity.dataplane.clone()));
    if settings.proxy.readiness_port != 0 {
        health.serve(settings.proxy.readiness_port, &shutdown).await?;
    }
    if let Some(address) = settings.metrics.address {
        health.serve_metrics(address, &shutdown).await?;
    }
    if settings.proxy.application_probe_proxy_port != 0 {
        probes::serve(settings.proxy.application_probe_proxy_port, &shutdown).await?;
    }
    tracing::info!(name = identity.name, mesh = identity.mesh, control_plane = %client.url(), "asking for a configuration");
    let request = || bootstrap::request(&settings, &identity, &envoy, work_dir.path(), &client.ca_pem);
    let told = tokio::select! {
        told = bootstrap::fetch(&client, &settings, request) => told?,
        name = signals.next() => {
            tracing::info!(signal = name, "asked to end before there was a configuration");
            return Ok(());
        }
    };
    let refused = "the control plane's configuration cannot be used";
    let document = bootstrap::read(&told.bootstrap).context(refused)?;
    let admin = Admin::of_bootstrap(&document).context(refused)?;
    bootstrap::allowed_files(&settings, work_dir.path())?.check(&document).context(refused)?;
    // Written anew from what was checked, so that Envoy cannot understand the text in another way.
    let config = work_dir.write("bootstrap.json", &document.to_string())?;
    health.ask_envoy_at(admin.clone());
    access_log::serve(&identity, work_dir.path(), &shutdown)?;
    offer_metrics(&health, &identity, told.sidecar, work_dir.path(), &shutdown)?;
    let recipe = Recipe::new(&settings, envoy, &config);
    let token = settings.proxy.token()?.unwrap_or_default();
    let farewell = Farewell::new(client, &identity.mesh, &identity.name, &token);
    let ended = Supervisor { recipe, admin, health, signals, announcement, farewell }.run().await;
    shutdown.finish(FAREWELL).await;
    ended
}

/// What a MeshMetric asks for: pages that Envoy offers, and what is sent through Envoy.
fn offer_metrics(
    health: &Health,
    identity: &Identity,
    sidecar: Sidecar,
    work_dir: &Path,
    shutdown: &Shutdown,
) -> Result<()> {
    let socket = socket::configuration(&work_dir.display().to_string());
    let configuration = Configuration { socket: socket.into() };
    let instance = format!("{}.{}", identity.mesh, identity.name);
    metrics_push::follow(health, configuration.clone(), instance, sidecar.address.clone(), shutdown);
    metrics_socket::serve(health, identity, sidecar, &configuration, work_dir, shutdown)
}

fn start_logs(settings: &Settings) -> Result<()> {
    let heard = match &settings.envoy.envoy_component_log_level {
        // Parts of Envoy may say more than the whole.
        Some(levels) if !levels.is_empty() => Level::Trace,
        _ => level(settings).heard_at(),
    };
    let (level, format) = (settings.logs.log_level, settings.logs.log_format);
    let failed = "cannot start logging";
    let Some(file) = LogFile::of(&settings.logs)? else {
        return Ok(runtime::logs::init_with(level, format, logs::TARGET, heard).context(failed)?);
    };
    // The line of Kuma's agent. A closed standard output is no reason to stop.
    let _ = writeln!(std::io::stdout(), "kuma-dp: logs will be stored in {:?}", file.path());
    Ok(runtime::logs::init_into(level, format, (logs::TARGET, heard), file).context(failed)?)
}

fn warn_about(settings: &Settings) {
    let flags = settings.ignored.given();
    if !flags.is_empty() {
        let flags = flags.join(" ");
        tracing::warn!(flags, "this agent does not do this yet; these settings are ignored");
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let variables = unknown_variables(&Settings::augment_args(Command::new("run")), names);
    if !variables.is_empty() {
        let variables = variables.join(" ");
        tracing::warn!(variables, "there are no such settings; these variables are ignored");
    }
}
