//! Dashboards and alerts about traffic: one specification, from which `cargo xtask gen` writes what Grafana and
//! Prometheus read.
//!
//! Queries find proxies with older names, with unified ones and with Kuma's spelling of them; [`names`] alone
//! knows how.

mod alerts;
mod boards;
mod grafana;
mod model;
pub mod names;
pub mod query;

pub use self::{
    alerts::{TrafficAlert, traffic_alerts, traffic_rules},
    boards::all,
    model::{Dashboard, Panel, PanelKind, Row, Target, Unit, Variable},
};
