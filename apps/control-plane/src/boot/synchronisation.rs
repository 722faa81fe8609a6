//! Starts the synchronisation with other control planes.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use api::Inspect;
use http::Uri;
use jiff::Timestamp;
use kds::{
    guard::{Guard, Threshold},
    unreceived::Unreceived,
};
use runtime::{
    Shutdown,
    listen::Listener,
    metrics::Metrics,
    tls::{Trust, certificates, client_config},
};
use store::Registrar;
use tokio::sync::Semaphore;

use super::{
    BASED_ON_KUMA,
    ports::{self, Shares},
    serves_alone, std_duration,
};
use crate::{
    certificates::{self, Server, rotation},
    config::{Config, GlobalKds, ZoneKds, print, setting::Mode},
    insights::connection::Instance,
    inspect::Proxies,
    kds::{
        KeepAlive,
        admin::{
            Questions,
            peers::{self, Answers, Peers},
        },
        authorities,
        client::{Address, Client},
        metrics::{self, Meter},
        node,
        receiving::{Held, TURNS},
        refused, server,
        zones::{self, Zones},
    },
};

const KDS_PORT: u16 = 5685;

/// What others connect to, and how often.
pub struct Listeners {
    pub zones: Option<Listener>,
    pub peers: Option<Listener>,
    pub shares: Shares,
}

/// Answers to the questions of other control planes, and findings about what they send.
pub struct Provided {
    /// For other instances.
    pub answers: Answers,
    /// For the global control plane.
    pub inspect: Arc<dyn Inspect>,
    /// Resources of the global control plane that have no effect here.
    pub unreceived: Arc<Mutex<Unreceived>>,
}

/// Addresses at which others reach this control plane.
pub struct Reached {
    /// The port of zones.
    pub kds: Option<SocketAddr>,
    /// This control plane, as other instances reach it.
    pub instance: Instance,
}

/// How long it may take until a zone shows another reason why it is not connected.
const OWN_FLUSH: Duration = Duration::from_secs(10);

/// What it needs.
pub struct Setup<'a> {
    config: &'a Config,
    registrar: &'a Arc<Registrar>,
    instance_id: &'a str,
    metrics: &'a Metrics,
}

impl<'a> Setup<'a> {
    pub fn new(
        config: &'a Config,
        registrar: &'a Arc<Registrar>,
        instance_id: &'a str,
        metrics: &'a Metrics,
    ) -> Setup<'a> {
        Setup { config, registrar, instance_id, metrics }
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
    pub fn answering(&self, proxies: Proxies, questions: &Arc<Questions>) -> (Answers, Arc<dyn Inspect>) {
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
        provided: Provided,
        questions: &Arc<Questions>,
        shutdown: &Shutdown,
    ) -> Result<Reached> {
        let Provided { answers, inspect, unreceived } = provided;
        if self.config.federated() {
            self.follow_global(inspect, unreceived, shutdown)?;
        }
        let Listeners { zones, peers, shares } = listeners;
        let address = match peers {
            Some(listener) => self.serve_peers(listener, answers, shares, shutdown)?,
            None => String::new(),
        };
        let serve =
            |listener| self.serve_zones(listener, address.clone(), questions.clone(), shares, shutdown);
        let kds = zones.map(serve).transpose()?;
        Ok(Reached { kds, instance: Instance { id: self.instance_id.to_owned(), address } })
    }

    /// Answers other instances; says where they reach this one.
    fn serve_peers(
        &self,
        listener: Listener,
        answers: Answers,
        shares: Shares,
        shutdown: &Shutdown,
    ) -> Result<String> {
        let Setup { config, registrar, .. } = self;
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
        let (port, limits) = (listener.addr().port(), ports::peer_limits(shares.peers));
        listener.serve(peers::router(answers, self.limit()), Some(tls), limits, shutdown);
        let (address, database) = (&config.inter_cp.catalog.instance_address, &config.store.postgres);
        Ok(match address.as_str() {
            "" => SocketAddr::from((peers::own_address(&database.host, database.port), port)).to_string(),
            known if known.contains(':') && !known.starts_with('[') => format!("[{known}]:{port}"),
            known => format!("{known}:{port}"),
        })
    }

    /// Bytes of a message.
    fn limit(&self) -> usize {
        count(self.config.multizone.global.kds.max_msg_size)
    }

    fn serve_zones(
        &self,
        listener: Listener,
        address: String,
        questions: Arc<Questions>,
        shares: Shares,
        shutdown: &Shutdown,
    ) -> Result<SocketAddr> {
        let Setup { config, registrar, .. } = self;
        let settings: &GlobalKds = &config.multizone.global.kds;
        let tls = if settings.tls_enabled {
            let tls = certificates::tls(Server::Zones, config, Timestamp::now())?;
            let expiries = self.metrics.certificate_expiries();
            Some(rotation::start(Server::Zones, config, tls, None, expiries, shutdown)?)
        } else {
            None
        };
        authorities::start(registrar, shutdown);
        let zones = Zones::start((*registrar).clone(), self.zones(address), shutdown)?;
        metrics::of_global(&zones, self.metrics);
        refused::report(registrar.store(), &zones, shutdown);
        let context = server::Context {
            store: registrar.store().clone(),
            zones,
            questions,
            tokens_required: settings.zone_token_required,
            skipped_labels: settings.labels.skip_prefixes.clone(),
            limit: self.limit(),
            patience: std_duration(settings.msg_send_timeout),
            meter: Meter::register(self.metrics),
            tally: listener.tally().clone(),
            turns: Arc::new(Semaphore::new(TURNS)),
            shutdown: shutdown.clone(),
        };
        let addr = listener.addr();
        let limits = ports::zone_limits(settings, shares.zones);
        listener.serve(server::router(Arc::new(context)), tls, limits, shutdown);
        Ok(addr)
    }

    fn zones(&self, address: String) -> zones::Settings {
        let settings = &self.config.multizone.global.kds;
        zones::Settings {
            instance_id: self.instance_id.to_owned(),
            address,
            most: count(settings.max_zones),
            most_of_kind: Some(count(settings.max_resources_per_kind)),
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
            address: String::new(),
            most: usize::MAX,
            most_of_kind: None,
            flush: OWN_FLUSH,
            withdraw_after: Duration::ZERO,
            threshold: Threshold::default(),
            alone: serves_alone(self.config),
        }
    }

    fn follow_global(
        &self,
        inspect: Arc<dyn Inspect>,
        unreceived: Arc<Mutex<Unreceived>>,
        shutdown: &Shutdown,
    ) -> Result<()> {
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
            unreceived,
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
            "multizone.zone.kds.rootCaFile (KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE) says which certificates are trusted",
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
