//! The dashboards, a file for each.

mod control_plane;
mod edges;
mod mesh;
mod proxy;
mod reachability;
mod security;
mod service;
mod zones;

use crate::model::Dashboard;

/// All dashboards, in the order in which documents list them.
pub fn all() -> Vec<Dashboard> {
    vec![
        mesh::mesh(),
        service::service(),
        edges::service_to_service(),
        proxy::proxy(),
        zones::zones(),
        control_plane::control_plane(),
        security::security(),
        reachability::reachability(),
    ]
}
