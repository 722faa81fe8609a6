//! What proxies connect to: `/bootstrap`, `/observed` and `/drain` for agents, discovery and health discovery for Envoy, on one
//! port with TLS.

pub mod admission;
pub mod ads;
mod blame;
pub mod bootstrap;
pub mod credentials;
pub mod departures;
pub mod drain;
pub mod features;
mod grpc;
pub mod hds;
pub mod introduction;
pub mod observed;
pub mod proxy;
pub mod registration;
pub(crate) mod renewal;
mod responses;
pub mod secrets;
pub mod status;
pub mod unvouched;
mod zone_proxy;

use std::{net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{any, post},
};
use identity::certificate::Facts;
use runtime::Shutdown;
use store::Registrar;

use self::admission::Admission;
use crate::{
    insights::{self, connection::Instance},
    observed::Observations,
    push::Push,
};

/// A Dataplane is small; larger bodies are not Dataplanes.
const MAX_BOOTSTRAP: usize = 1 << 20;
/// Two names and a token.
const MAX_DRAIN: usize = 64 << 10;
/// Agents stop at half of it.
const MAX_OBSERVED: usize = 2 << 20;

/// How often a Dataplane is written again after another writer changed it in between.
const ATTEMPTS: usize = 10;
/// How long the write of another control plane may be on its way here: a proxy waits for the answer.
const CATCH_UP: Duration = Duration::from_secs(5);

/// What every proxy's request may need.
pub struct Context {
    pub registrar: Arc<Registrar>,
    pub push: Arc<Push>,
    pub issuer: secrets::Secrets,
    pub insights: Arc<insights::Writer>,
    pub certificate: ServerCertificate,
    pub tokens_required: bool,
    /// Whether zone proxies need one.
    pub zone_tokens_required: bool,
    pub bootstrap: bootstrap::Params,
    /// `None` when health discovery is switched off.
    pub hds: Option<Arc<hds::Hds>>,
    pub deregistration_delay: Duration,
    pub departures: departures::Departures,
    /// Who was seen calling what.
    pub observations: Arc<Observations>,
    /// How long a proxy is left alone with what it refuses before it is sent again; doubles every time.
    pub second_try_after: Duration,
    /// This control plane, as other instances know it.
    pub instance: Instance,
    /// The zone of this control plane, where its zone proxies are.
    pub zone: Arc<str>,
    /// Who is let in, and how many at a time.
    pub admission: Arc<Admission>,
    pub shutdown: Shutdown,
}

/// The certificate that proxies see at the moment. Clones share it.
#[derive(Debug, Clone)]
pub struct ServerCertificate(Arc<ArcSwap<Certificate>>);

impl ServerCertificate {
    pub fn new(certificate: Certificate) -> ServerCertificate {
        ServerCertificate(Arc::new(ArcSwap::from_pointee(certificate)))
    }

    pub fn current(&self) -> Arc<Certificate> {
        self.0.load_full()
    }

    pub fn replace(&self, certificate: Certificate) {
        self.0.store(Arc::new(certificate));
    }
}

/// A certificate, and what it says.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub pem: String,
    pub facts: Facts,
}

impl Certificate {
    /// Whether a proxy that dials `host` will accept this certificate; if not, what to do about it.
    pub fn check_host(&self, host: &str) -> Result<(), String> {
        let holds = match host.parse::<IpAddr>() {
            Ok(address) => self.facts.addresses.contains(&address),
            Err(_) => self.facts.dns_names.iter().any(|name| covers(name, host)),
        };
        if holds {
            return Ok(());
        }
        let known = self.known_names();
        Err(format!(
            "A data plane proxy is trying to connect to the control plane using {host:?} address, but the certificate \
             in the control plane has the following SANs {known:?}. Either change the --cp-address in kuma-dp to one of \
             those or execute the following steps: 1) generate a new certificate with the address you are trying to use, \
             2) set it with KUMA_GENERAL_TLS_CERT_FILE and KUMA_GENERAL_TLS_KEY_FILE, 3) restart the control plane."
        ))
    }
}

impl Certificate {
    /// Every name and address the certificate is for.
    pub fn known_names(&self) -> Vec<String> {
        let addresses = self.facts.addresses.iter().map(IpAddr::to_string);
        self.facts.dns_names.iter().cloned().chain(addresses).collect()
    }
}

/// `*.example.com` covers one label more.
fn covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(rest) => host.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(rest)),
        None => pattern.eq_ignore_ascii_case(host),
    }
}

pub fn router(context: Arc<Context>) -> Router {
    let service = "/envoy.service.discovery.v3.AggregatedDiscoveryService";
    Router::new()
        .route("/bootstrap", post(bootstrap::answer).layer(DefaultBodyLimit::max(MAX_BOOTSTRAP)))
        .route("/drain", post(drain::answer).layer(DefaultBodyLimit::max(MAX_DRAIN)))
        .route("/observed", post(observed::answer).layer(DefaultBodyLimit::max(MAX_OBSERVED)))
        .route(&format!("{service}/DeltaAggregatedResources"), any(ads::delta))
        .route(&format!("{service}/StreamAggregatedResources"), any(ads::state_of_the_world))
        .route("/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck", any(hds::serve))
        .with_state(context)
}
