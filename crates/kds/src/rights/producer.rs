//! Policies of producers: about calls to MeshServices of their own zone, at no other cost to the callers.

use std::time::Duration;

use resources::{Spec, duration::GoDuration, labels};
use serde_json::Value;

use super::{ProducerReach, ProducerViolation};

const MESH_SERVICE: &str = "MeshService";
/// The shortest command of Envoy's formatter, `REQ`.
const SHORTEST_COMMAND: usize = 3;
/// Proxies check endpoints whether or not they call them, so the cost is everyone's.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// Refuses a policy of a producer in `zone` that reaches further than calls to services of that zone.
pub(super) fn check(spec: &Spec, zone: &str) -> Result<(), ProducerViolation> {
    check_health_checks(spec)?;
    check_entries(&spec.to_json(), zone)
}

/// Proxies of other zones write no files for a producer and do not check its endpoints without a pause.
fn check_health_checks(spec: &Spec) -> Result<(), ProducerViolation> {
    let Spec::MeshHealthCheck(checks) = spec else { return Ok(()) };
    for (index, entry) in checks.to.iter().enumerate() {
        let conf = &entry.default;
        if conf.event_log_path.is_some() {
            return Err(ProducerViolation::EventLog { index });
        }
        for (field, interval) in
            [("interval", conf.interval), ("noTrafficInterval", conf.no_traffic_interval)]
        {
            let is_short = |interval: GoDuration| interval.to_std().is_none_or(|it| it < SHORTEST_INTERVAL);
            if interval.is_some_and(is_short) {
                return Err(ProducerViolation::ShortInterval { index, field });
            }
        }
    }
    Ok(())
}

fn check_entries(spec: &Value, zone: &str) -> Result<(), ProducerViolation> {
    for field in ["from", "rules", "default"] {
        if spec.get(field).is_some_and(|value| !is_empty(value)) {
            return Err(ProducerViolation::Section(field));
        }
    }
    let entries = spec.get("to").and_then(Value::as_array).filter(|entries| !entries.is_empty());
    let Some(entries) = entries else { return Err(ProducerViolation::NoEntries) };
    for (index, entry) in entries.iter().enumerate() {
        let target = entry.get("targetRef").unwrap_or(&Value::Null);
        check_own_service(target, zone).map_err(|cause| ProducerViolation::Target { index, cause })?;
        check_inside(entry, zone).map_err(|cause| ProducerViolation::Entry { index, cause })?;
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A reference by name is relative to the policy, so it stays in the policy's zone; one by labels has to say so. Names
/// with `_` are those of tags (`kv_shop_svc_80`), which mean services of every zone.
fn check_own_service(target: &Value, zone: &str) -> Result<(), ProducerReach> {
    let text = |field: &str| target.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let of_zone = target.get("labels").and_then(|labels| labels.get(labels::ZONE)).and_then(Value::as_str);
    let name = text("name");
    let is_own = match target.get("labels").filter(|labels| !is_empty(labels)) {
        Some(_) => of_zone == Some(zone),
        None => name.is_some(),
    };
    let by_tag = name.is_some_and(|name| name.contains('_'));
    if text("kind") != Some(MESH_SERVICE) || !is_own || by_tag {
        return Err(ProducerReach::OtherService { zone: zone.to_owned() });
    }
    Ok(())
}

/// Traffic of callers in other zones goes to services of `zone` only, and takes nothing of the callers' proxies along.
fn check_inside(value: &Value, zone: &str) -> Result<(), ProducerReach> {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "backendRef" => check_own_service(field, zone)?,
                    "backendRefs" => {
                        let backends = field.as_array().into_iter().flatten();
                        backends.into_iter().try_for_each(|backend| check_own_service(backend, zone))?;
                    }
                    _ => {}
                }
                check_inside(field, zone)?;
            }
            Ok(())
        }
        Value::Array(entries) => entries.iter().try_for_each(|entry| check_inside(entry, zone)),
        // `%ENVIRONMENT(KEY)%` in a header would send a variable of the calling proxy to the producer.
        Value::String(text) if has_command(text) => Err(ProducerReach::FormatterCommand(text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Finds `%COMMAND%` and `%COMMAND(`; `%20` and `%A4B%20` of a path are none.
fn has_command(text: &str) -> bool {
    let of_name = |byte: &&u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b'_';
    text.match_indices('%').any(|(at, _)| {
        let rest = &text.as_bytes()[at + 1..];
        let length = rest.iter().take_while(of_name).count();
        let name = &rest[..length];
        // `TLS_JA3_FINGERPRINT` has a digit; what has one and no `_` is encoded text.
        let is_word = !name.iter().any(u8::is_ascii_digit) || name.contains(&b'_');
        length >= SHORTEST_COMMAND && is_word && matches!(rest.get(length), Some(b'%' | b'('))
    })
}
