//! Rights of a peer to change resources, and limits of what it may say about them.

use std::sync::Arc;

use resources::{
    Key, Kind, Labels, Resource, Scope, Spec,
    kinds::tags::Tags,
    labels,
    naming::{dns, sni::OfZone},
};

use crate::{
    Synced,
    rights::{self, RightsViolation},
    select::CLUSTER_ID,
};

/// Role of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// This zone, from the global control plane.
    Zone(Arc<str>),
    /// The global control plane, from this zone.
    Global(Arc<str>),
}

impl Role {
    /// The zone at one of the two ends.
    pub fn zone(&self) -> &str {
        match self {
            Role::Zone(zone) | Role::Global(zone) => zone,
        }
    }

    /// True if a stored resource came from the peer, so that the peer may delete it. Resources written here are
    /// never the peer's.
    pub fn is_theirs(&self, stored: &Resource) -> bool {
        match self {
            Role::Zone(_) => stored.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL),
            Role::Global(zone) => {
                stored.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
                    && stored.label(labels::ZONE) == Some(&**zone)
            }
        }
    }

    /// Checks that a resource of the peer may replace the stored one; the error is the reason against it.
    pub fn may_replace(&self, stored: &Resource, synced: &Synced) -> Result<(), RightsViolation> {
        // A zone that joins has meshes, say, that are the global control plane's from now on.
        let handed_over = || {
            let kind = stored.kind();
            !kind.descriptor().sync.provided_by_zone
                || stored.spec == synced.spec
                || kind == Kind::Config && stored.name() == CLUSTER_ID
        };
        match self {
            _ if self.is_theirs(stored) => Ok(()),
            Role::Zone(_) if handed_over() => Ok(()),
            Role::Global(_) if gives_way(stored, &synced.labels) => Ok(()),
            Role::Zone(zone) => Err(RightsViolation::NameTakenInZone { zone: zone.to_string() }),
            Role::Global(zone) => Err(match stored.label(labels::ZONE) {
                Some(owner) => {
                    RightsViolation::NameTakenByZone { owner: owner.to_owned(), zone: zone.to_string() }
                }
                None => RightsViolation::NameTakenByGlobal { zone: zone.to_string() },
            }),
        }
    }

    /// Deleting a zone deletes what came from it; deleting a mesh what is in it.
    pub fn owner(&self, key: &Key) -> Option<Key> {
        match self {
            Role::Global(zone) => Some(Key::global(Kind::Zone, zone)),
            Role::Zone(_) if key.kind.descriptor().scope == Scope::Mesh => {
                Some(Key::global(Kind::Mesh, &key.mesh))
            }
            Role::Zone(_) => None,
        }
    }

    /// The resource with what only the receiver may say: where it comes from.
    pub fn pinned(&self, synced: &Synced) -> Result<Synced, RightsViolation> {
        check_names(&synced.key)?;
        self.check(&synced.key, &synced.labels, &synced.spec)?;
        let mut pinned = synced.clone();
        let labels = &mut pinned.labels;
        // It is about the sender's plan to delete the resource.
        labels.remove(labels::DELETION_GRACE_PERIOD);
        if labels.contains_key(labels::MESH) && !pinned.key.mesh.is_empty() {
            set(labels, labels::MESH, &pinned.key.mesh);
        }
        match self {
            Role::Zone(_) => set(labels, labels::ORIGIN, labels::ORIGIN_GLOBAL),
            Role::Global(zone) => {
                set(labels, labels::ORIGIN, labels::ORIGIN_ZONE);
                set(labels, labels::ZONE, zone);
            }
        }
        if let Some(zone) = pinned.labels.get(labels::ZONE).filter(|zone| !zone.is_empty()).cloned() {
            pin_spec(&mut pinned, &zone);
        }
        Ok(pinned)
    }

    /// Refuses a stored resource of the peer that is not accepted any more: an older version was less strict.
    pub fn check_stored(&self, stored: &Resource) -> Result<(), RightsViolation> {
        if self.is_theirs(stored) { self.check(&stored.key, &stored.labels, &stored.spec) } else { Ok(()) }
    }

    fn check(&self, key: &Key, labels: &Labels, spec: &Spec) -> Result<(), RightsViolation> {
        rights::check_labels(labels)?;
        match self {
            Role::Zone(own) => {
                rights::check_sent_to_zone(key)?;
                // What no zone sends is global's, whatever its labels: secrets that were exported from a zone have them.
                let of_zones = key.kind.descriptor().sync.zone_to_global;
                let zone = labels.get(labels::ZONE).filter(|zone| of_zones && !zone.is_empty());
                match zone {
                    Some(zone) if **zone == **own => {
                        Err(RightsViolation::OfReceiver { zone: own.to_string() })
                    }
                    Some(other) => rights::check_effect_elsewhere(spec, labels, other),
                    None => rights::check_of_global(key.kind),
                }
            }
            Role::Global(zone) => {
                rights::check_name_of_zone(key, labels, zone)?;
                rights::check_role(spec, labels, zone)
            }
        }
    }
}

