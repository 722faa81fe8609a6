//! Selection of the resources that go to a peer, and their form.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Key, Kind, Resource, Spec,
    kinds::{
        secret::{GlobalSecret, SecretBytes},
        zone::Zone,
        zone_insight::ZoneInsight,
    },
    labels,
};
use store::Snapshot;

use crate::{Synced, mapping, rights};

/// The only setting of the control plane that zones share with global.
pub const CLUSTER_ID: &str = "kuma-cluster-id";

const ENABLED: &str = "enabled";
const DISABLED: &str = "disabled";

/// Direction of synchronisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// From the global control plane to this zone.
    ToZone(Arc<str>),
    /// From this zone to the global control plane.
    ToGlobal(Arc<str>),
}

impl Direction {
    /// The zone at one of the two ends.
    pub fn zone(&self) -> &str {
        match self {
            Direction::ToZone(zone) | Direction::ToGlobal(zone) => zone,
        }
    }

    /// True if resources of this kind go this way at all.
    pub fn carries(&self, kind: Kind) -> bool {
        let sync = &kind.descriptor().sync;
        match self {
            Direction::ToZone(_) => sync.global_to_zones || sync.across_zones,
            Direction::ToGlobal(_) => sync.zone_to_global,
        }
    }

    /// Kinds that our receiver asks for, meshes first: the rest lives in them.
    ///
    /// A zone counts its services itself, so it does not ask for `ServiceInsight`.
    pub fn wanted(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.iter().copied().filter(|&kind| self.carries(kind) && kind != Kind::ServiceInsight)
    }
}

/// The rules for one peer.
#[derive(Debug, Clone)]
pub struct Selection {
    pub direction: Direction,
    /// Labels that begin so stay behind (`multizone.*.kds.labels.skipPrefixes`).
    pub skipped_labels: Vec<String>,
    /// The peer, a zone, understands policies of other zones.
    pub producer_policies: bool,
    /// The public half of a private key in PEM.
    pub public_key: fn(&[u8]) -> Option<Vec<u8>>,
}

impl Selection {
    /// The form in which the peer gets this resource; `None` when it does not.
    pub fn outgoing(&self, resource: &Resource, off: &WithdrawnZones) -> Option<Synced> {
        if !self.direction.carries(resource.kind()) || !is_switched_on(resource) {
            return None;
        }
        match &self.direction {
            Direction::ToGlobal(zone) => {
                let own = resource.label(labels::ORIGIN) != Some(labels::ORIGIN_GLOBAL);
                own.then(|| mapping::to_global(resource, zone, &self.skipped_labels))
            }
            Direction::ToZone(zone) => {
                let sent = match resource.label(labels::ORIGIN) {
                    None | Some(labels::ORIGIN_GLOBAL) => resource.kind().descriptor().sync.global_to_zones,
                    Some(_) => self.goes_across(resource, zone, off),
                };
                let mapped = sent.then(|| mapping::to_zone(resource, &self.skipped_labels))?;
                self.published(mapped)
            }
        }
    }

    /// True if a zone gets the resource of another zone.
    fn goes_across(&self, resource: &Resource, zone: &str, off: &WithdrawnZones) -> bool {
        let descriptor = resource.kind().descriptor();
        let source = resource.label(labels::ZONE).unwrap_or_default();
        let understood = descriptor.policy.is_none() || self.producer_policies;
        let for_others = || rights::check_effect_elsewhere(&resource.spec, &resource.labels, source).is_ok();
        descriptor.sync.across_zones
            && source != zone
            && !off.hides(resource.kind(), source)
            && understood
            && for_others()
    }

    /// The public part of what has a private one.
    fn published(&self, mut synced: Synced) -> Option<Synced> {
        if let Spec::GlobalSecret(secret) = &synced.spec
            && let Some(serial) = synced.key.name.strip_prefix(rights::ZONE_TOKEN_KEY)
        {
            let public = (self.public_key)(secret.data.as_bytes())?;
            synced.key =
                Key::global(Kind::GlobalSecret, &format!("{}{serial}", rights::ZONE_TOKEN_PUBLIC_KEY));
            synced.spec = GlobalSecret { data: SecretBytes::new(public) }.into();
        }
        rights::check_sent_to_zone(&synced.key).is_ok().then_some(synced)
    }
}

/// True if the label of the resource enables synchronisation; without the label, its kind decides.
fn is_switched_on(resource: &Resource) -> bool {
    match resource.label(labels::KDS_SYNC) {
        Some(ENABLED) => true,
        Some(DISABLED) => false,
        _ => resource.kind() != Kind::Config || resource.name() == CLUSTER_ID,
    }
}

/// Zones of which others get less, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WithdrawnZones {
    /// Switched off by an operator: nothing.
    disabled: BTreeSet<Arc<str>>,
    /// Away for too long: no ingress. Services and their addresses stay, so that nothing flaps when the zone returns.
    withdrawn: BTreeSet<Arc<str>>,
}

impl WithdrawnZones {
    pub fn of(snapshot: &Snapshot) -> WithdrawnZones {
        let mut off = WithdrawnZones::default();
        for resource in snapshot.of_kind(Kind::Zone).chain(snapshot.of_kind(Kind::ZoneInsight)) {
            off.look_at(&resource.key, snapshot);
        }
        off
    }

    /// Takes up a change of a Zone or its insight; says whether it makes a difference.
    pub fn look_at(&mut self, key: &Key, snapshot: &Snapshot) -> bool {
        let spec = snapshot.get(key).map(|stored| &stored.spec);
        let (set, is_in) = match key.kind {
            Kind::Zone => {
                let zone = spec.and_then(|spec| spec.get::<Zone>());
                (&mut self.disabled, zone.is_some_and(|zone| !zone.is_enabled()))
            }
            Kind::ZoneInsight => {
                let insight = spec.and_then(|spec| spec.get::<ZoneInsight>());
                (&mut self.withdrawn, insight.is_some_and(ZoneInsight::is_withdrawn))
            }
            _ => return false,
        };
        if is_in { set.insert(key.name.clone()) } else { set.remove(&key.name) }
    }

    fn hides(&self, kind: Kind, zone: &str) -> bool {
        self.disabled.contains(zone) || kind == Kind::ZoneIngress && self.withdrawn.contains(zone)
    }
}
