//! The REST API: what `kumactl`, the GUI and scripts talk to.
//!
//! [`route::all`] is the one table of routes, a row each; the router and the OpenAPI document are made from it.
//! [`layers`] authenticates the caller before any route runs, and the access rule of the row decides before its handler
//! does. Reads look at one snapshot of the store; writes go through the registrar, which knows the rules.
//!
//! Invariant: whatever a client sends to a route, the answer is a document of the same shape as Kuma's,
//! and an answer that reports success was carried out.

mod access;
mod audit;
mod backup;
mod call;
mod describe;
mod error;
mod events;
mod filter;
mod gates;
mod hostnames;
mod inline_keys;
mod insight;
pub mod inspect;
mod json;
mod kri;
mod layers;
mod list;
mod mesh;
mod metrics;
pub mod openapi;
mod overview;
pub mod patch;
mod resource;
pub mod route;
mod serve;
mod service_insight;
mod settings;
mod slips;
mod sni_usage;
mod snis;
mod superseded;
mod token;
mod versions;
mod watch;
mod what_if;

use std::sync::Arc;

use admission::Registrar;

pub use access::User;
pub use audit::Audit;
pub use error::Error;
pub use gates::{EVENT_STREAMS, EVENT_STREAMS_PER_PEER, Gates, WATCHES, WATCHES_PER_PEER};
pub use inspect::{
    AdminAnswer, AdminFormat, AdminView, Inspect, InspectError, XdsConfig,
    findings::{CurrentFindings, FindingFilter},
    targets::{ScrapeTargets, TargetPage},
};
pub use metrics::ApiMetrics;
pub use serve::router;
pub use settings::{
    AccessRights, Allowed, Authn, AuthnType, BackupFiles, EVENT_STREAM_LIFETIME, Issuers, MAX_BODY, Settings,
    TIMEOUT, WATCH_PATIENCE, names,
};

/// Everything a request may need.
#[derive(Debug)]
pub struct Context {
    pub registrar: Arc<Registrar>,
    pub settings: Settings,
    pub metrics: ApiMetrics,
    /// The way to proxies.
    pub inspect: Arc<dyn Inspect>,
    /// Current findings per mesh.
    pub findings: Arc<dyn CurrentFindings>,
    /// Events of the last hour.
    pub events: ::events::Events,
    /// Pages of metrics of proxies.
    pub targets: Arc<dyn ScrapeTargets>,
    pub gates: Gates,
}
