//! Preference among endpoints of a destination by their location: `localityAwareness` of a
//! MeshLoadBalancingStrategy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::Dataplane,
        int_or_string::IntOrString,
        mesh_load_balancing_strategy::{
            AffinityTag, CrossZone, Failover, LocalityAwareness, ToZone, ToZoneType,
        },
    },
};
use topology::Endpoint;

use crate::Applying;

/// Another zone gets traffic once fewer endpoints than half of them are healthy.
const OVERPROVISIONING: u32 = 200;
/// Factor between the weights of an affinity tag and the next one.
const STEP: u32 = 10;

/// Preference of a client among endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Locality {
    /// Not at all.
    Disabled,
    /// Those of its own zone.
    OwnZoneFirst {
        zone: Arc<str>,
    },
    Grouped(Groups),
}

/// Preferences inside of the client's zone, and the order in which other zones follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Groups {
    zone: Arc<str>,
    affinities: Vec<Affinity>,
    /// Other zones by the place of their rule, which is their priority; a rule that is for other clients has none.
    failover: Vec<Option<FailoverZones>>,
    overprovisioning: u32,
}

/// The zones that a rule of the failover is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FailoverZones {
    /// All, and traffic does not go there.
    Nowhere,
    Anywhere,
    Only(BTreeSet<String>),
    AnywhereBut(BTreeSet<String>),
}

/// Endpoints with the client's value of a tag, and their share of the traffic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    pub key: String,
    pub value: String,
    pub weight: u32,
}

/// The rank of an endpoint for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointRank<'l> {
    /// 0 is tried first.
    pub priority: u32,
    pub affinity: Option<&'l Affinity>,
}

impl Locality {
    /// Reads the preference of a policy, for a client in `zone` with these values of affinity tags.
    pub(crate) fn of(
        conf: Option<&LocalityAwareness>,
        zone: &Arc<str>,
        client: &BTreeMap<String, String>,
    ) -> Locality {
        let Some(conf) = conf else { return Locality::OwnZoneFirst { zone: zone.clone() } };
        if conf.disabled == Some(true) {
            return Locality::Disabled;
        }
        if conf.local_zone.is_none() && conf.cross_zone.is_none() {
            return Locality::OwnZoneFirst { zone: zone.clone() };
        }
        let tags = conf.local_zone.as_ref().and_then(|local| local.affinity_tags.as_deref());
        let cross = conf.cross_zone.as_ref();
        let rules = cross.and_then(|cross| cross.failover.as_deref()).unwrap_or_default();
        Locality::Grouped(Groups {
            zone: zone.clone(),
            affinities: affinities(tags.unwrap_or_default(), client),
            failover: rules
                .iter()
                .map(|rule| applies(rule, zone).then(|| FailoverZones::of(&rule.to)))
                .collect(),
            overprovisioning: overprovisioning(cross),
        })
    }

    /// Returns the rank of an endpoint; `None` if the client never calls it.
    pub fn standing(&self, endpoint: &Endpoint) -> Option<EndpointRank<'_>> {
        let plain = |priority| Some(EndpointRank { priority, affinity: None });
        match self {
            Locality::Disabled => plain(0),
            Locality::OwnZoneFirst { zone } => plain(u32::from(other_zone(endpoint, zone).is_some())),
            Locality::Grouped(groups) => match other_zone(endpoint, &groups.zone) {
                None => Some(EndpointRank { priority: 0, affinity: groups.affinity(endpoint) }),
                Some(zone) => groups.priority_of(zone).and_then(plain),
            },
        }
    }

    /// Groups of endpoints have shares of the traffic.
    pub fn is_weighted(&self) -> bool {
        matches!(self, Locality::Grouped(groups) if !groups.affinities.is_empty())
    }

    pub fn overprovisioning(&self) -> Option<u32> {
        match self {
            Locality::Grouped(groups) => Some(groups.overprovisioning),
            Locality::Disabled | Locality::OwnZoneFirst { .. } => None,
        }
    }
}

impl Groups {
    /// The first tag of which the endpoint has the client's value.
    fn affinity(&self, endpoint: &Endpoint) -> Option<&Affinity> {
        let value = |key: &str| endpoint.tags.get(key).or_else(|| endpoint.labels()?.get(key));
        self.affinities.iter().find(|affinity| value(&affinity.key) == Some(&affinity.value))
    }

