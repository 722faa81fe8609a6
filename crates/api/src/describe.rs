//! Description of this control plane and of the kinds it knows.

use admission::ControlPlaneRole;
use axum::response::Response;
use contract::index::{Index, PolicyTraits, PolicyType, PolicyTypes, ResourceType, ResourceTypes, User};
use resources::{Kind, Scope};
use serde_json::{Map, Value};

use crate::{Error, call::Call, json};

/// `GET /`.
pub fn index(call: &Call) -> Result<Response, Error> {
    let settings = &call.context.settings;
    Ok(json::ok(&Index {
        hostname: settings.hostname.clone(),
        product: "Kuma".into(),
        version: settings.version.clone(),
        instance_id: settings.instance_id.clone(),
        cluster_id: (settings.cluster_id)(),
        gui: settings.gui_url.clone(),
        implementation: "kuma-rs".into(),
        implementation_version: settings.implementation_version.clone(),
        implementation_commit: settings.implementation_commit.clone(),
    }))
}

/// `GET /config`.
pub fn config(call: &Call) -> Result<Response, Error> {
    let config = &call.context.settings.config;
    Ok(if config.is_null() { json::ok(&Map::<String, Value>::new()) } else { json::ok(config) })
}

/// `GET /who-am-i`.
pub fn caller(call: &Call) -> Result<Response, Error> {
    Ok(json::ok(&User { name: call.user.name.clone(), groups: call.user.groups.clone() }))
}

/// `GET /policies`.
pub fn policies(call: &Call) -> Result<Response, Error> {
    let policies = kinds_by_name().filter_map(|kind| {
        let descriptor = kind.descriptor();
        let selects = descriptor.policy?;
        Some(PolicyType {
            name: descriptor.name.into(),
            read_only: is_read_only(call, kind),
            path: descriptor.path.into(),
            singular_display_name: descriptor.singular_display_name(),
            plural_display_name: descriptor.plural_display_name(),
            is_experimental: false,
            is_target_ref_based: selects.top.is_some(),
            is_inbound: selects.from.is_some(),
            is_outbound: selects.to.is_some(),
        })
    });
    Ok(json::ok(&PolicyTypes { policies: policies.collect() }))
}

/// `GET /_resources`.
pub fn resource_types(call: &Call) -> Result<Response, Error> {
    let resources = kinds_by_name().map(|kind| resource_type(call, kind)).collect();
    Ok(json::ok(&ResourceTypes { resources }))
}

fn resource_type(call: &Call, kind: Kind) -> ResourceType {
    let descriptor = kind.descriptor();
    let scope = match descriptor.scope {
        Scope::Mesh => "Mesh",
        Scope::Global => "Global",
    };
    ResourceType {
        name: descriptor.name.into(),
        path: descriptor.path.into(),
        scope: scope.into(),
        short_name: descriptor.short.unwrap_or_default().into(),
        singular_display_name: descriptor.singular_display_name(),
        plural_display_name: descriptor.plural_display_name(),
        read_only: is_read_only(call, kind),
        // Service insights are made anew by every control plane.
        include_in_federation: descriptor.sync.global_to_zones && kind != Kind::ServiceInsight,
        policy: descriptor.policy.map(|selects| PolicyTraits {
            is_target_ref: selects.top.is_some(),
            has_to_target_ref: selects.to.is_some(),
            has_from_target_ref: selects.from.is_some(),
            has_rules_target_ref: selects.rules.is_some(),
            is_from_as_rules: selects.rules.is_some_and(|rules| rules.from_counts),
        }),
    }
}

/// The kinds that have a path, in the order of their names.
fn kinds_by_name() -> impl Iterator<Item = Kind> {
    let mut kinds: Vec<Kind> =
        Kind::ALL.iter().copied().filter(|k| !k.descriptor().path.is_empty()).collect();
    kinds.sort_by_key(|kind| kind.name());
    kinds.into_iter()
}

fn is_read_only(call: &Call, kind: Kind) -> bool {
    let federated = matches!(call.context.registrar.mode(), ControlPlaneRole::Zone { federated: true, .. });
    call.context.settings.read_only || federated || kind.descriptor().read_only
}