fn set(labels: &mut Labels, name: &str, value: &str) {
    labels.insert(name.to_owned(), value.to_owned());
}

/// Names are hashes of the parts one after the other, so two zones can come to one name. A namespace can be made up for
/// that, so a resource that has one gives way to one that has none; otherwise the first has the name.
fn gives_way(stored: &Resource, newer: &Labels) -> bool {
    let Some(zone) = stored.label(labels::ZONE).filter(|_| is_of_zone(stored)) else { return false };
    let has_namespace = |value: Option<&str>| value.is_some_and(|namespace| !namespace.is_empty());
    let is_made_up = rights::check_name_of_zone(&stored.key, &stored.labels, zone).is_err();
    let newer = newer.get(labels::K8S_NAMESPACE).map(String::as_str);
    is_made_up || has_namespace(stored.label(labels::K8S_NAMESPACE)) && !has_namespace(newer)
}

fn is_of_zone(stored: &Resource) -> bool {
    stored.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
}

/// A zone speaks for itself, also in the fields of its resources.
fn pin_spec(synced: &mut Synced, zone: &str) {
    let mesh = synced.key.mesh.clone();
    let named = OfZone {
        mesh: &mesh,
        zone,
        name: synced.labels.get(labels::DISPLAY_NAME).map_or(&*synced.key.name, String::as_str),
        namespace: synced.labels.get(labels::K8S_NAMESPACE).map_or("", String::as_str),
    };
    match &mut synced.spec {
        Spec::ZoneIngress(ingress) => {
            let ingress = Arc::make_mut(ingress);
            zone.clone_into(&mut ingress.zone);
            ingress.available_services.iter_mut().for_each(|service| pin_tags(&mut service.tags, zone));
        }
        Spec::ZoneEgress(egress) => zone.clone_into(&mut Arc::make_mut(egress).zone),
        Spec::Dataplane(dataplane) => {
            let Some(networking) = &mut Arc::make_mut(dataplane).networking else { return };
            networking.inbound.iter_mut().for_each(|inbound| pin_tags(&mut inbound.tags, zone));
            networking.gateway.iter_mut().for_each(|gateway| pin_tags(&mut gateway.tags, zone));
        }
        // An egress would lead calls to services of other zones to this one.
        Spec::MeshService(service) if service.ports.iter().any(|port| !port.snis.is_empty()) => {
            let ports = &mut Arc::make_mut(service).ports;
            ports.iter_mut().for_each(|port| port.snis.retain(|sni| !named.is_of_another(&sni.value)));
        }
        _ => {}
    }
}

/// Proxies without tags have no service by tags, and no zone there either.
fn pin_tags(tags: &mut Tags, zone: &str) {
    if !tags.is_empty() {
        tags.insert(labels::ZONE.to_owned(), zone.to_owned());
    }
}

/// Length that the control plane adds to a mesh's name in the names of the mesh's secrets.
const AROUND_MESH: usize = 64;

fn check_names(key: &Key) -> Result<(), RightsViolation> {
    let is_valid = |name: &str, longest: usize| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        !name.is_empty() && name.len() <= longest && name.bytes().all(known)
    };
    let longest = match key.kind {
        Kind::Secret => dns::HOSTNAME_MAX + AROUND_MESH,
        _ => dns::HOSTNAME_MAX,
    };
    if !is_valid(&key.name, longest) {
        return Err(RightsViolation::Name(key.name.to_string()));
    }
    if key.kind.descriptor().scope == Scope::Mesh && !is_valid(&key.mesh, dns::HOSTNAME_MAX) {
        return Err(RightsViolation::MeshName(key.mesh.to_string()));
    }
    Ok(())
}
