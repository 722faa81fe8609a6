//! Starts the control plane, part by part, and stops it.

mod announcement;
mod ports;
mod preparation;
mod synchronisation;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use axum::Router;
use identity::ca::Files;
use jiff::Timestamp;
use resources::duration::GoDuration;
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
    logs::{self, Journal},
    metrics::Metrics,
    tls::{self, ServerConfig},
};
use store::{
    Registrar, Store,
    registrar::{Mode as RegistrarMode, Setup},
};

use self::{
    ports::Ports,
    preparation::Preparation,
    synchronisation::{Listeners, Provided, Reached},
};
use crate::{
    available_services,
    certificates::{self, Server, rotation},
    config::{
        Config, print,
        setting::{AuthnType, DpAuthnType, Mode, StoreType, ZoneAuthnType},
        source::Loaded,
    },
    defaults, diagnostics, dp_server,
    findings::Findings,
    insights::{self, connection::Instance},
    inspect,
    kds::admin::Questions,
    mesh_identities, mesh_services,
    observed::Observations,
    push::{self, HoldTimes, Push},
    snis, storage, telemetry_backends, virtual_hosts,
};

/// How long open requests may take to finish when the process is asked to end.
const DRAIN: Duration = Duration::from_secs(15);

/// How long the end of the process waits for the disk of the audit log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// An address in use, say, becomes free; what is really wrong need not be said often.
const SECOND_TRY_AFTER: Duration = Duration::from_secs(30);

/// How long a proxy may be away before others stop calling it. Envoy comes back within half a second, mostly.
const GRACE: Duration = Duration::from_secs(1);

/// The version of Kuma whose behaviour is spoken.
pub(crate) const BASED_ON_KUMA: &str = "2.14.3";

/// A control plane that answers.
#[derive(Debug)]
pub struct Running {
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    pub diagnostics: Option<SocketAddr>,
    pub dp_server: Option<SocketAddr>,
    /// Where zones connect.
    pub kds: Option<SocketAddr>,
    pub metrics: Metrics,
    pub shutdown: Shutdown,
    /// Why the control plane had to end by itself.
    pub failure: Arc<OnceLock<store::Error>>,
    audit: api::Audit,
}

/// Runs until a signal arrives.
pub async fn run(loaded: Loaded) -> Result<()> {
    let general = &loaded.config.general;
    logs::init(general.log_level, general.log_format)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let running = start(loaded.config).await?;
    running.shutdown.on_signals()?;
    running.shutdown.begun().await;
    let failure = running.failure.clone();
    running.finish().await;
    match failure.get() {
        Some(why) => bail!("the store can no longer write: {why}"),
        None => Ok(()),
    }
}

/// Starts every part; when this returns, requests are answered.
pub async fn start(config: Config) -> Result<Running> {
    tls::install_provider();
    announcement::of(&config);
    let now = Timestamp::now();
    let (metrics, shutdown) = (metrics_of(&config), Shutdown::default());
    let store = diagnostics::metered(storage::open(&config).await?, &metrics);
    let registrar = Arc::new(registrar(&config, store.clone())?);
    let failure = end_with(store.clone(), &shutdown);
    let settings = api::Settings { audit: audit(&config, &metrics)?, ..api_settings(&config, store.clone()) };
    let (instance_id, audit) = (settings.instance_id.clone(), settings.audit.clone());
    preparation(&config, registrar.clone(), &instance_id).make(&shutdown).await?;
    let Ports { http, https, diagnostics, proxies, zones, peers, shares } =
        Ports::bind(&config, &metrics).await?;
    let certificate =
        https.as_ref().map(|_| api_certificate(&config, &metrics, now, &shutdown)).transpose()?;

    insights::start(store.clone(), &shutdown);
    let others = synchronisation::Setup::new(&config, &registrar, &instance_id, &metrics);
    let questions = others.questions();
    let (push, inspect, findings) =
        follow_meshes(&config, &store, proxies.is_some(), &questions, &metrics, &shutdown)?;
    snis::start(&registrar, &push, &shutdown);
    let observations = Observations::started(store.clone(), &metrics, &shutdown);
    let (answers, inspect) = others.answering(inspect.observing(observations.clone()), &questions);
    let api = api_router(&registrar, settings, &metrics, inspect.clone(), findings.clone(), &shutdown);
    let health = diagnostics::router(store, metrics.clone(), &shutdown);
    let serve = |listener: Option<Listener>, router: Router, tls: Option<Arc<ServerConfig>>, share| {
        let listener = listener?;
        let addr = listener.addr();
        listener.serve(router, tls, ports::api_limits(&config, share), &shutdown);
        Some(addr)
    };
    let listeners = Listeners { zones, peers, shares };
    let provided = Provided { answers, inspect, unreceived: findings.unreceived() };
    let Reached { kds, instance } = others.start(listeners, provided, &questions, &shutdown)?;
    let dp_server = match proxies {
        Some(listener) => {
            let (tls, shown) = proxy_certificate(&config, &metrics, now, &shutdown)?;
            let parts = (registrar, push, observations);
            let context = dp_context(&config, parts, &listener, instance, &shutdown, shown)?;
            let limits = ports::proxy_limits(&config, shares.proxies);
            Some(serve_proxies(listener, &config, context, findings, tls, limits))
        }
        None => None,
    };
    Ok(Running {
        dp_server,
        kds,
        metrics: metrics.clone(),
        http: serve(http, api.clone(), None, shares.api),
        https: serve(https, api, certificate, shares.api),
        diagnostics: serve(diagnostics, health, None, shares.diagnostics),
        shutdown: shutdown.clone(),
        failure,
        audit,
    }
    .announced())
}

