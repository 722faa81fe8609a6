//! What this control plane is and which kinds it knows.

use axum::response::Response;
use resources::{Kind, Scope};
use serde_json::{Map, Value, json};
use store::registrar::Mode;

use crate::{call::Call, json};

/// `GET /`.
pub fn index(call: &Call) -> Response {
    let settings = &call.context.settings;
    let mut index = Map::new();
    index.insert("hostname".into(), settings.hostname.as_str().into());
    index.insert("product".into(), "Kuma".into());
    index.insert("version".into(), settings.version.as_str().into());
    index.insert("instanceId".into(), settings.instance_id.as_str().into());
    index.insert("clusterId".into(), (settings.cluster_id)().into());
    index.insert("gui".into(), settings.gui_url.as_str().into());
    index.insert("implementation".into(), "kuma-rs".into());
    index.insert("implementationVersion".into(), settings.implementation_version.as_str().into());
    if !settings.implementation_commit.is_empty() {
        index.insert("implementationCommit".into(), settings.implementation_commit.as_str().into());
    }
    json::ok(&index)
}

/// `GET /policies`.
pub fn policies(call: &Call) -> Response {
    let policies: Vec<Value> = kinds_by_name()
        .filter_map(|kind| Some((kind, kind.descriptor().policy?)))
        .map(|(kind, selects)| {
            let descriptor = kind.descriptor();
            json!({
                "name": descriptor.name,
                "readOnly": is_read_only(call, kind),
                "path": descriptor.path,
                "singularDisplayName": descriptor.singular_display_name(),
                "pluralDisplayName": descriptor.plural_display_name(),
                "isExperimental": false,
                "isTargetRefBased": selects.top.is_some(),
                "isInbound": selects.from.is_some(),
                "isOutbound": selects.to.is_some(),
            })
        })
        .collect();
    json::ok(&json!({ "policies": policies }))
}

/// `GET /_resources`.
pub fn resource_types(call: &Call) -> Response {
    let resources: Vec<Value> = kinds_by_name().map(|kind| resource_type(call, kind)).collect();
    json::ok(&json!({ "resources": resources }))
}

fn resource_type(call: &Call, kind: Kind) -> Value {
    let descriptor = kind.descriptor();
    let mut entry = json!({
        "name": descriptor.name,
        "path": descriptor.path,
        "scope": match descriptor.scope { Scope::Mesh => "Mesh", Scope::Global => "Global" },
        "shortName": descriptor.short.unwrap_or_default(),
        "singularDisplayName": descriptor.singular_display_name(),
        "pluralDisplayName": descriptor.plural_display_name(),
        "readOnly": is_read_only(call, kind),
        // Service insights are made anew by every control plane.
        "includeInFederation": descriptor.sync.global_to_zones && kind != Kind::ServiceInsight,
    });
    if let Some(selects) = descriptor.policy {
        entry["policy"] = json!({
            "isTargetRef": selects.top.is_some(),
            "hasToTargetRef": selects.to.is_some(),
            "hasFromTargetRef": selects.from.is_some(),
            "hasRulesTargetRef": selects.rules.is_some(),
            "isFromAsRules": selects.rules.is_some_and(|rules| rules.from_counts),
        });
    }
    entry
}

/// The kinds that have a path, in the order of their names.
fn kinds_by_name() -> impl Iterator<Item = Kind> {
    let mut kinds: Vec<Kind> =
        Kind::ALL.iter().copied().filter(|k| !k.descriptor().path.is_empty()).collect();
    kinds.sort_by_key(|kind| kind.name());
    kinds.into_iter()
}

fn is_read_only(call: &Call, kind: Kind) -> bool {
    let federated = matches!(call.context.registrar.mode(), Mode::Zone { federated: true, .. });
    call.context.settings.read_only || federated || kind.descriptor().read_only
}
