//! Starts the control plane, part by part, and stops it.

mod announcement;
mod ports;
mod preparation;
mod rest_api;
mod synchronisation;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::Registrar;
use anyhow::{Result, bail};
use axum::Router;
use events::Events;
use identity::ca::Files;
use insights::connection::Instance;
use inspection::{StoredProxies, blame, findings::Findings};
use jiff::Timestamp;
use monitoring::{
    Targets,
    assignments::{self, Assignments},
};
use reconcile::Runner;
use reconcilers::{
    available_services, mesh_identities, mesh_services, snis, telemetry_backends, virtual_hosts,
};
use resources::duration::GoDuration;
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
    logs,
    metrics::Metrics,
    tls::{self, ServerConfig},
};
use serving::{
    dp_server::{
        self, Reports, ServerCertificate, bootstrap,
        credentials::Authentication,
        departures::{Absence, Departures},
        hds::Hds,
        secrets::Secrets,
        stream_gates::{Limits as StreamLimits, StreamGates},
    },
    observed::Observations,
    push::{self, HoldTimes, Push},
};
use store::Store;

use self::{
    ports::{Ports, Shares},
    preparation::Preparation,
    synchronisation::{InstanceAddresses, Listeners, SynchronisationAnswers},
};
use crate::{
    certificates::{self, TlsServer, rotation},
    config::{
        Config,
        setting::{Mode, StoreType},
        source::LoadedConfig,
    },
    diagnostics, storage,
};
use ::synchronisation::admin::Questions;

/// Time for open requests to finish when the process is asked to end.
const DRAIN: Duration = Duration::from_secs(15);

/// Time that the end of the process waits for the disk of the audit log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// An address in use, say, becomes free; what is really wrong need not be said often.
const SECOND_TRY_AFTER: Duration = Duration::from_secs(30);

/// Time that a proxy may be away before others stop calling it. Envoy comes back within half a second,
/// mostly.
const GRACE: Duration = Duration::from_secs(1);

/// A control plane that answers.
#[derive(Debug)]
pub struct Running {
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    pub diagnostics: Option<SocketAddr>,
    pub dp_server: Option<SocketAddr>,
    /// Address that zones connect to.
    pub kds: Option<SocketAddr>,
    /// Address that a Prometheus asks for the pages of proxies.
    pub monitoring: Option<SocketAddr>,
    pub metrics: Metrics,
    pub shutdown: Shutdown,
    /// Set when the control plane had to end by itself.
    pub failure: Arc<OnceLock<store::Error>>,
    audit: api::Audit,
}

/// Runs until a signal arrives.
pub async fn run(loaded: LoadedConfig) -> Result<()> {
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
    let metrics = metrics_of(&config);
    let shutdown = Shutdown::default();
    let store = diagnostics::metered(storage::open(&config).await?, &metrics);
    let registrar = Arc::new(storage::registrar(&config, store.clone())?);
    let failure = end_with(store.clone(), &shutdown);
    let settings = api::Settings {
        audit: rest_api::audit(&config, &metrics)?,
        ..rest_api::settings(&config, store.clone())
    };
    let instance_id = settings.instance_id.clone();
    let audit = settings.audit.clone();
    let events = Events::new(rest_api::event_log(&audit), &metrics);
    events.start(&store, &shutdown);
    preparation(&config, registrar.clone(), &instance_id).make(&shutdown).await?;
    let Ports { http, https, diagnostics, proxies, zones, peers, monitoring, shares } =
        Ports::bind(&config, &metrics).await?;
    let certificate =
        https.as_ref().map(|_| api_certificate(&config, &metrics, now, &shutdown)).transpose()?;

    let runner = Runner::new(store.clone(), reconcile::Metrics::register(&metrics), &shutdown);
    insights::start(&runner);
    let others =
        synchronisation::SynchronisationParts::new(&config, &registrar, &instance_id, &events, &metrics);
    let questions = others.questions();
    let FollowedMeshes { push, inspect, findings, targets } =
        follow_meshes(&config, &store, proxies.is_some(), &questions, &metrics, &runner)?;
    findings.start(&runner, &events);
    snis::start(&registrar, &push, &runner).await;
    let observations = Observations::started(&metrics, &runner);
    let (answers, inspect) = others.answering(inspect.observing(observations.clone()), &questions);
    let known = rest_api::KnownState {
        inspect: inspect.clone(),
        findings: findings.clone(),
        events: events.clone(),
        targets: targets.clone(),
    };
    let api = rest_api::router(&registrar, settings, &metrics, known, &shutdown);
    let monitoring =
        monitoring.map(|listener| serve_assignments(listener, &config, targets, shares, &metrics, &shutdown));
    let health = diagnostics::router(store, metrics.clone(), &shutdown);
    let serve = |listener: Option<Listener>, router: Router, tls: Option<Arc<ServerConfig>>, share| {
        let listener = listener?;
        let addr = listener.addr();
        listener.serve(router, tls, ports::api_limits(&config, share), &shutdown);
        Some(addr)
    };
    let listeners = Listeners { zones, peers, shares };
    let provided = SynchronisationAnswers { answers, inspect, unreceived: findings.unreceived() };
    let InstanceAddresses { kds, instance } = others.start(listeners, provided, &questions, &runner)?;
    let dp_server = match proxies {
        Some(listener) => {
            let (tls, shown) = proxy_certificate(&config, &metrics, now, &shutdown)?;
            let parts = ServingParts { registrar, push, observations, events };
            let context = dp_context(&config, parts, &listener, instance, &shutdown, shown)?;
            let limits = config
                .serving
                .dp_server
                .listener(shares.proxies, std_duration(config.api_server.idle_timeout));
            Some(serve_proxies(listener, &config, context, findings, tls, limits, &runner))
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
        monitoring: monitoring.transpose()?,
        shutdown: shutdown.clone(),
        failure,
        audit,
    }
    .announced())
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
    let tls = certificates::tls(TlsServer::Api, config, now)?;
    rotation::start(TlsServer::Api, config, tls, None, metrics.certificate_expiries(), shutdown)
}

