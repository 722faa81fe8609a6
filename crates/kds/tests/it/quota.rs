//! So many resources of a kind as one zone may have on global.

use kds::{
    Synced,
    guard::Guard,
    quota::Quota,
    receiver::{Arrival, Receiver, Role},
};
use resources::{Key, Kind, Resource, labels, naming::kds::hashed_name};
use serde_json::json;
use testkit::build::mesh;

use crate::{codec::resource, world::Plane};

/// A zone on global, with room for ten of each kind.
struct Zone {
    receiver: Receiver,
    guard: Guard,
}

impl Zone {
    fn new() -> Zone {
        let mut zone = Zone { receiver: Receiver::new(Role::Global("west".into())), guard: Guard::default() };
        zone.guard.quota = Quota::of(10);
        zone
    }

    fn reconnects(&mut self) {
        self.receiver = Receiver::new(Role::Global("west".into()));
    }

    /// Sends services, and deletes others. Returns why some are refused.
    fn sends(
        &mut self,
        global: &Plane,
        new: std::ops::Range<usize>,
        gone: std::ops::Range<usize>,
    ) -> Vec<String> {
        let synced = |of: Resource| Synced { key: of.key, labels: of.labels, spec: of.spec, status: None };
        let arrival = Arrival {
            kind: Kind::MeshService,
            resources: new.map(service).map(synced).collect(),
            removed: gone.map(|n| service(n).key).collect(),
            refused: Vec::new(),
            more: false,
        };
        let batch = self.receiver.receive(arrival, &global.snapshot(), &mut self.guard);
        let before = global.names(Kind::MeshService).len();
        let plan = self.receiver.plan(&batch, &global.snapshot(), jiff::Timestamp::UNIX_EPOCH);
        let deleted = plan.writes.iter().filter(|write| matches!(write, store::Write::Delete { .. })).count();
        plan.writes.into_iter().for_each(|write| drop(global.try_write(write).unwrap()));
        let created = global.names(Kind::MeshService).len() + deleted - before;
        self.guard.quota.settle(batch.kind, batch.room.reserved, created, deleted);
        plan.refused.into_iter().map(|refused| refused.reason).collect()
    }
}

fn service(n: usize) -> Resource {
    let display = format!("s{n}");
    let name = hashed_name("default", &display, Some("west"), None);
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    resource(Kind::MeshService, "default", &name, &[(labels::DISPLAY_NAME, &display)], spec)
}

fn global() -> Plane {
    let global = Plane::new();
    global.put(mesh("default").build());
    global.put(resource(Kind::Zone, "", "west", &[], json!({})));
    global
}

#[test]
fn a_zone_has_room_for_so_many_of_a_kind_and_deletions_make_room_again() {
    let global = global();
    let mut zone = Zone::new();
    let refused = zone.sends(&global, 0..60, 0..0);
    assert_eq!(refused.len(), 50);
    assert!(refused[0].contains("raise multizone.global.kds.maxResourcesPerKind"), "{}", refused[0]);
    let stored = global.names(Kind::MeshService);
    assert_eq!(stored.len(), 10);
    assert_eq!(zone.sends(&global, 60..61, 0..0).len(), 1);
    assert_eq!(zone.sends(&global, 0..5, 0..0).len(), 0, "what is stored may change");
    assert_eq!(global.names(Kind::MeshService), stored);
    assert_eq!(zone.sends(&global, 60..63, 0..2).len(), 1, "two for two");
    assert_eq!(global.names(Kind::MeshService).len(), 10);
    // Deleted by an operator.
    let one: Key = service(60).key;
    global.delete(&one);
    assert_eq!(zone.sends(&global, 70..72, 0..0).len(), 1);
    zone.reconnects();
    assert_eq!(zone.sends(&global, 5..40, 0..0).len(), 25, "five stay, and five are gone");
    assert_eq!(global.names(Kind::MeshService).len(), 10);
}
