//! Policies about who calls: permissions, faults and limits of clients.

use serde_json::{Value, json};

use super::{
    legacy::{Legacy, Translation, renamed, says_something},
    selector::Tags,
};

/// Of several permissions for an inbound the one with the most exact destination counted alone, so each begins with
/// denying all clients.
pub fn translate(legacy: &Legacy<'_>) -> Translation {
    let entry = |target: Value, action: &str| json!({ "targetRef": target, "default": { "action": action } });
    let mut made = Translation::default();
    let sources = legacy.sources();
    let mut from = if sources.iter().any(Tags::is_everything) {
        Vec::new()
    } else {
        vec![entry(json!({ "kind": "Mesh" }), "Deny")]
    };
    for source in &sources {
        match source.reference() {
            Ok(client) => from.push(entry(client, "Allow")),
            Err(why) => made.note(why),
        }
    }
    for destination in legacy.destinations() {
        match destination.reference() {
            Ok(target) => made.add("MeshTrafficPermission", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

pub fn fault_injection(legacy: &Legacy<'_>) -> Translation {
    let conf = legacy.conf();
    let mut fault =
        renamed(conf, &[("delay", "delay"), ("abort", "abort"), ("responseBandwidth", "responseBandwidth")]);
    for part in fault.as_object_mut().into_iter().flat_map(|parts| parts.values_mut()) {
        if let Some(percentage) = part.get_mut("percentage") {
            *percentage = percent(percentage);
        }
    }
    let conf = json!({ "http": [fault] });
    let mut made = Translation::default();
    let mut from = Vec::new();
    for source in legacy.sources() {
        match source.reference() {
            Ok(client) => from.push(json!({ "targetRef": client, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    for destination in legacy.destinations() {
        match destination.sidecars() {
            Ok(target) => made.add("MeshFaultInjection", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

pub fn rate_limit(legacy: &Legacy<'_>) -> Translation {
    let http = &legacy.conf()["http"];
    let mut limit = json!({ "requestRate": { "num": http["requests"], "interval": http["interval"] } });
    let on_limit = &http["onRateLimit"];
    if says_something(on_limit) {
        let mut answer = renamed(on_limit, &[("status", "status")]);
        let (set, add) = headers(&on_limit["headers"]);
        if !set.is_empty() || !add.is_empty() {
            answer["headers"] = json!({ "set": set, "add": add });
        }
        limit["onRateLimit"] = answer;
    }
    let mut made = Translation::default();
    if !legacy.sources().iter().all(Tags::is_everything) {
        made.note("a MeshRateLimit counts all clients: limits of certain sources have no equivalent by tags");
        return made;
    }
    let conf = json!({ "local": { "http": limit } });
    let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": conf }]);
    for destination in legacy.destinations() {
        match destination.sidecars() {
            Ok(target) => made.add("MeshRateLimit", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

/// A share in percent: a whole number, or a decimal one as text.
fn percent(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_u64().is_none() => Value::String(number.to_string()),
        other => other.clone(),
    }
}

/// Headers that are set, and those that are added to what is there.
pub fn headers(list: &Value) -> (Vec<Value>, Vec<Value>) {
    let mut set = Vec::new();
    let mut add = Vec::new();
    for header in list.as_array().into_iter().flatten() {
        let name =
            header.get("name").or_else(|| header.get("key")).and_then(Value::as_str).unwrap_or_default();
        let made = json!({ "name": name.to_lowercase(), "value": header["value"] });
        if header["append"] == true { add.push(made) } else { set.push(made) }
    }
    (set, add)
}
