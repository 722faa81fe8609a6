//! Starts the synchronisation with other control planes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use ::synchronisation::{
    admin::{
        Questions,
        peers::{self, Answers, Peers},
    },
    authorities,
    client::{GlobalAddress, GlobalClient},
    config::{GlobalKds, ZoneKds},
    metrics::{self, SyncMetrics},
    node,
    receiving::{DeletionGuard, TURNS},
    refused, server,
    zones::{self, ZoneRegistry},
};
use admission::Registrar;
use anyhow::{Context as _, Result, anyhow};
use api::Inspect;
use events::Events;
use http::Uri;
use insights::{BASED_ON_KUMA, connection::Instance};
use inspection::StoredProxies;
use jiff::Timestamp;
use kds::{
    guard::{Guard, Threshold},
    unreceived::Unreceived,
};
use reconcile::Runner;
use runtime::{
    Shutdown,
    listen::Listener,
    metrics::Metrics,
    tls::{TrustedServers, certificates, client_config},
};
use tokio::sync::Semaphore;

use super::{ports::Shares, serves_alone, std_duration};
use crate::{
    certificates::{self, TlsServer, rotation},
    config::{Config, print, setting::Mode},
};

const KDS_PORT: u16 = 5685;

/// Listeners for zones and for other instances, with their shares of connections.
pub struct Listeners {
    pub zones: Option<Listener>,
    pub peers: Option<Listener>,
    pub shares: Shares,
}

/// Answers to the questions of other control planes, and findings about what they send.
pub struct SynchronisationAnswers {
    /// For other instances.
    pub answers: Answers,
    /// For the global control plane.
    pub inspect: Arc<dyn Inspect>,
    /// Resources of the global control plane that have no effect here.
    pub unreceived: Arc<Mutex<Unreceived>>,
}

/// Addresses at which others reach this control plane.
pub struct InstanceAddresses {
    /// The port of zones.
    pub kds: Option<SocketAddr>,
    /// This control plane, as other instances reach it.
    pub instance: Instance,
}

/// Parts that synchronisation is made from.
pub struct SynchronisationParts<'a> {
    config: &'a Config,
    registrar: &'a Arc<Registrar>,
    instance_id: &'a str,
    events: &'a Events,
    metrics: &'a Metrics,
}

