//! Random histories of links, restarts and writes: everything arrives, and nothing that exists is deleted.
//!
//! `KDS_SIMULATIONS=5000 cargo test -p kds simulation` runs more of them; `KDS_SEED=42` runs one.

use std::sync::Arc;

use kds::{Synced, guard::Guard, guard::Threshold};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use resources::{Key, Kind, Resource, labels};
use serde_json::json;

use crate::{
    codec::resource,
    world::{Plane, World},
};

const STEPS: usize = 300;

fn runs() -> usize {
    std::env::var("KDS_SIMULATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

fn seeds() -> Vec<u64> {
    match std::env::var("KDS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..runs() as u64).collect(),
    }
}

struct Simulation {
    world: World,
    rng: StdRng,
    made: usize,
    /// Zones are switched off and on: then existing resources may be withdrawn from others.
    switches: bool,
    /// Keys on global and in zones before a delivery.
    zones: usize,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = StdRng::seed_from_u64(seed);
        let names = ["east", "west", "north"];
        let zones = rng.random_range(1..=names.len());
        let mut world = World::new(&names[..zones]);
        for member in &mut world.zones {
            member.parts = rng.random_bool(0.5);
        }
        world.global.put(resource(Kind::Mesh, "", "default", &[], json!({})));
        Simulation { world, switches: rng.random_bool(0.3), rng, made: 0, zones }
    }

    /// Names are never used twice, so that what is deleted is known to be gone for good.
    fn name(&mut self) -> String {
        self.made += 1;
        format!("r{}", self.made)
    }

    fn meshes(plane: &Plane) -> Vec<String> {
        plane.names(Kind::Mesh)
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..20 => self.write_on_global(),
            20..45 => self.write_in_zone(),
            45..50 => {
                let zone = self.rng.random_range(0..self.zones);
                self.world.cut(zone);
            }
            50..58 => {
                let zone = self.rng.random_range(0..self.zones);
                if self.world.zones[zone].link.is_none() {
                    self.world.connect(zone);
                }
            }
            58..60 => self.restart(),
            _ => self.deliver(),
        }
    }

    /// A process that starts again has its store and no memory.
    fn restart(&mut self) {
        let all = self.rng.random_bool(0.3);
        let zone = self.rng.random_range(0..self.zones);
        for (index, member) in self.world.zones.iter_mut().enumerate() {
            if all || index == zone {
                member.link = None;
                let guard = if all { &mut member.guard_on_global } else { &mut member.guard };
                *guard = Guard::new(Threshold::default());
            }
        }
    }

    fn write_on_global(&mut self) {
        let meshes = Self::meshes(&self.world.global);
        let mesh = meshes.choose(&mut self.rng).cloned().unwrap_or_default();
        let name = self.name();
        let value = self.rng.random_range(1..60);
        let timeout = json!({ "to": [{ "targetRef": { "kind": "Mesh" },
            "default": { "connectionTimeout": format!("{value}s") } }] });
        let global = &self.world.global;
        match self.rng.random_range(0..20) {
            0 => global.put(resource(Kind::Mesh, "", &name, &[], json!({}))),
            1..8 => global.put(resource(Kind::MeshTimeout, &mesh, &name, &[], timeout)),
            8..13 => {
                let own: Vec<Key> = own(global, Kind::MeshTimeout, labels::ORIGIN_ZONE);
                if let Some(key) = own.choose(&mut self.rng) {
                    global.put(resource(Kind::MeshTimeout, &key.mesh, &key.name, &[], timeout));
                }
            }
            13..18 => {
                let own = own(global, Kind::MeshTimeout, labels::ORIGIN_ZONE);
                if let Some(key) = own.choose(&mut self.rng) {
                    global.delete(key);
                }
            }
            _ if self.switches => {
                let zone = self.world.zones.choose(&mut self.rng).unwrap();
                let enabled = self.rng.random_bool(0.6);
                global.put(resource(Kind::Zone, "", &zone.name, &[], json!({ "enabled": enabled })));
            }
            _ => {}
        }
    }

    fn write_in_zone(&mut self) {
        let zone = self.rng.random_range(0..self.zones);
        let name = self.name();
        let port = self.rng.random_range(1..100);
        let plane = &self.world.zones[zone].plane;
        let Some(mesh) = Self::meshes(plane).choose(&mut self.rng).cloned() else { return };
        let service = json!({ "selector": { "dataplaneTags": { "app": "a" } },
            "ports": [{ "port": port, "targetPort": port, "appProtocol": "tcp" }], "state": "Available" });
        let dataplane = json!({ "networking": { "address": "10.0.0.1",
            "inbound": [{ "port": port, "tags": { "kuma.io/service": "a" } }] } });
        let kind = *[Kind::MeshService, Kind::Dataplane].choose(&mut self.rng).unwrap();
        let spec = if kind == Kind::MeshService { service } else { dataplane };
        let own = own(plane, kind, labels::ORIGIN_GLOBAL);
        match (self.rng.random_range(0..4), own.choose(&mut self.rng)) {
            (0, Some(key)) => plane.put(resource(kind, &key.mesh, &key.name, &[], spec)),
            (1, Some(key)) => plane.delete(key),
            _ => plane.put(resource(kind, &mesh, &name, &[], spec)),
        }
    }

    /// One link moves on by one message, either way.
    fn deliver(&mut self) {
        let zone = self.rng.random_range(0..self.zones);
        let down = self.rng.random_bool(0.5);
        let twice = self.rng.random_bool(0.05);
        let member = &mut self.world.zones[zone];
        let Some(link) = &mut member.link else { return };
        if self.rng.random_bool(0.5) {
            if down {
                link.to_zone.provide(&self.world.global)
            } else {
                link.to_global.provide(&member.plane)
            }
        } else if down {
            let before = member.plane.snapshot();
            link.to_zone.receive(&member.plane, &mut member.guard, twice);
            self.check_zone(zone, &before);
        } else {
            let before = self.world.global.snapshot();
            link.to_global.receive(&self.world.global, &mut member.guard_on_global, twice);
            self.check_global(zone, &before);
        }
    }

    /// Checks that a resource deleted in a zone by a delivery does not exist on global, and was never the
    /// zone's.
    fn check_zone(&self, zone: usize, before: &store::Snapshot) {
        let gone = gone(before, &self.world.zones[zone].plane.snapshot());
        if gone.is_empty() {
            return;
        }
        let expected = self.world.expected_in_zone(zone);
        for gone in gone {
            assert_eq!(
                gone.label(labels::ORIGIN),
                Some(labels::ORIGIN_GLOBAL),
                "{} was the zone's",
                gone.key
            );
            let exists = expected.iter().any(|synced| synced.key == gone.key);
            assert!(self.switches || !exists, "{} exists on global and is deleted in the zone", gone.key);
        }
    }

    fn check_global(&self, zone: usize, before: &store::Snapshot) {
        let gone = gone(before, &self.world.global.snapshot());
        if gone.is_empty() {
            return;
        }
        let expected = self.world.expected_on_global(zone);
        let name = &self.world.zones[zone].name;
        for gone in gone {
            assert_eq!(gone.label(labels::ZONE), Some(&**name), "{} is not zone {name}'s", gone.key);
            let exists = expected.iter().any(|synced| synced.key == gone.key);
            assert!(!exists, "{} exists in its zone and is deleted on global", gone.key);
        }
    }

    /// With all links up everything is where it should be, and one more connection changes nothing.
    fn converges(&mut self) {
        // What is held back needs a second connection that says the same.
        for _ in 0..3 {
            self.world.reconnect_all();
            self.world.settle();
        }
        for zone in 0..self.zones {
            let stored = self.world.zones[zone].plane.snapshot();
            same("in the zone", &self.world.expected_in_zone(zone), |key| stored.get(key).cloned());
            let theirs = stored.iter().filter(|it| it.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL));
            assert_eq!(theirs.count(), self.world.expected_in_zone(zone).len(), "of global's in the zone");
            let stored = self.world.global.snapshot();
            same("on global", &self.world.expected_on_global(zone), |key| stored.get(key).cloned());
            let name = &self.world.zones[zone].name;
            let theirs = stored.iter().filter(|resource| resource.label(labels::ZONE) == Some(&**name));
            assert_eq!(theirs.count(), self.world.expected_on_global(zone).len(), "of the zone's on global");
        }
        let revisions = |world: &World| -> Vec<u64> {
            let zones = world.zones.iter().map(|member| member.plane.snapshot().revision());
            zones.chain([world.global.snapshot().revision()]).collect()
        };
        let before = revisions(&self.world);
        self.world.reconnect_all();
        self.world.settle();
        assert_eq!(revisions(&self.world), before, "nothing was different, and something was written");
    }
}

fn gone<'s>(before: &'s store::Snapshot, after: &store::Snapshot) -> Vec<&'s Arc<Resource>> {
    if before.revision() == after.revision() {
        return Vec::new();
    }
    before.iter().filter(|resource| after.get(&resource.key).is_none()).collect()
}

fn own(plane: &Plane, kind: Kind, others: &str) -> Vec<Key> {
    let snapshot = plane.snapshot();
    let own = snapshot.of_kind(kind).filter(|resource| resource.label(labels::ORIGIN) != Some(others));
    own.map(|resource| resource.key.clone()).collect()
}

fn same(place: &str, expected: &[Synced], get: impl Fn(&Key) -> Option<Arc<Resource>>) {
    for synced in expected {
        let stored = get(&synced.key).unwrap_or_else(|| panic!("{} is missing {place}", synced.key));
        if synced.key.kind != Kind::Dataplane {
            assert_eq!(stored.spec, synced.spec, "{} {place}", synced.key);
        }
    }
}

#[test]
fn faults_of_links_and_processes_lose_no_resource_and_delete_none() {
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            for _ in 0..STEPS {
                simulation.step();
            }
            simulation.converges();
        });
        assert!(outcome.is_ok(), "run it again with KDS_SEED={seed}");
    }
}
