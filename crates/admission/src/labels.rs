//! Labels: which ones the control plane computes, which ones a user may give.

use resources::{
    Draft, Form, Key, Kind, Labels, Path, Resource, Scope, Violations, checks,
    kinds::dataplane::{Dataplane, GatewayType, ListenerType},
    labels,
    naming::namespaced,
};

use super::{ControlPlaneRole, RuleSettings};

/// The labels of the resource as stored: the author's, completed by what the control plane knows.
pub fn compute(draft: &Draft, setup: &RuleSettings) -> Labels {
    let descriptor = draft.kind().descriptor();
    let mut out = draft.labels.clone();
    if descriptor.scope == Scope::Mesh {
        out.entry(labels::MESH.to_owned()).or_insert_with(|| draft.key.mesh.to_string());
    }
    if let ControlPlaneRole::Zone { name, federated } = &setup.mode
        && descriptor.sync.provided_by_zone
        && out.get(labels::ORIGIN).is_none_or(|origin| origin != labels::ORIGIN_GLOBAL)
    {
        out.entry(labels::ORIGIN.to_owned()).or_insert_with(|| labels::ORIGIN_ZONE.to_owned());
        if says_zone(draft.kind(), *federated) {
            out.entry(labels::ZONE.to_owned()).or_insert_with(|| name.clone());
            out.entry(labels::ENV.to_owned()).or_insert_with(|| setup.environment.label().to_owned());
        }
    }
    if let Some(proxy) = proxy_type(draft) {
        out.insert(labels::PROXY_TYPE.to_owned(), proxy.to_owned());
    }
    if let Some(dataplane) = draft.spec.get::<Dataplane>() {
        label_listeners(dataplane, &mut out);
    }
    out
}

/// Resources of the kind say in which zone they are, which is part of their identifier. As in Kuma, what a zone
/// has for itself does not, nor do zone proxies where there is one zone only.
fn says_zone(kind: Kind, federated: bool) -> bool {
    match kind {
        Kind::Zone | Kind::HostnameGenerator => false,
        Kind::ZoneIngress | Kind::ZoneEgress => federated,
        _ => true,
    }
}

/// A stored label that says of a resource what its name says, as the control plane writes it on what it generates, is
/// no reason to refuse a put that leaves it out.
pub fn keep(key: &Key, existing: Option<&Resource>, mode: &ControlPlaneRole, out: &mut Labels) {
    let stored = |label: &str| existing.and_then(|existing| existing.label(label));
    if let ControlPlaneRole::Zone { name, federated } = mode
        && !says_zone(key.kind, *federated)
        && stored(labels::ZONE).is_some_and(|zone| zone == name)
    {
        out.entry(labels::ZONE.to_owned()).or_insert_with(|| name.clone());
    }
    let namespace = out.get(labels::K8S_NAMESPACE).map_or("", String::as_str);
    let said = namespaced::within(&key.name, namespace).unwrap_or(&key.name);
    if let Some(name) = stored(labels::DISPLAY_NAME).filter(|name| [said, &key.name].contains(name)) {
        out.entry(labels::DISPLAY_NAME.to_owned()).or_insert_with(|| name.to_owned());
    }
}

fn proxy_type(draft: &Draft) -> Option<&'static str> {
    match draft.kind() {
        Kind::Dataplane => {
            // A delegated gateway is a program of its own with a sidecar.
            let gateway = draft.spec.get::<Dataplane>().and_then(Dataplane::gateway);
            let is_gateway = gateway.is_some_and(|gateway| gateway.kind == GatewayType::Builtin);
            Some(if is_gateway { "gateway" } else { "sidecar" })
        }
        Kind::ZoneIngress => Some("zoneingress"),
        Kind::ZoneEgress => Some("zoneegress"),
        _ => None,
    }
}

fn label_listeners(dataplane: &Dataplane, out: &mut Labels) {
    for (label, listener) in [
        (labels::LISTENER_ZONE_INGRESS, ListenerType::ZoneIngress),
        (labels::LISTENER_ZONE_EGRESS, ListenerType::ZoneEgress),
    ] {
        if dataplane.has_listener(listener) {
            out.insert(label.to_owned(), "enabled".to_owned());
        } else {
            out.remove(label);
        }
    }
}

/// Refuses labels that a user may not give to this resource here.
pub fn validate(draft: &Draft, setup: &RuleSettings, found: &mut Violations) {
    checks::labels(draft, found);
    validate_origin(draft.kind(), &draft.labels, setup, found);
    validate_place(draft, setup, found);
}

/// A label that names a zone or a mesh must name this zone and the resource's mesh.
fn validate_place(draft: &Draft, setup: &RuleSettings, found: &mut Violations) {
    let path = Path::new("labels");
    let ControlPlaneRole::Zone { name, .. } = &setup.mode else { return };
    if draft.labels.get(labels::ORIGIN).is_some_and(|origin| origin == labels::ORIGIN_GLOBAL) {
        return;
    }
    if let Some(zone) = draft.labels.get(labels::ZONE)
        && zone != name
    {
        found.add(path.key(labels::ZONE), format!("{} label should have {name} value", labels::ZONE));
    }
    if let Some(mesh) = draft.labels.get(labels::MESH)
        && **mesh != *draft.key.mesh
    {
        let message = format!("{} label must not differ from mesh set on resource", labels::MESH);
        found.add(path.key(labels::MESH), message);
    }
}

/// A global control plane writes only what originates there; a federated zone only what originates
/// in zones and says so.
pub fn validate_origin(kind: Kind, given: &Labels, setup: &RuleSettings, found: &mut Violations) {
    if setup.disable_origin_label_validation {
        return;
    }
    let origin = given.get(labels::ORIGIN).map(String::as_str);
    let (wanted, holds) = match setup.mode {
        ControlPlaneRole::Global => {
            (labels::ORIGIN_GLOBAL, origin.is_none_or(|o| o == labels::ORIGIN_GLOBAL))
        }
        ControlPlaneRole::Zone { federated: true, .. } if kind.descriptor().form == Form::Spec => {
            (labels::ORIGIN_ZONE, origin == Some(labels::ORIGIN_ZONE))
        }
        ControlPlaneRole::Zone { .. } => return,
    };
    let path = Path::new("labels").key(labels::ORIGIN);
    found.require(holds, path, format!("the origin label must be set to '{wanted}'"));
}

/// The origin of a resource, and its name there, never change.
pub fn validate_immutable(before: &Labels, after: &Labels) -> Violations {
    let mut found = Violations::default();
    for label in [labels::ORIGIN, labels::ZONE, labels::DISPLAY_NAME] {
        let Some(was) = before.get(label) else { continue };
        let path = Path::new("labels").key(label);
        match after.get(label) {
            None => found.add(path, format!("is immutable, cannot be removed (was {was:?})")),
            Some(is) if is != was => {
                found.add(path, format!("is immutable, cannot be changed from {was:?} to {is:?}"));
            }
            Some(_) => {}
        }
    }
    found
}
