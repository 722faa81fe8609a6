//! Which resources a peer may change, and what it cannot say about them.

use std::sync::Arc;

use resources::{Key, Kind, Labels, Resource, Scope, Spec, kinds::tags::Tags, labels, naming::dns};

use crate::{Synced, rights, select::CLUSTER_ID};

/// Who receives.
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

    /// Whether a stored resource came from the peer, so that the peer may delete it. What was written here never is.
    pub fn is_theirs(&self, stored: &Resource) -> bool {
        match self {
            Role::Zone(_) => stored.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL),
            Role::Global(zone) => {
                stored.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE)
                    && stored.label(labels::ZONE) == Some(&**zone)
            }
        }
    }

    /// Whether what the peer sent may take the place of what is stored; if not, why.
    pub fn may_replace(&self, stored: &Resource, synced: &Synced) -> Result<(), String> {
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
            Role::Zone(zone) => Err(format!(
                "zone {zone:?} has a resource of its own with this name: delete it there, and this one takes its place"
            )),
            Role::Global(zone) => Err(match stored.label(labels::ZONE) {
                Some(other) => {
                    format!("a resource of zone {other:?} has this name, and it is not zone {zone:?}'s")
                }
                None => format!(
                    "a resource of the global control plane has this name, and it is not zone {zone:?}'s"
                ),
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
    pub fn pinned(&self, synced: &Synced) -> Result<Synced, String> {
        check_names(&synced.key)?;
        let mut pinned = synced.clone();
        match self {
            Role::Zone(own) => {
                if pinned.labels.get(labels::ZONE).is_some_and(|zone| **zone == **own) {
                    return Err(format!("it is zone {own:?}'s own and cannot come from elsewhere"));
                }
                rights::check_sent_to_zone(&pinned.key)?;
                if let Some(other) = pinned.labels.get(labels::ZONE).filter(|zone| !zone.is_empty()) {
                    rights::check_effect_elsewhere(&pinned.spec, &pinned.labels, other)?;
                }
                set(&mut pinned.labels, labels::ORIGIN, labels::ORIGIN_GLOBAL);
            }
            Role::Global(zone) => {
                rights::check_name_of_zone(&pinned.key, &pinned.labels, zone)?;
                rights::check_role(&pinned.spec, &pinned.labels, zone)?;
                set(&mut pinned.labels, labels::ORIGIN, labels::ORIGIN_ZONE);
                set(&mut pinned.labels, labels::ZONE, zone);
                pin_spec(&mut pinned.spec, zone);
            }
        }
        Ok(pinned)
    }
}

fn set(labels: &mut Labels, name: &str, value: &str) {
    labels.insert(name.to_owned(), value.to_owned());
}

/// A zone speaks for itself, also in the fields of its resources.
fn pin_spec(spec: &mut Spec, zone: &str) {
    match spec {
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
        _ => {}
    }
}

/// Proxies without tags have no service by tags, and no zone there either.
fn pin_tags(tags: &mut Tags, zone: &str) {
    if !tags.is_empty() {
        tags.insert(labels::ZONE.to_owned(), zone.to_owned());
    }
}

/// How much longer the names of secrets may be that a control plane makes for a mesh: they contain the mesh's name.
const AROUND_MESH: usize = 64;

fn check_names(key: &Key) -> Result<(), String> {
    let is_valid = |name: &str, longest: usize| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        !name.is_empty() && name.len() <= longest && name.bytes().all(known)
    };
    let longest = match key.kind {
        Kind::Secret => dns::HOSTNAME_MAX + AROUND_MESH,
        _ => dns::HOSTNAME_MAX,
    };
    if !is_valid(&key.name, longest) {
        return Err(format!("{:?} is not a name", key.name));
    }
    if key.kind.descriptor().scope == Scope::Mesh && !is_valid(&key.mesh, dns::HOSTNAME_MAX) {
        return Err(format!("{:?} is not the name of a mesh", key.mesh));
    }
    Ok(())
}
