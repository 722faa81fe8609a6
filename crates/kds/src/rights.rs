//! Rights of peers: the resources that never cross, and the effect of one zone's resources in another zone.
//!
//! Sender and receiver ask the same functions, so that a hostile peer cannot send what an honest one would not.
//! `docs/reference/kds.md` has the table.

mod producer;
mod violation;

use resources::{Key, Kind, Labels, Spec, labels, naming::dns};

use crate::{mapping, select::CLUSTER_ID};
pub use violation::{ProducerReach, ProducerViolation, RightsViolation};

pub(crate) const ZONE_TOKEN_KEY: &str = "zone-token-signing-key";
pub(crate) const ZONE_TOKEN_PUBLIC_KEY: &str = "zone-token-signing-public-key";
/// Secrets of the global control plane alone.
const OF_GLOBAL: [&str; 5] =
    ["envoy-admin-ca", "admin-user-token", "inter-cp-ca", "inter-cp-certificate", "user-token-revocations"];
const USER_TOKEN_KEY: &str = "user-token-signing-key";
const PRODUCER: &str = "producer";

/// Refuses keys and settings that a zone never gets from its global control plane. `key` is the name on the wire.
pub fn check_sent_to_zone(key: &Key) -> Result<(), RightsViolation> {
    let name = &*key.name;
    let stays = match key.kind {
        Kind::GlobalSecret => {
            OF_GLOBAL.contains(&name) || name.starts_with(USER_TOKEN_KEY) || name.starts_with(ZONE_TOKEN_KEY)
        }
        Kind::Config => name != CLUSTER_ID,
        _ => false,
    };
    if stays {
        return Err(RightsViolation::OfGlobalAlone { kind: key.kind, name: name.to_owned() });
    }
    Ok(())
}

/// Refuses a name that is not that of a resource of `zone`: zones would occupy each other's names.
pub fn check_name_of_zone(key: &Key, labels: &Labels, zone: &str) -> Result<(), RightsViolation> {
    if mapping::keeps_name(key.kind) {
        return Ok(());
    }
    let expected = mapping::name_on_global(key, labels, zone);
    if *key.name != *expected {
        return Err(RightsViolation::NameOfAnother { zone: zone.to_owned(), expected: expected.to_string() });
    }
    Ok(())
}

/// Refuses a resource of `zone` that must have no effect in other zones.
///
/// Policies of a zone are for its own proxies. Those of a producer are for callers everywhere, so they may be about
/// calls to services of their own zone and about nothing else.
pub fn check_effect_elsewhere(spec: &Spec, labels: &Labels, zone: &str) -> Result<(), RightsViolation> {
    let kind = spec.kind();
    let descriptor = kind.descriptor();
    if !descriptor.sync.across_zones {
        return Err(RightsViolation::KindOfOneZone(kind));
    }
    let Some(traits) = descriptor.policy else { return Ok(()) };
    if !is_producer(labels) {
        return Err(RightsViolation::PolicyOfOneZone { zone: zone.to_owned() });
    }
    // Access logs write files and read the environment of the calling proxy.
    if traits.to.is_none() || kind == Kind::MeshAccessLog {
        return Err(RightsViolation::KindOfConsumers(kind));
    }
    Ok(producer::check(spec, zone)?)
}

/// Refuses a kind that only zones have and that names no zone.
pub fn check_of_global(kind: Kind) -> Result<(), RightsViolation> {
    if kind.descriptor().sync.global_to_zones {
        return Ok(());
    }
    Err(RightsViolation::NoZone(kind))
}

/// Refuses the role `producer` where it would reach further than the services of `zone`.
pub fn check_role(spec: &Spec, labels: &Labels, zone: &str) -> Result<(), RightsViolation> {
    if spec.kind().descriptor().policy.is_none() || !is_producer(labels) {
        return Ok(());
    }
    check_effect_elsewhere(spec, labels, zone)
}

fn is_producer(labels: &Labels) -> bool {
    labels.get(labels::POLICY_ROLE).is_some_and(|role| role == PRODUCER)
}

/// Refuses labels that identify a resource and are no identifiers: names in Envoy, hostnames and tables are made of
/// them.
pub fn check_labels(labels: &Labels) -> Result<(), RightsViolation> {
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let given = |name: &'static str| Some((name, labels.get(name).filter(|value| !value.is_empty())?));
    let display_name = given(labels::DISPLAY_NAME)
        .filter(|(_, value)| value.len() > dns::HOSTNAME_MAX || !value.bytes().all(of_name));
    let places = [labels::K8S_NAMESPACE, labels::ZONE].into_iter().filter_map(given);
    let wrong = display_name.into_iter().chain(places.filter(|(_, value)| !dns::is_rfc1123_label(value)));
    match wrong.into_iter().next() {
        Some((name, value)) => Err(RightsViolation::Label { name, value: value.clone() }),
        None => Ok(()),
    }
}
