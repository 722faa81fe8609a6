//! One random history on two stores.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Status};

use super::{Fixture, everything, mesh_of, resource};
use crate::{Changes, Committed, Dirty, Error, Memory, Snapshot, Store, Write};

const KINDS: [Kind; 5] = [Kind::Mesh, Kind::Secret, Kind::GlobalSecret, Kind::Config, Kind::MeshService];
const MESHES: [&str; 2] = ["default", "other"];
const NAMES: [&str; 5] = ["a", "b", "c", "a-b", "é"];

/// The store does what the simplest store does, over several histories in a row.
pub async fn histories_match_memory(fixture: Fixture) {
    let memory = Memory::default();
    for seed in 0..4 {
        same_history(&memory, fixture.store.as_ref(), seed, 60).await;
    }
}

/// Applies the same `steps` random batches to both stores, which must hold the same to begin with, some
/// of them as independent writes (one by one to the first store, all at once to the second). Compares
/// every outcome, snapshot and report; panics with seed and step at the first difference.
pub async fn same_history(a: &dyn Store, b: &dyn Store, seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut eager = Pair::subscribe(a, b);
    let mut lazy = Pair::subscribe(a, b);
    for step in 0..steps {
        let batch = random.batch(&a.snapshot().unwrap());
        let each = random.one_in(3);
        let at = format!("seed {seed}, step {step}, {} {batch:?}", if each { "each of" } else { "batch" });
        let (left, right) = if each {
            (alone(a, &batch).await, b.write_each(batch).await)
        } else {
            (vec![a.write(batch.clone()).await], vec![b.write(batch).await])
        };
        assert_eq!(comparable(left), comparable(right), "outcomes at {at}");
        assert_eq!(a.snapshot().unwrap().revision(), b.snapshot().unwrap().revision(), "revision at {at}");
        assert_eq!(everything(a), everything(b), "contents at {at}");
        eager.compare(&at).await;
        if random.one_in(9) {
            lazy.compare(&at).await;
        }
    }
    lazy.compare(&format!("seed {seed}, the end")).await;
}

/// Definition of [`Store::write_each`]: makes each write on its own.
async fn alone(store: &dyn Store, writes: &[Write]) -> Vec<Result<Committed, Error>> {
    let mut outcomes = Vec::new();
    for write in writes {
        outcomes.push(store.write(vec![write.clone()]).await);
    }
    outcomes
}

/// Outcomes with their changes in the order of keys.
fn comparable(mut outcomes: Vec<Result<Committed, Error>>) -> Vec<Result<Committed, Error>> {
    for committed in outcomes.iter_mut().flatten() {
        committed.changed.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    outcomes
}

/// A subscription to each store.
struct Pair(Changes, Changes);

impl Pair {
    fn subscribe(a: &dyn Store, b: &dyn Store) -> Pair {
        Pair(a.changes(), b.changes())
    }

    /// Both report the same keys. The second store may need a moment to hear about its own write.
    async fn compare(&mut self, at: &str) {
        let expected = drain(&mut self.0);
        let mut reported = drain(&mut self.1);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !reported.is_superset(&expected) && Instant::now() < deadline {
            tokio::task::yield_now().await;
            reported.extend(drain(&mut self.1));
        }
        assert_eq!(expected, reported, "reports at {at}");
    }
}

fn drain(changes: &mut Changes) -> BTreeSet<Key> {
    let mut all = BTreeSet::new();
    while let Some(dirty) = changes.try_next() {
        match dirty {
            Dirty::Keys(keys) => all.extend(keys),
            Dirty::Everything => panic!("nothing was forgotten, yet everything is dirty"),
        }
    }
    all
}

/// SplitMix64: the same seed gives the same history everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn batch(&mut self, now: &Snapshot) -> Vec<Write> {
        let steps = if self.one_in(3) { 1 + self.below(5) } else { 1 };
        (0..steps).map(|_| self.write(now)).collect()
    }

    fn write(&mut self, now: &Snapshot) -> Write {
        let key = self.key();
        let found = now.get(&key).map_or(0, |r| r.version);
        let expected = if self.one_in(5) { found.saturating_sub(1) } else { found };
        match self.below(11) {
            0..=3 => Write::Create(self.resource(key)),
            4..=6 => Write::Update { resource: self.resource(key), expected },
            7 => Write::Delete { key, expected: (!self.one_in(3)).then_some(expected) },
            8 => {
                let status = self.resource(key.clone()).status.unwrap_or_else(|| Status::empty(key.kind));
                Write::Status { key, status, expected: (!self.one_in(3)).then_some(expected) }
            }
            9 => Write::DeleteUnlessOwner { key, expected: Some(expected), of: self.pick(&KINDS) },
            _ => {
                let mut resource = self.resource(key);
                resource.version = now.revision() + self.next() % 3;
                Write::Restore(resource)
            }
        }
    }

    fn key(&mut self) -> Key {
        let kind = self.pick(&KINDS);
        Key::new(kind, mesh_of(kind, self.pick(&MESHES)), self.pick(&NAMES))
    }

    fn resource(&mut self, key: Key) -> Resource {
        let tag = format!("{:x}", self.next());
        let mut resource = resource(key.kind, &key.mesh, &key.name, &tag);
        // Any moment of the last and the next decades, to the nanosecond.
        let seconds = i64::try_from(self.next() % 4_000_000_000).unwrap();
        let nanoseconds = i32::try_from(self.next() % 1_000_000_000).unwrap();
        resource.modified = Timestamp::new(seconds, nanoseconds).unwrap();
        resource.owner = self.one_in(2).then(|| self.key());
        if self.one_in(2) {
            resource.status = None;
        }
        resource
    }
}
