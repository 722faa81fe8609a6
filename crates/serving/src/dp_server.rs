//! The server for proxies, on one port with TLS: `/bootstrap`, `/observed` and `/drain` for agents, discovery and health
//! discovery for Envoy.
//!
//! A stream keeps the claims of its token ([`credentials`]). A proxy is called where it listens and while it is
//! connected: its inbounds are ready once it has acknowledged their listeners, and not ready when it drains or is away.

pub mod ads;
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
mod renewal;
mod responses;
pub mod secrets;
pub mod status;
pub mod stream_gates;
pub mod unvouched;
mod zone_proxy;

use std::{net::IpAddr, sync::Arc, time::Duration};

use ::admission::Registrar;
use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{any, post},
};
use events::Events;
use identity::certificate::Facts;
use insights::connection::Instance;
use runtime::Shutdown;

use self::{credentials::Authentication, departures::Absence, stream_gates::StreamGates};
use crate::{observed::Observations, push::Push};

/// A Dataplane is small; larger bodies are not Dataplanes.
const MAX_BOOTSTRAP: usize = 1 << 20;
/// Two names and a token.
const MAX_DRAIN: usize = 64 << 10;
/// Agents stop at half of it.
const MAX_OBSERVED: usize = 2 << 20;

/// Attempts to write a Dataplane that another writer changed in between.
const ATTEMPTS: usize = 10;
/// Time for the write of another control plane to arrive here: a proxy waits for the answer.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Parts that every proxy's request may need.
pub struct ProxyContext {
    pub registrar: Arc<Registrar>,
    pub push: Arc<Push>,
    pub issuer: secrets::Secrets,
    pub certificate: ServerCertificate,
    pub authentication: Authentication,
    pub bootstrap: bootstrap::Params,
    /// `None` when health discovery is switched off.
    pub hds: Option<Arc<hds::Hds>>,
    pub reports: Reports,
    pub absence: Absence,
    /// Delay before a proxy is sent again what it refuses; doubles every time.
    pub second_try_after: Duration,
    /// This control plane, as other instances know it.
    pub instance: Instance,
    /// The zone of this control plane, where its zone proxies are.
    pub zone: Arc<str>,
    /// Admission of streams, and its limits.
    pub gates: Arc<StreamGates>,
    pub shutdown: Shutdown,
}

/// Records of what is known of proxies.
pub struct Reports {
    pub insights: Arc<insights::Writer>,
    /// Observed calls.
    pub observations: Arc<Observations>,
    /// Events of proxies.
    pub events: Events,
    /// Finds the resources of the mesh that a rejected part of a configuration comes from.
    pub blame: status::Blame,
}

/// The certificate that proxies see at the moment. Clones share it.
#[derive(Debug, Clone)]
pub struct ServerCertificate(Arc<ArcSwap<ShownCertificate>>);

impl ServerCertificate {
    pub fn new(certificate: ShownCertificate) -> ServerCertificate {
        ServerCertificate(Arc::new(ArcSwap::from_pointee(certificate)))
    }

    pub fn current(&self) -> Arc<ShownCertificate> {
        self.0.load_full()
    }

    pub fn replace(&self, certificate: ShownCertificate) {
        self.0.store(Arc::new(certificate));
    }
}

/// A certificate, and what it says.
#[derive(Debug, Clone)]
pub struct ShownCertificate {
    pub pem: String,
    pub facts: Facts,
}

impl ShownCertificate {
    /// Checks that a proxy that dials `host` will accept this certificate; the error says what to do about
    /// it.
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

impl ShownCertificate {
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

pub fn router(context: Arc<ProxyContext>) -> Router {
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
