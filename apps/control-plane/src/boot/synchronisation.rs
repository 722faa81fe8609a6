//! Starts the synchronisation with other control planes.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use api::Inspect;
use http::Uri;
use jiff::Timestamp;
use kds::guard::{Guard, Threshold};
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
    metrics::Metrics,
    tls::{Trust, certificates, client_config},
};
use store::Registrar;
use tokio::sync::Semaphore;

use super::{BASED_ON_KUMA, serves_alone, std_duration};
use crate::{
    certificates,
    config::{Config, GlobalKds, ZoneKds, print},
    kds::{
        KeepAlive,
        admin::Questions,
        authorities,
        client::{Address, Client},
        metrics::{self, Meter},
        node,
        receiving::{Held, TURNS},
        server,
        zones::{self, Zones},
    },
};

const KDS_PORT: u16 = 5685;
/// Connections at a time, each with a zone behind it, and from one address: zones may share a gateway's.
const CONNECTIONS: usize = 4096;
const CONNECTIONS_PER_PEER: usize = 1024;
/// Calls at a time on a connection: a zone has six.
const CALLS: u32 = 32;
/// Windows of HTTP/2: a message should not need many round trips.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);
/// How long the beginning of a call may take.
const BEGINNING: Duration = Duration::from_secs(60);

/// How long it may take until a zone shows another reason why it is not connected.
const OWN_FLUSH: Duration = Duration::from_secs(10);

/// What it needs.
pub struct Setup<'a> {
    pub config: &'a Config,
    pub registrar: &'a Arc<Registrar>,
    pub instance_id: &'a str,
    pub metrics: &'a Metrics,
}

impl Setup<'_> {
    /// Serves zones where there is a listener for them, or follows the global control plane.
    pub fn start(
        &self,
        listener: Option<Listener>,
        questions: Arc<Questions>,
        inspect: Arc<dyn Inspect>,
        shutdown: &Shutdown,
    ) -> Result<Option<SocketAddr>> {
        if self.config.federated() {
            self.follow_global(inspect, shutdown)?;
        }
        listener.map(|listener| self.serve_zones(listener, questions, shutdown)).transpose()
    }

    fn serve_zones(
        &self,
        listener: Listener,
        questions: Arc<Questions>,
        shutdown: &Shutdown,
    ) -> Result<SocketAddr> {
        let Setup { config, registrar, .. } = self;
        let settings: &GlobalKds = &config.multizone.global.kds;
        let tls = if settings.tls_enabled {
            Some(certificates::kds_server(config, Timestamp::now())?.to_config()?)
        } else {
            None
        };
        authorities::start(registrar, shutdown);
        let zones = Zones::start((*registrar).clone(), self.zones(), shutdown)?;
        metrics::of_global(&zones, self.metrics);
        let context = server::Context {
            store: registrar.store().clone(),
            zones,
            questions,
            tokens_required: settings.zone_token_required,
            skipped_labels: settings.labels.skip_prefixes.clone(),
            limit: count(settings.max_msg_size),
            patience: std_duration(settings.msg_send_timeout),
            meter: Meter::register(self.metrics),
            turns: Arc::new(Semaphore::new(TURNS)),
            shutdown: shutdown.clone(),
        };
        let limits = Limits {
            connections: CONNECTIONS,
            per_peer: CONNECTIONS_PER_PEER,
            streams: CALLS,
            request: BEGINNING,
            ping: Some((
                std_duration(settings.keep_alive_interval),
                std_duration(settings.keep_alive_timeout),
            )),
            windows: WINDOWS,
            ..Limits::default()
        };
        let addr = listener.addr();
        listener.serve(server::router(Arc::new(context)), tls, limits, shutdown);
        Ok(addr)
    }

    fn zones(&self) -> zones::Settings {
        let settings = &self.config.multizone.global.kds;
        zones::Settings {
            instance_id: self.instance_id.to_owned(),
            most: count(settings.max_zones),
            flush: std_duration(settings.zone_insight_flush_interval),
            withdraw_after: std_duration(settings.zone_withdraw_after),
            threshold: Threshold { percent: settings.hold_back_deletions },
            alone: serves_alone(self.config),
        }
    }

    /// What a zone knows about its own connection. Nothing is withdrawn for it.
    fn own_zone(&self) -> zones::Settings {
        zones::Settings {
            // Who the global control plane is, it does not say.
            instance_id: String::new(),
            most: usize::MAX,
            flush: OWN_FLUSH,
            withdraw_after: Duration::ZERO,
            threshold: Threshold::default(),
            alone: serves_alone(self.config),
        }
    }

    fn follow_global(&self, inspect: Arc<dyn Inspect>, shutdown: &Shutdown) -> Result<()> {
        let Setup { config, registrar, instance_id, .. } = self;
        let (zone, settings) = (&config.multizone.zone.name, &config.multizone.zone.kds);
        let shown = print::masked_json(config).to_string();
        let token_file =
            Some(PathBuf::from(&settings.token_file)).filter(|file| !file.as_os_str().is_empty());
        let general = &config.general;
        let own = Zones::start((*registrar).clone(), self.own_zone(), shutdown)?;
        metrics::of_zone(&own, &zone.as_str().into(), self.metrics);
        let client = Client {
            own,
            meter: Meter::register(self.metrics),
            zone: zone.as_str().into(),
            address: address(&config.multizone.zone.global_address, settings)?,
            store: registrar.store().clone(),
            inspect,
            held: Arc::new(Held::new(Guard::new(Threshold { percent: settings.hold_back_deletions }))),
            node: node::ours(zone, instance_id, BASED_ON_KUMA, shown),
            version: BASED_ON_KUMA.to_owned(),
            token_file,
            skipped_labels: settings.labels.skip_prefixes.clone(),
            limit: count(settings.max_msg_size),
            patience: std_duration(settings.msg_send_timeout),
            keep_alive: KeepAlive {
                interval: std_duration(settings.keep_alive_interval),
                timeout: std_duration(settings.keep_alive_timeout),
            },
            pauses: (
                std_duration(general.resilient_component_base_backoff),
                std_duration(general.resilient_component_max_backoff),
            ),
        };
        client.start(shutdown);
        Ok(())
    }
}

/// `grpcs://host:port`
fn address(text: &str, settings: &ZoneKds) -> Result<Address> {
    let key = "multizone.zone.globalAddress";
    let uri: Uri = text.parse().map_err(|error| anyhow!("{key}: {text:?}: {error}"))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| anyhow!("{key}: {text:?}: names no host"))?;
    let tls = match uri.scheme_str() {
        Some("grpcs") => Some(Arc::new(client_config(trust(settings)?, b"h2").context(
            "multizone.zone.kds.rootCaFile (KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE) says which certificates are believed",
        )?)),
        _ => None,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Address { host, port: uri.port_u16().unwrap_or(KDS_PORT), tls })
}

fn trust(settings: &ZoneKds) -> Result<Trust> {
    if settings.tls_skip_verify {
        return Ok(Trust::Anybody);
    }
    let file = &settings.root_ca_file;
    if file.is_empty() {
        return Ok(Trust::Machine);
    }
    let failed = || format!("multizone.zone.kds.rootCaFile: {file}");
    let pem = std::fs::read_to_string(file).with_context(failed)?;
    Ok(Trust::Certificates(certificates(&pem).with_context(failed)?))
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