/// Where writes are recorded.
fn audit(config: &Config, metrics: &Metrics) -> Result<api::Audit> {
    let audit = &config.audit;
    if !audit.enabled || audit.file.is_empty() {
        return Ok(if audit.enabled { api::Audit::Log } else { api::Audit::Off });
    }
    let journal = Journal::open(Path::new(&audit.file))
        .with_context(|| format!("audit.file (KUMA_AUDIT_FILE): cannot append to {}", audit.file))?;
    journal.register(metrics, "audit_lines_lost");
    Ok(api::Audit::File(journal))
}

fn api_router(
    registrar: &Arc<Registrar>,
    settings: api::Settings,
    metrics: &Metrics,
    inspect: Arc<dyn api::Inspect>,
    problems: Arc<Findings>,
    shutdown: &Shutdown,
) -> Router {
    let (registrar, metrics) = (registrar.clone(), api::Metrics::register(metrics));
    let gates = api::Gates::default().finished_before(shutdown.clone());
    api::router(api::Context { registrar, settings, metrics, inspect, problems, gates })
}

/// The registry of metrics, with what is true of the whole process.
fn metrics_of(config: &Config) -> Metrics {
    let metrics = Metrics::default();
    logs::register(&metrics, "log_lines_lost");
    diagnostics::register(&metrics, config);
    metrics
}

fn api_certificate(
    config: &Config,
    metrics: &Metrics,
    now: Timestamp,
    shutdown: &Shutdown,
) -> Result<Arc<ServerConfig>> {
    let tls = certificates::tls(Server::Api, config, now)?;
    rotation::start(Server::Api, config, tls, None, metrics.certificate_expiries(), shutdown)
}

/// TLS for proxies, and the certificate that they see.
fn proxy_certificate(
    config: &Config,
    metrics: &Metrics,
    now: Timestamp,
    shutdown: &Shutdown,
) -> Result<(Arc<ServerConfig>, dp_server::ServerCertificate)> {
    let tls = certificates::tls(Server::Proxies, config, now)?;
    let shown = certificates::read_presented(&tls, now)?;
    certificates::check_xds_host(&config.bootstrap_server.params.xds_host, &shown)?;
    let shown = dp_server::ServerCertificate::new(shown);
    let expiries = metrics.certificate_expiries();
    Ok((rotation::start(Server::Proxies, config, tls, Some(shown.clone()), expiries, shutdown)?, shown))
}

impl Running {
    /// Says in the log where it listens.
    fn announced(self) -> Self {
        let [http, https, diagnostics, proxies, zones] =
            [self.http, self.https, self.diagnostics, self.dp_server, self.kds]
                .map(|addr| addr.map(tracing::field::display));
        tracing::info!(http, https, diagnostics, proxies, zones, "control plane is up");
        self
    }

    /// Ends every part; requests that are open now are still answered.
    pub async fn finish(self) {
        if self.shutdown.finish(DRAIN).await {
            tracing::info!("control plane stopped");
        } else {
            tracing::warn!(waited_ms = DRAIN.as_millis(), "some requests were still open and were closed");
        }
        if let api::Audit::File(journal) = &self.audit {
            journal.flush(LAST_LINES);
        }
    }
}