/// TLS for proxies, and the certificate that they see.
fn proxy_certificate(
    config: &Config,
    metrics: &Metrics,
    now: Timestamp,
    shutdown: &Shutdown,
) -> Result<(Arc<ServerConfig>, ServerCertificate)> {
    let tls = certificates::tls(TlsServer::Proxies, config, now)?;
    let shown = certificates::read_presented(&tls, now)?;
    certificates::check_xds_host(&config.serving.bootstrap_server.params.xds_host, &shown)?;
    let shown = ServerCertificate::new(shown);
    let expiries = metrics.certificate_expiries();
    Ok((rotation::start(TlsServer::Proxies, config, tls, Some(shown.clone()), expiries, shutdown)?, shown))
}

impl Running {
    /// Says in the log where it listens.
    fn announced(self) -> Self {
        let [http, https, diagnostics, proxies, zones, monitoring] =
            [self.http, self.https, self.diagnostics, self.dp_server, self.kds, self.monitoring]
                .map(|addr| addr.map(tracing::field::display));
        tracing::info!(http, https, diagnostics, proxies, zones, monitoring, "control plane is up");
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

/// Parts that follow what meshes look like.
struct FollowedMeshes {
    push: Arc<Push>,
    inspect: StoredProxies,
    findings: Arc<Findings>,
    targets: Arc<Targets>,
}

/// Starts the loop that follows what is stored, with proxies or without: what the mesh looks like to them can be asked
/// anywhere.
fn follow_meshes(
    config: &Config,
    store: &Arc<dyn Store>,
    serves_proxies: bool,
    questions: &Arc<Questions>,
    metrics: &Metrics,
    runner: &Runner,
) -> Result<FollowedMeshes> {
    let shutdown = runner.shutdown();
    // A global control plane is in no zone: it sees what belongs to any.
    let zone = if serves_proxies { &*config.synchronisation.multizone.zone.name } else { "" };
    let mode = if config.experimental.auto_reachable_services {
        topology::TrimmingMode::Enforce
    } else {
        topology::TrimmingMode::Off
    };
    let times = HoldTimes::from(&config.serving.xds_server);
    let push = Push::new(store.clone(), zone).with_default_mode(mode).holding_for(times);
    let push = push.naming_services(config.reconcilers.dns_server.service_hosts());
    let push = Arc::new(push.with_ipv6_prefix(config.reconcilers.ipam.ipv6_cidr));
    let findings =
        Findings::new(store.clone(), push.clone(), Files::within(config.data_source_dir()), metrics);
    let pause = std_duration(config.monitoring.server.assignment_refresh_interval);
    let targets = Targets::new(store.clone(), push.clone(), pause);
    if serves_proxies {
        virtual_hosts::start(&push, findings.hostnames(), &config.reconcilers, metrics, runner)?;
        available_services::start(&push, runner);
    }
    push.start(shutdown);
    targets.start(runner);
    let inspect = if serves_proxies {
        push::metrics::register(&push, metrics);
        let admin_port = config.serving.bootstrap_server.params.admin_port;
        StoredProxies::new(store.clone(), push.clone(), admin_port)
    } else {
        StoredProxies::on_global(store.clone(), push.clone(), questions.clone())
    };
    Ok(FollowedMeshes { push, inspect, findings, targets })
}

/// Serves the pages of proxies to a Prometheus.
fn serve_assignments(
    listener: Listener,
    config: &Config,
    targets: Arc<Targets>,
    shares: Shares,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<SocketAddr> {
    let settings = &config.monitoring.server;
    let tls = if settings.tls_enabled {
        let tls = certificates::tls(TlsServer::Monitoring, config, Timestamp::now())?;
        let expiries = metrics.certificate_expiries();
        Some(rotation::start(TlsServer::Monitoring, config, tls, None, expiries, shutdown)?)
    } else {
        None
    };
    let addr = listener.addr();
    let router = assignments::router(Assignments {
        targets,
        default_timeout: std_duration(settings.default_fetch_timeout),
        certificate_required: settings.requires_certificates(),
        shutdown: shutdown.clone(),
    });
    listener.serve(router, tls, settings.limits(shares.monitoring), shutdown);
    Ok(addr)
}

/// Ends the control plane when its store can write no more: a process that starts again is of more use.
fn end_with(store: Arc<dyn Store>, shutdown: &Shutdown) -> Arc<OnceLock<store::Error>> {
    let failure = Arc::new(OnceLock::new());
    let found = failure.clone();
    let ending = shutdown.clone();
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

/// Parts that serve proxies and others.
struct ServingParts {
    registrar: Arc<Registrar>,
    push: Arc<Push>,
    observations: Arc<Observations>,
    events: Events,
}

/// Gathers the parts that serve proxies.
fn dp_context(
    config: &Config,
    parts: ServingParts,
    listener: &Listener,
    instance: Instance,
    shutdown: &Shutdown,
    certificate: ServerCertificate,
) -> Result<dp_server::ProxyContext> {
    let ServingParts { registrar, push, observations, events } = parts;
    let serving::Config { dp_server, xds_server, .. } = &config.serving;
    let zone = &*config.synchronisation.multizone.zone.name;
    let store = registrar.store().clone();
    let flush = std_duration(xds_server.dataplane_status_flush_interval);
    let limits = StreamLimits::from(&dp_server.limits);
    Ok(dp_server::ProxyContext {
        hds: dp_server.hds.enabled.then(|| Hds::start(&dp_server.hds, &store, shutdown)),
        registrar,
        push,
        issuer: Secrets::reading(Files::within(config.data_source_dir())),
        certificate,
        authentication: Authentication::of(&dp_server.authn, zone),
        bootstrap: bootstrap::Params::of(&config.serving, listener.addr().port())?,
        reports: Reports {
            insights: insights::Writer::new(store, flush, shutdown.clone()),
            observations,
            events,
            blame: blame::blamed,
        },
        absence: Absence {
            deregistration_delay: std_duration(xds_server.dataplane_deregistration_delay),
            departures: Departures::new(GRACE),
        },
        second_try_after: SECOND_TRY_AFTER,
        instance,
        zone: zone.into(),
        gates: Arc::new(StreamGates::new(limits, listener.tally().clone(), shutdown.clone())),
        shutdown: shutdown.clone(),
    })
}

/// Starts what proxies connect to, and the loops that work for them.
fn serve_proxies(
    listener: Listener,
    config: &Config,
    context: dp_server::ProxyContext,
    findings: Arc<Findings>,
    tls: Arc<ServerConfig>,
    limits: Limits,
    runner: &Runner,
) -> SocketAddr {
    let shutdown = context.shutdown.clone();
    mesh_services::start(
        &context.registrar,
        findings.conflicts(),
        &config.reconcilers,
        &context.zone,
        runner,
    );
    telemetry_backends::start(runner);
    mesh_identities::start(&context.zone, Files::within(config.data_source_dir()), runner);
    let addr = listener.addr();
    listener.serve(dp_server::router(Arc::new(context)), Some(tls), limits, &shutdown);
    addr
}

/// True if every proxy on record is connected to this control plane or to none: no other process uses the store, and no
/// zone reports here.
fn serves_all_proxies(config: &Config) -> bool {
    serves_alone(config) && config.mode != Mode::Global
}

/// True if no other control plane uses the store.
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
