//! Rights of peers: the resources that never cross, and the effect of one zone's resources in another zone.
//!
//! Sender and receiver ask the same functions, so that a hostile peer cannot send what an honest one would not.
//! `docs/reference/kds.md` has the table.

use resources::{Key, Kind, Labels, Spec, labels};
use serde_json::Value;

use crate::{mapping, select::CLUSTER_ID};

pub(crate) const ZONE_TOKEN_KEY: &str = "zone-token-signing-key";
pub(crate) const ZONE_TOKEN_PUBLIC_KEY: &str = "zone-token-signing-public-key";
/// Secrets of the global control plane alone.
const OF_GLOBAL: [&str; 5] =
    ["envoy-admin-ca", "admin-user-token", "inter-cp-ca", "inter-cp-certificate", "user-token-revocations"];
const USER_TOKEN_KEY: &str = "user-token-signing-key";
const PRODUCER: &str = "producer";
const MESH_SERVICE: &str = "MeshService";
/// The shortest command of Envoy's formatter, `REQ`.
const SHORTEST_COMMAND: usize = 3;

/// Refuses keys and settings that a zone never gets from its global control plane. `key` is the name on the wire.
pub fn check_sent_to_zone(key: &Key) -> Result<(), String> {
    let name = &*key.name;
    let stays = match key.kind {
        Kind::GlobalSecret => {
            OF_GLOBAL.contains(&name) || name.starts_with(USER_TOKEN_KEY) || name.starts_with(ZONE_TOKEN_KEY)
        }
        Kind::Config => name != CLUSTER_ID,
        _ => false,
    };
    if stays {
        return Err(format!("no global control plane sends {} {name:?} to a zone", key.kind));
    }
    Ok(())
}

/// Refuses a name that is not that of a resource of `zone`: zones would occupy each other's names.
pub fn check_name_of_zone(key: &Key, labels: &Labels, zone: &str) -> Result<(), String> {
    if mapping::keeps_name(key.kind) {
        return Ok(());
    }
    let expected = mapping::name_on_global(key, labels, zone);
    if *key.name != *expected {
        return Err(format!(
            "a resource of zone {zone:?} with this display name and namespace is called {expected:?}"
        ));
    }
    Ok(())
}

/// Refuses a resource of `zone` that must have no effect in other zones.
///
/// Policies of a zone are for its own proxies. Those of a producer are for callers everywhere, so they may be about
/// calls to services of their own zone and about nothing else.
pub fn check_effect_elsewhere(spec: &Spec, labels: &Labels, zone: &str) -> Result<(), String> {
    let kind = spec.kind();
    let descriptor = kind.descriptor();
    if !descriptor.sync.across_zones {
        return Err(format!("no {kind} of a zone is for other zones"));
    }
    let Some(traits) = descriptor.policy else { return Ok(()) };
    if !is_producer(labels) {
        return Err(format!("it is a policy of zone {zone:?} for its own proxies"));
    }
    // Access logs write files and read the environment of the calling proxy.
    if traits.to.is_none() || kind == Kind::MeshAccessLog {
        return Err(format!("no {kind} of a producer is for callers in other zones"));
    }
    check_producer(&spec.to_json(), zone)
}

/// Refuses the role `producer` where it would reach further than the services of `zone`.
pub fn check_role(spec: &Spec, labels: &Labels, zone: &str) -> Result<(), String> {
    if spec.kind().descriptor().policy.is_none() || !is_producer(labels) {
        return Ok(());
    }
    check_effect_elsewhere(spec, labels, zone)
}

fn is_producer(labels: &Labels) -> bool {
    labels.get(labels::POLICY_ROLE).is_some_and(|role| role == PRODUCER)
}

fn check_producer(spec: &Value, zone: &str) -> Result<(), String> {
    for field in ["from", "rules", "default"] {
        if spec.get(field).is_some_and(|value| !is_empty(value)) {
            return Err(format!("a policy of a producer has no `{field}`"));
        }
    }
    let entries = spec.get("to").and_then(Value::as_array).filter(|entries| !entries.is_empty());
    let Some(entries) = entries else { return Err("a policy of a producer has entries in `to`".to_owned()) };
    for (index, entry) in entries.iter().enumerate() {
        let target = entry.get("targetRef").unwrap_or(&Value::Null);
        check_own_service(target, zone).map_err(|why| format!("to[{index}].targetRef: {why}"))?;
        check_inside(entry, zone).map_err(|why| format!("to[{index}]: {why}"))?;
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

/// A reference by name is relative to the policy, so it stays in the policy's zone; one by labels has to say so.
fn check_own_service(target: &Value, zone: &str) -> Result<(), String> {
    let text = |field: &str| target.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let of_zone = target.get("labels").and_then(|labels| labels.get(labels::ZONE)).and_then(Value::as_str);
    let is_own = match target.get("labels").filter(|labels| !is_empty(labels)) {
        Some(_) => of_zone == Some(zone),
        None => text("name").is_some(),
    };
    if text("kind") != Some(MESH_SERVICE) || !is_own {
        return Err(format!("a policy of a producer is about MeshServices of its own zone {zone:?}"));
    }
    Ok(())
}

/// Traffic of callers in other zones goes to services of `zone` only, and takes nothing of the callers' proxies along.
fn check_inside(value: &Value, zone: &str) -> Result<(), String> {
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
        Value::String(text) if has_command(text) => Err(format!(
            "{text:?} has a command of Envoy's formatter, which reads from callers in other zones"
        )),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Finds `%COMMAND%` and `%COMMAND(`; `%20` of a path is none.
fn has_command(text: &str) -> bool {
    text.match_indices('%').any(|(at, _)| {
        let rest = &text.as_bytes()[at + 1..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
        length >= SHORTEST_COMMAND && matches!(rest.get(length), Some(b'%' | b'('))
    })
}
