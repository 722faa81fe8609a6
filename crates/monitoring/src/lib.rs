//! Discovery of pages of metrics: which proxies have one, where, and whose it is.
//!
//! ```text
//!   push loop ─▶ PendingChanges ─▶ MeshTargets ─▶ Catalog ─▶ kuma_sd: POST /v3/discovery:monitoringassignments
//!                (what changed)    (targets of    (frozen)    http_sd: GET /prometheus/targets of the REST API
//!                                   a proxy)
//! ```
//!
//! [`target`] makes the targets of one Dataplane, a pure function of the mesh. [`mesh`] keeps those of a mesh and looks
//! again only at Dataplanes that a change concerns; [`zone_proxies`] keeps those of zone proxies, which are in no mesh.
//! [`catalog`] is what clients are answered from: its pages are written when they are first asked for, once, and their
//! versions are made of their content.
//!
//! Invariant: a change that alters no target, mesh or client makes no new catalog, so it wakes no poll; one that alters
//! other targets than those asked for changes no version.

pub mod assignments;
mod catalog;
pub mod config;
mod mesh;
mod target;
mod targets;
mod zone_proxies;

pub use config::{Config, MonitoringAssignmentServer};
pub use targets::Targets;