/// Starts the loop that follows what is stored, with proxies or without: what the mesh looks like to them can be asked
/// anywhere.
fn follow_meshes(
    config: &Config,
    store: &Arc<dyn Store>,
    serves_proxies: bool,
    questions: &Arc<Questions>,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<(Arc<Push>, inspect::Proxies, Arc<Findings>)> {
    // A global control plane is in no zone: it sees what belongs to any.
    let zone = if serves_proxies { &*config.multizone.zone.name } else { "" };
    let mode = match config.experimental.auto_reachable_services {
        true => topology::Mode::Enforce,
        false => topology::Mode::Off,
    };
    let times = HoldTimes::from(&config.xds_server);
    let push = Push::new(store.clone(), zone).with_default_mode(mode).holding_for(times);
    let push = Arc::new(push.naming_services(config.dns_server.service_hosts()));
    let findings =
        Findings::new(store.clone(), push.clone(), Files::within(config.data_source_dir()), metrics);
    if serves_proxies {
        virtual_hosts::start(store, &push, findings.hostnames(), config, metrics, shutdown)?;
        available_services::start(store, &push, shutdown);
    }
    push.start(shutdown);
    findings.start(shutdown);
    let inspect = if serves_proxies {
        push::metrics::register(&push, metrics);
        let admin_port = config.bootstrap_server.params.admin_port;
        inspect::Proxies::new(store.clone(), push.clone(), admin_port)
    } else {
        inspect::Proxies::on_global(store.clone(), push.clone(), questions.clone())
    };
    Ok((push, inspect, findings))
}

/// Ends the control plane when its store can write no more: a process that starts again is of more use.
fn end_with(store: Arc<dyn Store>, shutdown: &Shutdown) -> Arc<OnceLock<store::Error>> {
    let failure = Arc::new(OnceLock::new());
    let (found, ending) = (failure.clone(), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            why = store.ended() => {
                tracing::error!(%why, "shutting down: the store can no longer write");
                let _ = found.set(why);
                ending.begin();
            }
            () = ending.begun() => {}
        }
    });
    failure
}

/// What serving proxies needs.
fn dp_context(
    config: &Config,
    (registrar, push, observations): (Arc<Registrar>, Arc<Push>, Arc<Observations>),
    listener: &Listener,
    instance: Instance,
    shutdown: &Shutdown,
    certificate: dp_server::ServerCertificate,
) -> Result<dp_server::Context> {
    let store = registrar.store().clone();
    let health_discovery = &config.dp_server.hds;
    Ok(dp_server::Context {
        hds: health_discovery.enabled.then(|| dp_server::hds::Hds::start(health_discovery, &store, shutdown)),
        registrar,
        push,
        issuer: dp_server::secrets::Secrets::reading(Files::within(config.data_source_dir())),
        insights: insights::Writer::new(
            store,
            std_duration(config.xds_server.dataplane_status_flush_interval),
            shutdown.clone(),
        ),
        certificate,
        tokens_required: config.dp_server.authn.dp_proxy.kind != DpAuthnType::None,
        zone_tokens_required: config.dp_server.authn.zone_proxy.kind != ZoneAuthnType::None,
        zone: config.multizone.zone.name.as_str().into(),
        bootstrap: dp_server::bootstrap::Params::of(config, listener.addr().port())?,
        deregistration_delay: std_duration(config.xds_server.dataplane_deregistration_delay),
        departures: dp_server::departures::Departures::new(GRACE),
        observations,
        second_try_after: SECOND_TRY_AFTER,
        instance,
        admission: ports::admission(&config.dp_server.limits, listener, shutdown),
        shutdown: shutdown.clone(),
    })
}

/// Starts what proxies connect to, and the loops that work for them.
fn serve_proxies(
    listener: Listener,
    config: &Config,
    context: dp_server::Context,
    findings: Arc<Findings>,
    tls: Arc<ServerConfig>,
    limits: Limits,
) -> SocketAddr {
    let shutdown = context.shutdown.clone();
    mesh_services::start(context.registrar.clone(), findings.conflicts(), config, &shutdown);
    telemetry_backends::start(&context.registrar, &shutdown);
    mesh_identities::start(&context.registrar, config, Files::within(config.data_source_dir()), &shutdown);
    let addr = listener.addr();
    listener.serve(dp_server::router(Arc::new(context)), Some(tls), limits, &shutdown);
    addr
}

/// Whether every proxy on record is connected to this control plane or to none: no other process uses the store,
/// and no zone reports here.
fn serves_all_proxies(config: &Config) -> bool {
    serves_alone(config) && config.mode != Mode::Global
}

/// Whether no other control plane uses the store.
fn serves_alone(config: &Config) -> bool {
    config.store.kind != StoreType::Postgres
}

fn preparation(config: &Config, registrar: Arc<Registrar>, instance_id: &str) -> Preparation {
    Preparation {
        registrar,
        config: config.clone(),
        alone: serves_all_proxies(config),
        serves_proxies: config.mode != Mode::Global,
        instance_id: instance_id.to_owned(),
    }
}

