//! Completes a Dataplane that a zone stores, and compares it with the constraints of the mesh.

use resources::{
    kinds::{
        dataplane::{Dataplane, Health, InboundState},
        mesh::{Mesh, TagRule},
        tags::{ANY_VALUE, Tags},
    },
    labels,
};

use super::{ControlPlaneRole, RuleSettings};

/// The Dataplane as this zone stores it; `is_new` if nothing of its name is stored.
pub fn complete(dataplane: &Dataplane, setup: &RuleSettings, is_new: bool) -> Dataplane {
    let mut out = dataplane.clone();
    let (ControlPlaneRole::Zone { name, .. }, Some(networking)) = (&setup.mode, &mut out.networking) else {
        return out;
    };
    for inbound in &mut networking.inbound {
        // An inbound without any tags is one that only MeshServices select, by labels and port.
        if !inbound.tags.is_empty() {
            inbound.tags.insert(labels::ZONE.to_owned(), name.clone());
        }
        // Until the first probe it is unknown whether the application listens.
        if is_new && setup.health_discovery && inbound.service_probe.is_some() {
            inbound.state = InboundState::NotReady;
            inbound.health = Some(Health { ready: false });
        }
    }
    if let Some(gateway) = &mut networking.gateway {
        gateway.tags.insert(labels::ZONE.to_owned(), name.clone());
    }
    out
}

/// Refuses a proxy with an inbound or gateway that the constraints of the mesh keep out.
pub fn check_membership(name: &str, mesh: &Mesh, dataplane: &Dataplane) -> Result<(), String> {
    let proxies = mesh.constraints.as_ref().and_then(|constraints| constraints.dataplane_proxy.as_ref());
    let Some(constraints) = proxies else { return Ok(()) };
    let gateway = dataplane.gateway().map(|gateway| &gateway.tags);
    for tags in dataplane.inbounds().iter().map(|inbound| &inbound.tags).chain(gateway) {
        let refused = |why: String| {
            Err(format!(
                "dataplane cannot be a member of mesh {name:?} because its tags {:?} {why}",
                text(tags)
            ))
        };
        let required = &constraints.requirements;
        if !required.is_empty() && !required.iter().any(|rule| holds(rule, tags)) {
            return refused("does not fulfill any requirements defined on the Mesh".to_owned());
        }
        if let Some(rule) = constraints.restrictions.iter().find(|rule| holds(rule, tags)) {
            return refused(format!("matches restricted tags {:?} defined on the Mesh", text(&rule.tags)));
        }
    }
    Ok(())
}

/// A tag that is missing counts as an empty one.
fn holds(rule: &TagRule, tags: &Tags) -> bool {
    rule.tags.iter().all(|(key, wanted)| {
        let value = tags.get(key).map(String::as_str).unwrap_or_default();
        if wanted == ANY_VALUE { !value.is_empty() } else { value == wanted }
    })
}

fn text(tags: &Tags) -> String {
    let pairs: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(" ")
}
