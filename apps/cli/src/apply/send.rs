//! Sends one resource, unless the control plane has it already.

use contract::{lenient::read_partly, resource::Written};
use resources::{Draft, format::universal, labels};
use serde_json::Value;

use super::plan::PlannedResource;
use crate::{cell, client::ApiClient, document::DocumentHeader, failure::Result};

/// Effect of applying a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyAction {
    Created,
    Updated,
    Unchanged,
    Pruned,
}

impl ApplyAction {
    pub fn word(self) -> &'static str {
        match self {
            ApplyAction::Created => "created",
            ApplyAction::Updated => "updated",
            ApplyAction::Unchanged => "unchanged",
            ApplyAction::Pruned => "pruned",
        }
    }
}

/// Sends a resource unless the control plane has it already; gives the server's warnings, too.
pub fn send(planned: &PlannedResource, client: &ApiClient) -> Result<(ApplyAction, Vec<String>)> {
    let path = planned.path();
    let answer = client.get(&path)?;
    if answer.status == 200
        && planned.unknown_fields.is_empty()
        && serde_json::from_str(&answer.body).is_ok_and(|stored| is_same(&planned.draft, stored))
    {
        return Ok((ApplyAction::Unchanged, Vec::new()));
    }
    put(planned, &path, client)
}

fn put(planned: &PlannedResource, path: &str, client: &ApiClient) -> Result<(ApplyAction, Vec<String>)> {
    let answer = client.put(path, &planned.body)?.accepted("the control plane refused it")?;
    let action = match (answer.status, answer.outcome.as_deref()) {
        // The control plane adds to some specs, so only it knows.
        (_, Some("unchanged")) => ApplyAction::Unchanged,
        (201, _) => ApplyAction::Created,
        _ => ApplyAction::Updated,
    };
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let mut warnings: Vec<String> =
        read_partly::<Written>(&said).warnings.iter().map(|warning| cell::line(warning)).collect();
    for unknown in &planned.unknown_fields {
        // The control plane does not say which field may be meant.
        warnings.retain(|warning| !warning.starts_with(&format!("{}: unknown field", unknown.path)));
        warnings.push(unknown.to_string());
    }
    Ok((action, warnings))
}

/// Labels that a control plane adds to a resource if its author did not. Any other label that is stored
/// and not in the input was taken out of it: of `kuma.io/effect`, `kuma.io/managed-by` and `kuma.io/workload` that
/// makes a difference. A label that is missing here costs a write that changes nothing.
const COMPUTED: [&str; 8] = [
    labels::DISPLAY_NAME,
    labels::MESH,
    labels::ORIGIN,
    labels::ZONE,
    labels::ENV,
    labels::PROXY_TYPE,
    labels::LISTENER_ZONE_INGRESS,
    labels::LISTENER_ZONE_EGRESS,
];

/// True if storing the draft would change nothing. Labels the control plane computes do not count.
fn is_same(draft: &Draft, stored: Value) -> bool {
    let Value::Object(fields) = stored else { return false };
    let Ok(stored) = universal::parse_as(draft.kind(), fields) else { return false };
    let stored_labels = &stored.draft.labels;
    stored.unknown_fields.is_empty()
        && stored.draft.spec == draft.spec
        && draft.labels.iter().all(|(key, value)| stored_labels.get(key) == Some(value))
        && stored_labels.keys().all(|key| COMPUTED.contains(&key.as_str()) || draft.labels.contains_key(key))
}

/// The body the control plane gets: as written for the Universal form, so that a newer control plane
/// sees fields this client does not know.
pub fn body(value: Value, draft: &Draft) -> Value {
    if DocumentHeader::of(&value).is_kubernetes() {
        return universal::render_draft(draft);
    }
    let mut rendered = serde_json::Map::new();
    rendered.insert("type".into(), draft.kind().name().into());
    if !draft.key.mesh.is_empty() {
        rendered.insert("mesh".into(), draft.key.mesh.as_ref().into());
    }
    if let Value::Object(fields) = value {
        rendered.extend(fields.into_iter().filter(|(field, _)| field != "type" && field != "mesh"));
    }
    Value::Object(rendered)
}