    /// The place of the first rule that is about a zone; `None` where none lets traffic go there.
    fn priority_of(&self, zone: &str) -> Option<u32> {
        let rules = self.failover.iter().zip(1..).filter_map(|(rule, place)| Some((rule.as_ref()?, place)));
        let (rule, place) = rules.into_iter().find(|(rule, _)| rule.are_about(zone))?;
        (*rule != FailoverZones::Nowhere).then_some(place)
    }
}

impl FailoverZones {
    fn of(to: &ToZone) -> FailoverZones {
        let zones = || to.zones.iter().flatten().cloned().collect();
        match to.type_ {
            ToZoneType::None => FailoverZones::Nowhere,
            ToZoneType::Any => FailoverZones::Anywhere,
            ToZoneType::AnyExcept => FailoverZones::AnywhereBut(zones()),
            ToZoneType::Only | ToZoneType::Other(_) => FailoverZones::Only(zones()),
        }
    }

    fn are_about(&self, zone: &str) -> bool {
        match self {
            FailoverZones::Nowhere | FailoverZones::Anywhere => true,
            FailoverZones::Only(zones) => zones.contains(zone),
            FailoverZones::AnywhereBut(zones) => !zones.contains(zone),
        }
    }
}

fn applies(rule: &Failover, zone: &str) -> bool {
    rule.from.as_ref().is_none_or(|from| from.zones.iter().any(|from| from == zone))
}

/// The zone of an endpoint that is not in the client's.
fn other_zone<'e>(endpoint: &'e Endpoint, own: &str) -> Option<&'e str> {
    let zone = endpoint.zone().filter(|_| endpoint.instance.is_none());
    zone.filter(|zone| *zone != own)
}

/// The tags of which the client has a value. Weights that are not given fall by a power of ten.
fn affinities(tags: &[AffinityTag], client: &BTreeMap<String, String>) -> Vec<Affinity> {
    let behind = |index: usize| u32::try_from(tags.len() - 1 - index).unwrap_or(u32::MAX);
    let weight = |index: usize| 9u32.saturating_mul(STEP.saturating_pow(behind(index)));
    let one = |(index, tag): (usize, &AffinityTag)| {
        let value = client.get(&tag.key)?.clone();
        let weight = tag.weight.unwrap_or_else(|| weight(index));
        Some(Affinity { key: tag.key.clone(), value, weight })
    };
    tags.iter().enumerate().filter_map(one).collect()
}

fn overprovisioning(cross: Option<&CrossZone>) -> u32 {
    let threshold = cross.and_then(|cross| cross.failover_threshold.as_ref()?.percentage.as_ref());
    let percent = threshold.and_then(IntOrString::millionths).filter(|millionths| *millionths > 0);
    // Whole hundreds, as Kuma reckons.
    percent.map_or(OVERPROVISIONING, |millionths| {
        u32::try_from(100 * (100_000_000 / millionths)).unwrap_or(u32::MAX).max(100)
    })
}

/// The client's values of the tags that its policies prefer by: of an inbound, else a label.
pub(crate) fn values(dataplane: &Resource, applying: &Applying) -> BTreeMap<String, String> {
    let entries = applying.of_kind(Kind::MeshLoadBalancingStrategy).iter().flat_map(|policy| &policy.view.to);
    let named = |entry: &policy::view::PolicyEntry| -> Vec<String> {
        let tags = entry.conf.value.pointer("/localityAwareness/localZone/affinityTags");
        let tags = tags.and_then(|tags| tags.as_array()).into_iter().flatten();
        tags.filter_map(|tag| Some(tag.get("key")?.as_str()?.to_owned())).collect()
    };
    let keys: BTreeSet<String> = entries.flat_map(named).collect();
    let inbounds = dataplane.spec.get::<Dataplane>().map(Dataplane::inbounds).unwrap_or_default();
    let value = |key: &str| {
        let tag = inbounds.iter().find_map(|inbound| inbound.tags.get(key)).map(String::as_str);
        tag.or_else(|| dataplane.label(key)).map(str::to_owned)
    };
    keys.into_iter().filter_map(|key| value(&key).map(|value| (key, value))).collect()
}