fn registrar(config: &Config, store: Arc<dyn Store>) -> Result<Registrar> {
    let mode = match config.mode {
        Mode::Global => RegistrarMode::Global,
        Mode::Zone | Mode::Standalone => {
            RegistrarMode::Zone { name: config.multizone.zone.name.clone(), federated: config.federated() }
        }
    };
    let setup = Setup {
        mode,
        disable_origin_label_validation: config.multizone.zone.disable_origin_label_validation,
        unsafe_delete: config.store.unsafe_delete,
        health_discovery: config.mode != Mode::Global && config.dp_server.hds.enabled,
        companions: defaults::companions()?,
        check: envoy::patch::check,
        now: Timestamp::now,
    };
    Ok(Registrar::new(store, setup).with_sni_formats(config.multizone.sni.formats.clone()))
}

fn api_settings(config: &Config, store: Arc<dyn Store>) -> api::Settings {
    let (server, access, dp) = (&config.api_server, &config.access.fixed, &config.dp_server.authn);
    let hostname = certificates::hostname();
    api::Settings {
        authn: api::Authn {
            kind: match server.authn.kind {
                AuthnType::Tokens => api::AuthnType::Tokens,
                AuthnType::AdminClientCerts => api::AuthnType::AdminClientCerts,
            },
            localhost_is_admin: server.authn.localhost_is_admin,
            local_administrators: vec![0, nix::unistd::geteuid().as_raw()],
            require_for_writes: server.authn.require_for_writes,
        },
        issuers: api::Issuers {
            user: server.authn.tokens.enable_issuer,
            dataplane: dp.dp_proxy.dp_token.enable_issuer,
            zone: dp.zone_proxy.zone_token.enable_issuer,
        },
        access: api::Access {
            admin_resources: access.admin_resources.to_allowed(),
            generate_dataplane_token: access.generate_dp_token.to_allowed(),
            generate_zone_token: access.generate_zone_token.to_allowed(),
            generate_user_token: access.generate_user_token.to_allowed(),
            control_plane_metadata: access.control_plane_metadata.to_allowed(),
            view_config_dump: access.view_config_dump.to_allowed(),
            view_stats: access.view_stats.to_allowed(),
            view_clusters: access.view_clusters.to_allowed(),
        },
        read_only: server.read_only,
        base_path: server.base_path.clone(),
        root_url: server.root_url.clone(),
        allowed_hosts: server.allowed_hosts.clone(),
        cors_allowed_domains: server.cors_allowed_domains.clone(),
        gui_url: if server.gui.enabled { server.gui.root_url.clone() } else { String::new() },
        config: print::masked_json(config),
        // Two control planes on one machine, or one after another, are different instances.
        instance_id: format!("{hostname}-{:04x}", rand::random::<u16>()),
        cluster_id: Arc::new(move || {
            store.snapshot().map(|stored| defaults::cluster_id(&stored)).unwrap_or_default()
        }),
        hostname,
        version: BASED_ON_KUMA.to_owned(),
        implementation_version: version::VERSION.to_owned(),
        implementation_commit: version::COMMIT.to_owned(),
        max_body: api::MAX_BODY,
        timeout: std_duration(server.write_timeout),
        service_hosts: config.dns_server.service_hosts(),
        data_sources: Files::within(config.data_source_dir()),
        audit: api::Audit::default(),
        backup_files: {
            let config = config.clone();
            Arc::new(move || certificates::backup::files(&config).map_err(|error| format!("{error:#}")))
        },
        max_watches: api::WATCHES,
        max_watches_per_peer: api::WATCHES_PER_PEER,
        watch_patience: api::WATCH_PATIENCE,
    }
}

/// The configuration holds no negative durations.
fn std_duration(duration: GoDuration) -> Duration {
    duration.to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use store::{Changes, Committed, Error, Memory, Snapshot, Write};

    use super::*;

    /// A store whose writer has died.
    #[derive(Default)]
    struct Dead(Memory);

    #[async_trait]
    impl Store for Dead {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            self.0.snapshot()
        }
        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            self.0.write(batch).await
        }
        fn changes(&self) -> Changes {
            self.0.changes()
        }
        async fn ended(&self) -> Error {
            Error::Unavailable("the thread that writes has stopped".to_owned())
        }
    }

    #[tokio::test]
    async fn the_death_of_the_writer_ends_the_control_plane_with_the_reason() {
        let shutdown = Shutdown::default();
        let failure = end_with(Arc::new(Dead::default()), &shutdown);
        shutdown.begun().await;
        assert!(failure.get().unwrap().to_string().contains("has stopped"));
    }
}