impl<'a> SynchronisationParts<'a> {
    pub fn new(
        config: &'a Config,
        registrar: &'a Arc<Registrar>,
        instance_id: &'a str,
        events: &'a Events,
        metrics: &'a Metrics,
    ) -> SynchronisationParts<'a> {
        SynchronisationParts { config, registrar, instance_id, events, metrics }
    }

    /// The zones that can be asked, also where another instance has to do it.
    pub fn questions(&self) -> Arc<Questions> {
        self.peers().map(Questions::with_peers).map(Arc::new).unwrap_or_default()
    }

    /// The other instances on the same store, if there may be some.
    fn peers(&self) -> Option<Peers> {
        (!serves_alone(self.config)).then(|| Peers {
            store: self.registrar.store().clone(),
            instance_id: self.instance_id.to_owned(),
            limit: self.limit(),
        })
    }

    /// Splits inspection in two: for other instances, about what is connected here; and for users, which asks the others
    /// too.
    pub fn answering(
        &self,
        proxies: StoredProxies,
        questions: &Arc<Questions>,
    ) -> (Answers, Arc<dyn Inspect>) {
        if self.config.mode == Mode::Global {
            return (Answers::Zones(questions.clone()), Arc::new(proxies));
        }
        let answers = Answers::Proxies(Arc::new(proxies.only_here()));
        match self.peers() {
            Some(peers) => (answers, Arc::new(proxies.beside(peers))),
            None => (answers, Arc::new(proxies)),
        }
    }

    /// Serves zones and other instances where there are listeners for them, and follows the global control plane.
    pub fn start(
        &self,
        listeners: Listeners,
        provided: SynchronisationAnswers,
        questions: &Arc<Questions>,
        runner: &Runner,
    ) -> Result<InstanceAddresses> {
        let SynchronisationAnswers { answers, inspect, unreceived } = provided;
        if self.config.federated() {
            self.follow_global(inspect, unreceived, runner)?;
        }
        let Listeners { zones, peers, shares } = listeners;
        let address = match peers {
            Some(listener) => self.serve_peers(listener, answers, shares, runner.shutdown())?,
            None => String::new(),
        };
        let serve = |listener| self.serve_zones(listener, address.clone(), questions.clone(), shares, runner);
        let kds = zones.map(serve).transpose()?;
        Ok(InstanceAddresses { kds, instance: Instance { id: self.instance_id.to_owned(), address } })
    }

    /// Answers other instances; says where they reach this one.
    fn serve_peers(
        &self,
        listener: Listener,
        answers: Answers,
        shares: Shares,
        shutdown: &Shutdown,
    ) -> Result<String> {
        let SynchronisationParts { config, registrar, .. } = self;
        let tls = match peers::server_tls(&*registrar.store().snapshot()?) {
            Ok(tls) => tls.to_config()?,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "other instances of this control plane cannot query this one"
                );
                return Ok(String::new());
            }
        };
        let port = listener.addr().port();
        let limits = config.synchronisation.inter_cp.listener(shares.peers);
        listener.serve(peers::router(answers, self.limit()), Some(tls), limits, shutdown);
        let address = &config.synchronisation.inter_cp.catalog.instance_address;
        let database = &config.store.postgres;
        Ok(match address.as_str() {
            "" => SocketAddr::from((peers::own_address(&database.host, database.port), port)).to_string(),
            known if known.contains(':') && !known.starts_with('[') => format!("[{known}]:{port}"),
            known => format!("{known}:{port}"),
        })
    }

    /// Bytes of a message.
    fn limit(&self) -> usize {
        self.config.synchronisation.multizone.global.kds.message()
    }

    fn serve_zones(
        &self,
        listener: Listener,
        address: String,
        questions: Arc<Questions>,
        shares: Shares,
        runner: &Runner,
    ) -> Result<SocketAddr> {
        let SynchronisationParts { config, registrar, .. } = self;
        let shutdown = runner.shutdown();
        let settings: &GlobalKds = &config.synchronisation.multizone.global.kds;
        let tls = if settings.tls_enabled {
            let tls = certificates::tls(TlsServer::Zones, config, Timestamp::now())?;
            let expiries = self.metrics.certificate_expiries();
            Some(rotation::start(TlsServer::Zones, config, tls, None, expiries, shutdown)?)
        } else {
            None
        };
        authorities::start(registrar, runner);
        let zones = ZoneRegistry::start(
            (*registrar).clone(),
            zones::ZoneSettings::of_zones(settings, self.instance_id, address, serves_alone(config)),
            self.events.clone(),
            runner,
        )?;
        metrics::of_global(&zones, self.metrics);
        refused::report(registrar.store(), &zones, shutdown);
        let context = server::ZoneContext {
            store: registrar.store().clone(),
            zones,
            questions,
            settings: settings.clone(),
            meter: SyncMetrics::register(self.metrics),
            tally: listener.tally().clone(),
            turns: Arc::new(Semaphore::new(TURNS)),
            shutdown: shutdown.clone(),
        };
        let addr = listener.addr();
        let limits = settings.listener(shares.zones);
        listener.serve(server::router(Arc::new(context)), tls, limits, shutdown);
        Ok(addr)
    }

    fn follow_global(
        &self,
        inspect: Arc<dyn Inspect>,
        unreceived: Arc<Mutex<Unreceived>>,
        runner: &Runner,
    ) -> Result<()> {
        let SynchronisationParts { config, registrar, instance_id, .. } = self;
        let (zone, settings) =
            (&config.synchronisation.multizone.zone.name, &config.synchronisation.multizone.zone.kds);
        let shown = print::masked_json(config).to_string();
        let general = &config.general;
        let own = ZoneRegistry::start(
            (*registrar).clone(),
            zones::ZoneSettings::of_own_zone(serves_alone(config)),
            self.events.clone(),
            runner,
        )?;
        metrics::of_zone(&own, &zone.as_str().into(), self.metrics);
        let client = GlobalClient {
            own,
            meter: SyncMetrics::register(self.metrics),
            zone: zone.as_str().into(),
            address: address(&config.synchronisation.multizone.zone.global_address, settings)?,
            store: registrar.store().clone(),
            inspect,
            unreceived,
            held: Arc::new(DeletionGuard::new(Guard::new(Threshold {
                percent: settings.hold_back_deletions,
            }))),
            node: node::ours(zone, instance_id, BASED_ON_KUMA, shown),
            version: BASED_ON_KUMA.to_owned(),
            settings: settings.clone(),
            pauses: (
                std_duration(general.resilient_component_base_backoff),
                std_duration(general.resilient_component_max_backoff),
            ),
        };
        client.start(runner.shutdown());
        Ok(())
    }
}

/// `grpcs://host:port`
fn address(text: &str, settings: &ZoneKds) -> Result<GlobalAddress> {
    let key = "multizone.zone.globalAddress";
    let uri: Uri = text.parse().map_err(|error| anyhow!("{key}: {text:?}: {error}"))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| anyhow!("{key}: {text:?}: names no host"))?;
    let tls = match uri.scheme_str() {
        Some("grpcs") => Some(Arc::new(client_config(trust(settings)?, b"h2").context(
            "multizone.zone.kds.rootCaFile (KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE) says which certificates are trusted",
        )?)),
        _ => None,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(GlobalAddress { host, port: uri.port_u16().unwrap_or(KDS_PORT), tls })
}

fn trust(settings: &ZoneKds) -> Result<TrustedServers> {
    if settings.tls_skip_verify {
        return Ok(TrustedServers::Anybody);
    }
    let file = &settings.root_ca_file;
    if file.is_empty() {
        return Ok(TrustedServers::Machine);
    }
    let failed = || format!("multizone.zone.kds.rootCaFile: {file}");
    let pem = std::fs::read_to_string(file).with_context(failed)?;
    Ok(TrustedServers::Certificates(certificates(&pem).with_context(failed)?))
}
