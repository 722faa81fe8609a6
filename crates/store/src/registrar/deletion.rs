//! What must not be deleted because something still depends on it.

use resources::{Kind, Resource, Violations, kinds::zone_insight::ZoneInsight};

use crate::Snapshot;

pub fn validate(existing: &Resource, snapshot: &Snapshot, found: &mut Violations) {
    match existing.kind() {
        Kind::Mesh if snapshot.count(Kind::Dataplane, Some(existing.name())) > 0 => {
            found.add("mesh", "unable to delete mesh, there are still some dataplanes attached");
        }
        Kind::Zone if is_online(existing, snapshot) => {
            found.add("zone", "unable to delete Zone, Zone CP is still connected, please shut it down first");
        }
        _ => {}
    }
}

fn is_online(zone: &Resource, snapshot: &Snapshot) -> bool {
    let insight = snapshot.get(&resources::Key::global(Kind::ZoneInsight, zone.name()));
    insight.and_then(|i| i.spec.get::<ZoneInsight>()).is_some_and(ZoneInsight::is_online)
}
