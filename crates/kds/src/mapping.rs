//! Name and labels of a resource on the other side.

use std::sync::Arc;

use resources::{Key, Kind, Labels, Resource, Spec, labels, naming::kds::hashed_name};

use crate::Synced;

/// `<name>.<mesh>`, with nothing after the dot for kinds of global scope.
pub fn wire_name(key: &Key) -> String {
    format!("{}.{}", key.name, key.mesh)
}

/// The key of a name on the wire: names have dots, meshes have none.
pub fn key_of(kind: Kind, name: &str) -> Option<Key> {
    let (name, mesh) = name.rsplit_once('.')?;
    (!name.is_empty()).then(|| Key::new(kind, mesh, name))
}

/// True for kinds with resources that keep their name: others refer to them by it.
pub fn keeps_name(kind: Kind) -> bool {
    matches!(kind, Kind::Config | Kind::Mesh | Kind::Secret | Kind::GlobalSecret)
}

/// The form in which a zone gets a resource of the global control plane.
pub fn to_zone(resource: &Resource, skipped: &[String]) -> Synced {
    let mut labels = carried(resource, skipped);
    // What was exported from a zone and written on global is no longer that zone's.
    if resource.label(labels::ORIGIN) != Some(labels::ORIGIN_ZONE) {
        labels.remove(labels::ZONE);
    }
    labels.insert(labels::ORIGIN.to_owned(), labels::ORIGIN_GLOBAL.to_owned());
    let key = renamed(resource, &labels);
    Synced { key, labels, spec: resource.spec.clone(), status: None }
}

/// The form in which the global control plane gets a resource of `zone`.
pub fn to_global(resource: &Resource, zone: &str, skipped: &[String]) -> Synced {
    let mut labels = carried(resource, skipped);
    labels.insert(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned());
    labels.insert(labels::ZONE.to_owned(), zone.to_owned());
    // It is about this zone's plan to delete the resource.
    labels.remove(labels::DELETION_GRACE_PERIOD);
    let key = renamed(resource, &labels);
    Synced { key, labels, spec: without_own_facts(&resource.spec), status: resource.status.clone() }
}

fn carried(resource: &Resource, skipped: &[String]) -> Labels {
    let keeps = |name: &str| !skipped.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let own = resource.labels.iter().filter(|(name, _)| keeps(name));
    let mut labels: Labels = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    if !keeps_name(resource.kind()) {
        labels.entry(labels::DISPLAY_NAME.to_owned()).or_insert_with(|| resource.name().to_owned());
    }
    labels
}

fn renamed(resource: &Resource, labels: &Labels) -> Key {
    if keeps_name(resource.kind()) {
        return resource.key.clone();
    }
    let label = |name: &str| labels.get(name).map(String::as_str);
    let zone = label(labels::ZONE);
    let namespace = label(labels::K8S_NAMESPACE);
    let name = hashed_name(resource.mesh(), resource.display_name(), zone, namespace);
    Key::new(resource.kind(), resource.mesh(), &name)
}

/// The name on the global control plane of a resource that `zone` sends with these labels.
pub(crate) fn name_on_global(key: &Key, labels: &Labels, zone: &str) -> String {
    let label = |name: &str| labels.get(name).map(String::as_str);
    let display_name = label(labels::DISPLAY_NAME).filter(|name| !name.is_empty()).unwrap_or(&key.name);
    hashed_name(&key.mesh, display_name, Some(zone), label(labels::K8S_NAMESPACE))
}

/// Removes the number of writes of a subscription and the address of its instance, which are of interest only to the control
/// planes that share a store with the one that writes it.
fn without_own_facts(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    let subscriptions = match &mut spec {
        Spec::DataplaneInsight(insight) => &mut Arc::make_mut(insight).subscriptions,
        Spec::ZoneIngressInsight(insight) => &mut Arc::make_mut(insight).subscriptions,
        Spec::ZoneEgressInsight(insight) => &mut Arc::make_mut(insight).subscriptions,
        _ => return spec,
    };
    for subscription in subscriptions.iter_mut() {
        subscription.generation = 0;
        subscription.control_plane_address.clear();
    }
    spec
}
