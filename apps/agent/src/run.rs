//! `kuma-dp run`, from the settings to the end of Envoy.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Command};
use resources::naming::socket;
use runtime::{Shutdown, logs::Level};

use crate::{
    access_log,
    bootstrap::{self, AgentServices, Sidecar},
    configuration::{Configuration, MESH_METRIC, Poller},
    control_plane::ControlPlaneClient,
    dns,
    drain_notice::DrainNotice,
    envoy::{
        Envoy,
        admin::Admin,
        logs,
        process::{Recipe, level},
    },
    failure::{Failure, Result},
    log_file::LogFile,
    metrics::Sources,
    metrics_push, metrics_socket,
    observed::Observer,
    probes,
    proxy::{self, ProxyIdentity},
    readiness::ProxyHealth,
    settings::{ProxyType, RedirectionSettings, Settings, unknown_variables},
    supervise::{Announcement, Signals, Supervisor},
    work_dir::WorkDir,
};

/// Time for open requests to the agent itself when it ends.
const FAREWELL: Duration = Duration::from_secs(1);

pub async fn run(settings: Settings) -> Result<()> {
    start_logs(&settings)?;
    warn_about(&settings);
    let identity = proxy::identify(&settings.proxy)?;
    let client = Arc::new(ControlPlaneClient::new(&settings.control_plane)?);
    if settings.control_plane.skip_verify {
        tracing::warn!("the certificate of the control plane is not verified (--skip-verify)");
    }
    // For Envoy, which inherits it.
    if let Err(error) = runtime::files::allow_all() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let envoy = Envoy::find(settings.envoy.binary().map(PathBuf::as_path)).await?;
    let work_dir = WorkDir::open(settings.envoy.work_dir())?;
    if let Some(token) = settings.proxy.inline_token() {
        work_dir.write(bootstrap::TOKEN, token)?;
    }
    let mut signals = Signals::listen()?;
    let announcement = Announcement::listen()?;
    let shutdown = Shutdown::default();
    let health = ProxyHealth::new(Sources::new(&settings.metrics, identity.dataplane.clone()));
    let readiness = serve(&settings, &health, &shutdown).await?;
    let redirected = settings.transparent.read()?;
    let names = answer_names(&settings, &identity, redirected.as_ref(), &health, &shutdown)?;
    tracing::info!(name = identity.name, mesh = identity.mesh, control_plane = %client.url(), "requesting a configuration");
    let announced = announced(redirected, names.as_ref(), readiness);
    let request =
        || bootstrap::request(&settings, &identity, &envoy, work_dir.path(), &client.ca_pem, &announced);
    let answer = tokio::select! {
        answer = bootstrap::fetch(&client, &settings, request) => answer?,
        name = signals.next() => {
            tracing::info!(signal = name, "stopped by a signal before a configuration arrived");
            return Ok(());
        }
    };
    let refused = "the control plane's configuration cannot be used";
    let document = bootstrap::read(&answer.bootstrap).context(refused)?;
    let admin = Admin::of_bootstrap(&document).context(refused)?;
    bootstrap::allowed_files(&settings, work_dir.path())?.check(&document).context(refused)?;
    // Written anew from what was checked, so that Envoy cannot understand the text in another way.
    let config = work_dir.write("bootstrap.json", &document.to_string())?;
    health.ask_envoy_at(admin.clone());
    access_log::serve(&identity, work_dir.path(), &shutdown)?;
    health.label_page(&answer.sidecar.labels);
    follow_configuration(&health, &identity, answer.sidecar, names, work_dir.path(), &shutdown)?;
    let observer = Observer::start(&settings, &identity, &client, &admin, &health, &shutdown)?;
    let recipe = Recipe::new(&settings, envoy, &config);
    let token = settings.proxy.token()?.unwrap_or_default();
    let drain_notice = DrainNotice::new(client, &identity.mesh, &identity.name, &token);
    let proxy_type = settings.proxy.proxy_type;
    let supervisor =
        Supervisor { recipe, proxy_type, admin, health, signals, announcement, drain_notice, observer };
    let ended = supervisor.run().await;
    shutdown.finish(FAREWELL).await;
    ended
}

/// Answers questions about the proxy and its application. Gives the address at which Envoy can ask whether the
/// proxy is ready.
async fn serve(settings: &Settings, health: &ProxyHealth, shutdown: &Shutdown) -> Result<Option<IpAddr>> {
    let readiness = health.serve(settings, shutdown).await?;
    if let Some(address) = settings.metrics.address {
        health.serve_metrics(address, shutdown).await?;
    }
    if settings.proxy.application_probe_proxy_port != 0 {
        probes::serve(settings.proxy.application_probe_proxy_port, shutdown).await?;
    }
    Ok(readiness)
}

