//! The parts of the REST API.

use std::{path::Path, sync::Arc};

use admission::Registrar;
use anyhow::{Context, Result};
use axum::Router;
use events::{EventLog, Events};
use identity::ca::Files;
use insights::BASED_ON_KUMA;
use inspection::findings::Findings;
use monitoring::Targets;
use runtime::{Shutdown, logs::Journal, metrics::Metrics};
use store::Store;

use super::std_duration;
use crate::{
    certificates,
    config::{Config, print, setting::AuthnType},
    defaults,
};

/// Opens the audit log, where writes are recorded.
pub fn audit(config: &Config, metrics: &Metrics) -> Result<api::Audit> {
    let audit = &config.audit;
    if !audit.enabled || audit.file.is_empty() {
        return Ok(if audit.enabled { api::Audit::Log } else { api::Audit::Off });
    }
    let journal = Journal::open(Path::new(&audit.file))
        .with_context(|| format!("audit.file (KUMA_AUDIT_FILE): cannot append to {}", audit.file))?;
    journal.register(metrics, "audit_lines_lost");
    Ok(api::Audit::File(journal))
}

/// Opens the log of events, which is where the audit log is.
pub fn event_log(audit: &api::Audit) -> EventLog {
    match audit {
        api::Audit::Off => EventLog::Off,
        api::Audit::Log => EventLog::Log,
        api::Audit::File(journal) => EventLog::File(journal.clone()),
    }
}

/// Sources of answers beside the store.
pub struct KnownState {
    pub inspect: Arc<dyn api::Inspect>,
    pub findings: Arc<Findings>,
    pub events: Events,
    pub targets: Arc<Targets>,
}

pub fn router(
    registrar: &Arc<Registrar>,
    settings: api::Settings,
    metrics: &Metrics,
    known: KnownState,
    shutdown: &Shutdown,
) -> Router {
    let KnownState { inspect, findings, events, targets } = known;
    let registrar = registrar.clone();
    let metrics = api::ApiMetrics::register(metrics);
    let gates = api::Gates::default().finished_before(shutdown.clone());
    api::router(api::Context { registrar, settings, metrics, inspect, findings, events, targets, gates })
}

/// Settings of the API.
pub fn settings(config: &Config, store: Arc<dyn Store>) -> api::Settings {
    let server = &config.api_server;
    let access = &config.access.fixed;
    let dp = &config.serving.dp_server.authn;
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
        access: api::AccessRights {
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
        service_hosts: config.reconcilers.dns_server.service_hosts(),
        data_sources: Files::within(config.data_source_dir()),
        audit: api::Audit::default(),
        backup_files: {
            let config = config.clone();
            Arc::new(move || certificates::backup::files(&config).map_err(|error| format!("{error:#}")))
        },
        max_watches: api::WATCHES,
        max_watches_per_peer: api::WATCHES_PER_PEER,
        max_event_streams: api::EVENT_STREAMS,
        max_event_streams_per_peer: api::EVENT_STREAMS_PER_PEER,
        event_stream_lifetime: api::EVENT_STREAM_LIFETIME,
        watch_patience: api::WATCH_PATIENCE,
    }
}
