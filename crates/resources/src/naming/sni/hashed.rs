use std::{borrow::Cow, collections::BTreeMap};

use super::DESTINATIONS;
use crate::{
    Kind, Resource, labels,
    naming::{Error, dns::LABEL_MAX, fnv::fnv1a_64, namespaced},
};

/// The hashed SNI of a destination's port; `additional` narrows it to a subset.
pub fn hashed(
    name: &str,
    mesh: &str,
    kind: Kind,
    port: u32,
    additional: &BTreeMap<String, String>,
) -> Result<String, Error> {
    let (_, _, suffix) = DESTINATIONS
        .iter()
        .find(|(destination, ..)| *destination == kind)
        .ok_or(Error::NotADestination(kind.name()))?;
    let data: Vec<String> = additional.iter().map(|(k, v)| format!("{k}={v}")).collect();
    // Neither the kind nor the port is hashed, whatever the design document says: peers compute it so.
    let hash = hash(name, mesh, &data.join(","));
    Ok(format!("a{hash:016x}.{}.{port}.{}.{suffix}", trimmed(name), trimmed(mesh)))
}

pub(super) fn hash(name: &str, mesh: &str, data: &str) -> u64 {
    fnv1a_64(&[name, ";", mesh, ";", data])
}

/// The name a destination has in hashed SNIs: the same on every control plane it is synchronised to.
///
/// `system_namespace` is the namespace of this control plane, empty outside Kubernetes.
pub fn sni_name<'r>(resource: &'r Resource, system_namespace: &str) -> Cow<'r, str> {
    if resource.kind() != Kind::MeshService {
        return resource.display_name().into();
    }
    let namespace = resource.label(labels::K8S_NAMESPACE).unwrap_or_default();
    match resource.label(labels::ORIGIN) {
        // A service born outside Kubernetes may have got the label from the store it was synchronised to.
        Some(labels::ORIGIN_GLOBAL) if namespace.is_empty() || namespace == system_namespace => {
            resource.display_name().into()
        }
        Some(labels::ORIGIN_GLOBAL) => namespaced::joined(resource.display_name(), namespace).into(),
        // A service outside Kubernetes that stands in for one inside. One that was written in the form of Kubernetes
        // has the namespace in its name already.
        Some(labels::ORIGIN_ZONE) if system_namespace.is_empty() && !namespace.is_empty() => {
            let name = namespaced::within(resource.name(), namespace).unwrap_or(resource.name());
            namespaced::joined(name, namespace).into()
        }
        _ => resource.name().into(),
    }
}

/// Names that fill a DNS label or more are cut and marked with an `x`, which also keeps the label from
/// ending in `-`.
fn trimmed(name: &str) -> Cow<'_, str> {
    if name.len() < LABEL_MAX {
        return name.into();
    }
    let mut end = LABEL_MAX - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}x", &name[..end]).into()
}
