//! SNIs of destinations: that no value leads to two of them, and what their author should know.

mod claims;

use std::collections::{BTreeMap, HashSet};

use resources::{
    Kind, Path, Resource, Spec, Violations,
    kinds::mesh_service::Sni,
    naming::sni::{self, AcceptedSni, Owner},
};

use store::Snapshot;

pub use claims::Claims;

/// The values that are new with this resource, if its owner is this control plane.
pub fn new_values(resource: &Resource, existing: Option<&Resource>, owner: &Owner) -> Vec<String> {
    if !owner.owns(resource) {
        return Vec::new();
    }
    let before = existing.map(sni::accepted).unwrap_or_default();
    let before: HashSet<&str> = before.iter().map(|it| it.value.as_str()).collect();
    let all = sni::accepted(resource).into_iter().map(|it| it.value);
    all.filter(|value| !before.contains(value.as_str())).collect()
}

/// Refuses values that are new with this resource and lead somewhere else already. Only what has the same owner
/// counts: services of one name in several zones have the hash without a zone in common.
pub fn check(
    resource: &Resource,
    existing: Option<&Resource>,
    (snapshot, owner): (&Snapshot, &Owner),
    found: &mut Violations,
) {
    let all = sni::accepted(resource);
    if all.is_empty() || !owner.owns(resource) {
        return;
    }
    let before = existing.map(sni::accepted).unwrap_or_default();
    let before: HashSet<(&str, u32)> = before.iter().map(|it| (it.value.as_str(), it.port)).collect();
    let mut own: BTreeMap<&str, u32> = BTreeMap::new();
    for it in &all {
        let elsewhere = *own.entry(&it.value).or_insert(it.port);
        if before.contains(&(it.value.as_str(), it.port)) {
            continue;
        }
        if elsewhere != it.port {
            let message = format!("SNI {:?} is that of port {elsewhere}: an SNI leads to one port", it.value);
            found.add(path_of(resource.kind(), it), message);
        }
        let others = snapshot.accepting(&it.value);
        let other = others.into_iter().find(|other| other.key != resource.key && owner.owns(other));
        if let Some(other) = other {
            let message = format!(
                "SNI {:?} is that of {} {:?} in mesh {:?}: an SNI leads to one destination, so give one of the two another \
                 name or other snis",
                it.value,
                other.kind(),
                other.name(),
                other.mesh()
            );
            found.add(path_of(resource.kind(), it), message);
        }
    }
}

fn path_of(kind: Kind, it: &AcceptedSni) -> Path {
    let spec = Path::new("spec");
    let port = match kind {
        Kind::MeshExternalService => spec.field("match"),
        _ => spec.field("ports").index(it.port_index),
    };
    match it.index {
        Some(index) => port.field("snis").index(index).field("value"),
        None => port.field("snis"),
    }
}

/// Advice about what is accepted: SNIs that are no DNS names, and lists that follow the configuration instead of what
/// was given.
pub fn warnings(given: &Spec, resource: &Resource) -> Vec<String> {
    let sections = sni::sections(&resource.spec);
    let Some(kri) = resource.kri("").filter(|_| !sections.is_empty()) else { return Vec::new() };
    let kind = resource.kind();
    let mut warnings = Vec::new();
    for (port, section) in &sections {
        for problem in sni::violations(&kri.with_section(section)) {
            warnings.push(format!("Invalid {kind} SNI (port \"{port}\"): {problem}. This is deprecated."));
        }
    }
    let lists = lists(given).into_iter().zip(lists(&resource.spec)).zip(&sections);
    for ((given, stored), (port, _)) in
        lists.filter(|((given, stored), _)| !given.is_empty() && given != stored)
    {
        let values = |snis: &[Sni]| snis.iter().map(|sni| sni.value.clone()).collect::<Vec<_>>().join(", ");
        warnings.push(format!(
            "The SNIs of port {port} follow multizone.sni.formats: {} instead of {}. Leave out snis, or give values of your \
             own.",
            values(stored),
            values(given)
        ));
    }
    warnings
}

fn lists(spec: &Spec) -> Vec<&[Sni]> {
    match spec {
        Spec::MeshService(service) => service.ports.iter().map(|port| &*port.snis).collect(),
        Spec::MeshMultiZoneService(service) => service.ports.iter().map(|port| &*port.snis).collect(),
        Spec::MeshExternalService(service) => vec![&*service.match_.snis],
        _ => Vec::new(),
    }
}
