//! A store that fails on demand, resources, and a clock.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use reconcile::{Metrics, Moment};
use resources::{Key, Kind, Labels, Resource, Spec};
use serde_json::json;
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};

/// A store that cannot always be read.
#[derive(Default)]
pub struct Flaky {
    store: Memory,
    pub away: AtomicBool,
    pub snapshots: AtomicUsize,
}

impl Flaky {
    pub fn away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for Flaky {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("away".into()));
        }
        self.store.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.store.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

/// A clock that stands still until it is stepped.
#[derive(Clone)]
pub struct Clock(Arc<Mutex<Moment>>);

impl Clock {
    pub fn start() -> Clock {
        let second = Timestamp::from_second(1_000_000).unwrap();
        Clock(Arc::new(Mutex::new(Moment { wall: second, ..Moment::now() })))
    }

    pub fn now(&self) -> Moment {
        *self.0.lock().unwrap()
    }

    pub fn step(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = now.after(by);
    }

    /// Sets the wall clock, as an operator may.
    pub fn set_back(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        now.wall = now.wall.checked_sub(by).unwrap();
    }

    pub fn read(&self) -> impl Fn() -> Moment + Send + 'static {
        let clock = self.clone();
        move || clock.now()
    }
}

pub fn metrics() -> Metrics {
    Metrics::register(&runtime::metrics::Metrics::default())
}

pub fn mesh(name: &str) -> Key {
    Key::global(Kind::Mesh, name)
}

pub fn resource(key: Key) -> Resource {
    Resource {
        spec: Spec::from_json(key.kind, json!({}), &mut Vec::new()).unwrap(),
        key,
        labels: Labels::new(),
        created: Timestamp::UNIX_EPOCH,
        modified: Timestamp::UNIX_EPOCH,
        version: 0,
        owner: None,
        status: None,
    }
}

pub fn create(key: Key) -> Write {
    Write::Create(resource(key))
}

pub fn delete(key: Key) -> Write {
    Write::Delete { key, expected: None }
}