/// Answers names of the mesh, if the application's queries come to the agent.
fn answer_names(
    settings: &Settings,
    identity: &ProxyIdentity,
    redirected: Option<&RedirectionSettings>,
    health: &ProxyHealth,
    shutdown: &Shutdown,
) -> Result<Option<dns::DnsServer>> {
    let networking = identity.dataplane.as_ref().and_then(|dataplane| dataplane.networking.as_ref());
    let written = networking.is_some_and(|networking| networking.transparent_proxying.is_some());
    let asked = redirected.map_or(written, |redirected| redirected.dns.unwrap_or(true));
    // A default port is no choice of the user.
    let said = redirected.filter(|redirected| redirected.dns.is_some());
    let port = settings.dns.port(asked, said.map(|redirected| redirected.config.redirect.dns.port.get()));
    // Proxies of a zone stand beside no application.
    let Some(port) = port.filter(|_| settings.proxy.proxy_type == ProxyType::Dataplane) else {
        return Ok(None);
    };
    let networks = redirected.map(|redirected| redirected.config.redirect.vnet.ranges()).transpose();
    let networks = networks
        .map_err(|error| Failure::invalid(format!("--transparent-proxy-config: {error}")))?
        .unwrap_or_default();
    let plan = dns::DnsSettings {
        port,
        ipv6: settings.features.ipv6_enabled,
        resolv_conf: settings.dns.resolv_conf.clone(),
        log_queries: settings.dns.log_queries,
        networks,
    };
    dns::DnsServer::start(&plan, health.metrics(), shutdown).map(Some)
}

/// Services of the agent that the control plane hears of. Names are of use where they are answered, whether or not the
/// settings of the redirection mention that.
fn announced(
    redirected: Option<RedirectionSettings>,
    names: Option<&dns::DnsServer>,
    readiness: Option<IpAddr>,
) -> AgentServices {
    let mut redirected = redirected.map(|redirected| redirected.config);
    let dns_port = names.map(dns::DnsServer::port);
    if let Some(config) = &mut redirected {
        config.redirect.dns.enabled = dns_port.is_some();
        if let Some(port) = dns_port.and_then(|port| port.to_string().parse().ok()) {
            config.redirect.dns.port = port;
        }
    }
    // Control planes, Kuma's included, take this address for granted.
    let readiness = readiness.filter(|address| *address != Ipv4Addr::LOCALHOST);
    AgentServices { dns_port, redirected, readiness }
}

/// Begins to look for what the control plane has while Envoy runs: names of the mesh, and what a MeshMetric asks
/// for, which are pages that Envoy offers and what is sent through Envoy.
fn follow_configuration(
    health: &ProxyHealth,
    identity: &ProxyIdentity,
    sidecar: Sidecar,
    names: Option<dns::DnsServer>,
    work_dir: &Path,
    shutdown: &Shutdown,
) -> Result<()> {
    let socket = socket::configuration(&work_dir.display().to_string());
    let configuration = Configuration { socket: socket.into() };
    let mut poller = Poller::new(configuration.clone());
    if let Some(names) = names {
        shutdown.spawn(names.follow(poller.follow(dns::PATH)));
    }
    let instance = format!("{}.{}", identity.mesh, identity.name);
    let documents = poller.follow(MESH_METRIC);
    metrics_push::follow(health, documents, instance, sidecar.address.clone(), shutdown);
    metrics_socket::serve(health, identity, sidecar, &configuration, work_dir, shutdown)?;
    poller.start(shutdown);
    Ok(())
}

fn start_logs(settings: &Settings) -> Result<()> {
    let heard = match &settings.envoy.envoy_component_log_level {
        // Parts of Envoy may say more than the whole.
        Some(levels) if !levels.is_empty() => Level::Trace,
        _ => level(settings).heard_at(),
    };
    let level = settings.logs.log_level;
    let format = settings.logs.log_format;
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
        tracing::warn!(flags, "this agent does not support these settings yet; they are ignored");
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let variables = unknown_variables(&Settings::augment_args(Command::new("run")), names);
    if !variables.is_empty() {
        let variables = variables.join(" ");
        tracing::warn!(variables, "these variables match no setting; they are ignored");
    }
}
