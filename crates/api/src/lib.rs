//! The REST API: what `kumactl`, the GUI and scripts talk to.
//!
//! [`route::all`] lists every route once; the router and the OpenAPI document are made from it. Reads
//! look at one snapshot of the store from beginning to end; writes go through the registrar, which
//! knows the rules. [`layers`] authenticates the caller before any route runs.
//!
//! Invariant: whatever a client sends to a route, the answer is a document of the same shape as Kuma's,
//! and an answer that reports success was carried out.

mod access;
mod audit;
mod backup;
mod call;
mod describe;
mod error;
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
mod sni_usage;
mod snis;
mod superseded;
mod token;
mod versions;
mod watch;
mod what_if;

use std::sync::Arc;

use store::Registrar;

pub use access::User;
pub use audit::Audit;
pub use error::Error;
pub use gates::{Gates, WATCHES, WATCHES_PER_PEER};
pub use inspect::{
    AdminAnswer, AdminView, Config, Format, Inspect, InspectError,
    problems::{FindingFilter, Problems},
};
pub use metrics::Metrics;
pub use serve::router;
pub use settings::{
    Access, Allowed, Authn, AuthnType, BackupFiles, Issuers, MAX_BODY, Settings, TIMEOUT, WATCH_PATIENCE,
    names,
};

/// Everything a request may need.
#[derive(Debug)]
pub struct Context {
    pub registrar: Arc<Registrar>,
    pub settings: Settings,
    pub metrics: Metrics,
    /// The way to proxies.
    pub inspect: Arc<dyn Inspect>,
    /// Who knows what is wrong.
    pub problems: Arc<dyn Problems>,
    pub gates: Gates,
}
