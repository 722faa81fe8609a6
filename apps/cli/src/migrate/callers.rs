//! Policies about who calls: permissions, faults and limits of clients.

use resources::kinds::target_ref::TargetRef;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    legacy::{
        Legacy, Partly, Translation,
        callers::{FaultConf, HttpLimit, LegacyHeader, LimitAnswer, RateLimitConf},
        given,
    },
    selector::Tags,
};

/// Of several permissions for an inbound the one with the most exact destination counted alone, so each begins with
/// denying all clients.
pub fn translate(legacy: &Legacy<'_>) -> Translation {
    let entry =
        |target: TargetRef, action: &str| json!({ "targetRef": target, "default": { "action": action } });
    let mut made = Translation::default();
    let mut from = if legacy.sources.iter().any(Tags::is_everything) {
        Vec::new()
    } else {
        vec![entry(TargetRef::mesh(), "Deny")]
    };
    for source in &legacy.sources {
        match source.reference() {
            Ok(client) => from.push(entry(client, "Allow")),
            Err(why) => made.note(why),
        }
    }
    for destination in &legacy.destinations {
        match destination.reference() {
            Ok(target) => made.add("MeshTrafficPermission", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

pub fn fault_injection(legacy: &Legacy<'_>) -> Translation {
    let mut fault: FaultConf = legacy.conf();
    let parts = [&mut fault.delay, &mut fault.abort, &mut fault.response_bandwidth];
    for part in parts.into_iter().flatten() {
        if let Some(percentage) = part.get_mut("percentage") {
            *percentage = percent(percentage);
        }
    }
    let conf = json!({ "http": [given(&fault)] });
    let mut made = Translation::default();
    let mut from = Vec::new();
    for source in &legacy.sources {
        match source.reference() {
            Ok(client) => from.push(json!({ "targetRef": client, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    for destination in &legacy.destinations {
        match destination.sidecars() {
            Ok(target) => made.add("MeshFaultInjection", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LocalLimit {
    request_rate: Value,
    on_rate_limit: Option<Value>,
}

pub fn rate_limit(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    if !legacy.sources.iter().all(Tags::is_everything) {
        made.note("a MeshRateLimit counts all clients: limits of certain sources have no equivalent by tags");
        return made;
    }
    let HttpLimit { requests, interval, on_rate_limit } = legacy.conf::<RateLimitConf>().http;
    let limit = LocalLimit {
        request_rate: json!({ "num": requests, "interval": interval }),
        on_rate_limit: on_rate_limit.as_ref().map(answer),
    };
    let conf = json!({ "local": { "http": given(&limit) } });
    let from = json!([{ "targetRef": TargetRef::mesh(), "default": conf }]);
    for destination in &legacy.destinations {
        match destination.sidecars() {
            Ok(target) => made.add("MeshRateLimit", json!({ "targetRef": target, "from": from })),
            Err(why) => made.note(why),
        }
    }
    made
}

/// The answer to a request above the limit.
fn answer(old: &LimitAnswer) -> Value {
    let mut answer = given(old);
    let headers = NewHeaders::of(&old.headers);
    if !headers.is_empty() {
        answer.insert("headers".to_owned(), json!(headers));
    }
    Value::Object(answer)
}

/// A share in percent: a whole number, or a decimal one as text.
fn percent(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_u64().is_none() => Value::String(number.to_string()),
        other => other.clone(),
    }
}

/// Headers that are set, and those that are added to what is there.
#[derive(Debug, Default, Serialize)]
pub struct NewHeaders {
    pub set: Vec<NewHeader>,
    pub add: Vec<NewHeader>,
}

#[derive(Debug, Serialize)]
pub struct NewHeader {
    name: String,
    value: Value,
}

impl NewHeaders {
    pub fn of(list: &[Partly<LegacyHeader>]) -> NewHeaders {
        let mut headers = NewHeaders::default();
        for Partly(header) in list {
            let name = header.name.as_ref().or(header.key.as_ref());
            let name = name.map(|name| name.to_lowercase()).unwrap_or_default();
            let place = if header.append { &mut headers.add } else { &mut headers.set };
            place.push(NewHeader { name, value: header.value.clone() });
        }
        headers
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty()
    }
}
