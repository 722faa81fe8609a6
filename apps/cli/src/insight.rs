//! What insights say about connections: of proxies and of zones alike.

use resources::{Kind, naming};
use serde_json::Value;

use crate::cell::{number, since, text, time};

/// The insight in an overview.
pub fn of(kind: Kind, overview: &Value) -> &Value {
    let mut letters = kind.name().chars();
    let field: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    &overview[field.as_str()]
}

fn subscriptions(insight: &Value) -> impl Iterator<Item = &Value> {
    insight["subscriptions"].as_array().into_iter().flatten()
}

/// By the newest connection: one before it may be open on record only because a control plane was killed.
pub fn is_online(insight: &Value) -> bool {
    let latest = latest(insight);
    !latest.is_null() && latest["disconnectTime"].is_null()
}

/// The newest connection.
pub fn latest(insight: &Value) -> &Value {
    subscriptions(insight).filter(|s| !s["connectTime"].is_null()).last().unwrap_or(&Value::Null)
}

pub fn version(insight: &Value) -> &Value {
    &latest(insight)["version"]
}

pub fn last_connected(insight: &Value) -> String {
    let connected = &latest(insight)["connectTime"];
    if connected.is_null() { "never".to_owned() } else { since(connected) }
}

/// The newest update, on whichever connection it came.
pub fn last_updated(insight: &Value) -> String {
    let updates = subscriptions(insight).map(|subscription| &subscription["status"]["lastUpdateTime"]);
    let newest = updates.filter(|update| time(update).is_some()).max_by_key(|update| time(update));
    newest.map_or_else(|| "never".to_owned(), since)
}

/// A count of all connections together.
pub fn total(insight: &Value, count: &str) -> String {
    subscriptions(insight).map(|s| number(&s["status"]["total"][count])).sum::<u64>().to_string()
}

/// `unified`, `legacy`, or nothing for a proxy that never said.
pub fn naming(insight: &Value) -> String {
    let Some(features) = insight["metadata"]["features"].as_array() else {
        return String::new();
    };
    let unified = naming::unified_naming(features.iter().filter_map(Value::as_str));
    if unified { "unified" } else { "legacy" }.to_owned()
}

/// Which control plane holds the newest connection.
pub fn control_plane(insight: &Value) -> String {
    text(&latest(insight)["controlPlaneInstanceId"])
}
