//! A reconciler that counts Dataplanes, and what its driver does for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reconcile::{Driver, Metrics, Next, Pass, ReconcileFailure, Reconciler, Runner, Wake};
use resources::{Key, Kind, Resource};
use runtime::Shutdown;
use store::{Dirty, Error, Memory, Snapshot, Store, Write};

use crate::support::{Clock, Flaky, create, mesh, metrics};

const SECOND: Duration = Duration::from_secs(1);

/// Labels each mesh with the number of its Dataplanes.
#[derive(Clone, Default)]
struct Count {
    /// The meshes that were looked at, in order.
    looks: Arc<Mutex<Vec<String>>>,
    applied: Arc<Mutex<Vec<Dirty>>>,
    /// Fails so many times.
    failures: Arc<AtomicUsize>,
    /// Another writer comes first so many times.
    races: Arc<AtomicUsize>,
    rest: Duration,
    wake: Wake,
    pushed: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

impl Count {
    fn looks(&self) -> Vec<String> {
        std::mem::take(&mut self.looks.lock().unwrap())
    }
}

fn one_less(of: &AtomicUsize) -> bool {
    of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

fn labelled(stored: &Resource, name: &str, value: &str) -> Write {
    let mut resource = stored.clone();
    resource.labels.insert(name.to_owned(), value.to_owned());
    Write::Update { resource, expected: stored.version }
}

impl Reconciler for Count {
    const NAME: &'static str = "count";
    const WORK: &'static str = "count Dataplanes";
    const FOLLOWS: &'static [Kind] = &[Kind::Mesh, Kind::Dataplane];
    const FOLLOWS_CLOCK: bool = true;
    const FINISHES: bool = true;
    type Unit = Arc<str>;

    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        self.applied.lock().unwrap().push(dirty.clone());
        match dirty {
            Dirty::Everything => snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect(),
            Dirty::Keys(keys) => keys
                .iter()
                .map(|key| if key.kind == Kind::Mesh { key.name.clone() } else { key.mesh.clone() })
                .collect(),
        }
    }

    fn wake(&self) -> Wake {
        self.wake.clone()
    }

    fn woken(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.pushed.lock().unwrap())
    }

    async fn reconcile(&mut self, unit: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        self.looks.lock().unwrap().push(unit.to_string());
        let Some(stored) = pass.snapshot.get(&mesh(unit)) else { return Ok(Next::on_change()) };
        if one_less(&self.failures) {
            return Err(ReconcileFailure::Other("no disk".to_owned()));
        }
        if one_less(&self.races) {
            pass.write(labelled(stored, "theirs", "1")).await?;
        }
        let count = pass.snapshot.in_mesh(Kind::Dataplane, unit).count().to_string();
        if stored.label("count") != Some(&count) {
            pass.write(labelled(stored, "count", &count)).await?;
        }
        Ok(Next::on_change().after(self.rest))
    }

    fn left(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.pushed.lock().unwrap())
    }
}

fn dataplane(mesh: &str, name: &str) -> Write {
    create(Key::new(Kind::Dataplane, mesh, name))
}

async fn settle(driver: &mut Driver<Count>, clock: &Clock) {
    // What it writes comes back as a change, which only the next step sees.
    for _ in 0..2 {
        while driver.step().await.is_some_and(|at| at <= clock.now().instant) {}
    }
}

fn counts(store: &dyn Store) -> BTreeMap<String, String> {
    let snapshot = store.snapshot().unwrap();
    let label = |mesh: &Arc<Resource>| mesh.label("count").unwrap_or("none").to_owned();
    snapshot.of_kind(Kind::Mesh).map(|mesh| (mesh.name().to_owned(), label(mesh))).collect()
}

fn counted<const N: usize>(counts: [(&str, &str); N]) -> BTreeMap<String, String> {
    counts.map(|(mesh, count)| (mesh.to_owned(), count.to_owned())).into()
}

#[tokio::test]
async fn everything_is_looked_at_first_and_then_only_what_a_change_concerns() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a")), create(mesh("b")), dataplane("a", "one")]).await.unwrap();
    let clock = Clock::start();
    let count = Count::default();
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref()), counted([("a", "1"), ("b", "0")]));
    count.looks();
    // However many changes there are: one look.
    let many = (0..50).map(|i| dataplane("b", &format!("dp-{i}"))).collect();
    store.write(many).await.unwrap();
    driver.step().await;
    assert_eq!(count.looks(), ["b"]);
    assert_eq!(counts(store.as_ref()), counted([("a", "1"), ("b", "50")]));
    settle(&mut driver, &clock).await;
    assert_eq!(count.looks(), ["b"], "its own write comes back, and nothing is left to do");
    let revision = store.snapshot().unwrap().revision();
    settle(&mut driver, &clock).await;
    assert_eq!(store.snapshot().unwrap().revision(), revision);
}

#[tokio::test]
async fn kinds_that_are_not_followed_lead_to_nothing() {
    let store = Arc::new(Flaky::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let clock = Clock::start();
    let count = Count::default();
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    settle(&mut driver, &clock).await;
    count.looks();
    let read = store.snapshots.load(Ordering::Relaxed);
    let applied = count.applied.lock().unwrap().len();
    store.write(vec![create(Key::new(Kind::MeshTimeout, "a", "slow"))]).await.unwrap();
    settle(&mut driver, &clock).await;
    assert_eq!(count.looks(), Vec::<String>::new());
    assert_eq!(count.applied.lock().unwrap().len(), applied);
    assert_eq!(store.snapshots.load(Ordering::Relaxed), read);
}

#[tokio::test]
async fn a_failed_unit_is_repeated_after_a_delay_and_delays_no_other() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a")), create(mesh("b"))]).await.unwrap();
    let clock = Clock::start();
    let count = Count::default();
    count.failures.store(2, Ordering::Relaxed);
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    // The first two looks fail: each mesh once.
    settle(&mut driver, &clock).await;
    assert_eq!(count.looks(), ["a", "b"]);
    assert_eq!(driver.backlog(), 2);
    count.failures.store(1, Ordering::Relaxed);
    clock.step(SECOND);
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref()), counted([("a", "none"), ("b", "0")]));
    clock.step(SECOND);
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref())["a"], "none", "a second failure waits longer");
    clock.step(SECOND);
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref())["a"], "0");
    assert_eq!(driver.backlog(), 0);
}

#[tokio::test]
async fn a_unit_is_looked_at_again_when_another_writer_was_faster() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let clock = Clock::start();
    let count = Count::default();
    count.races.store(1, Ordering::Relaxed);
    let page = runtime::metrics::Metrics::default();
    let mut driver = Driver::new(count.clone(), store.clone(), &Metrics::register(&page), clock.read());
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref())["a"], "none");
    clock.step(SECOND);
    settle(&mut driver, &clock).await;
    let stored = store.snapshot().unwrap().get(&mesh("a")).unwrap().clone();
    assert_eq!((stored.label("count"), stored.label("theirs")), (Some("0"), Some("1")), "both were written");
    assert!(page.encode().contains("reconciler_errors_total{reconciler=\"count\"} 0\n"));
}

#[tokio::test]
async fn two_reconcilers_on_one_store_come_to_one_result() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let clock = Clock::start();
    let mut drivers =
        [(); 2].map(|()| Driver::new(Count::default(), store.clone(), &metrics(), clock.read()));
    for round in 0..20 {
        store.write(vec![dataplane("a", &format!("dp-{round}"))]).await.unwrap();
        for driver in &mut drivers {
            settle(driver, &clock).await;
        }
        clock.step(SECOND);
    }
    assert_eq!(counts(store.as_ref()), counted([("a", "20")]));
    // The mesh, twenty Dataplanes, and one write for each.
    assert_eq!(store.snapshot().unwrap().revision(), 41);
}

#[tokio::test]
async fn a_unit_rests_while_changes_go_on() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let clock = Clock::start();
    let count = Count { rest: SECOND, ..Count::default() };
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    settle(&mut driver, &clock).await;
    count.looks();
    for tenth in 0..20 {
        store.write(vec![dataplane("a", &format!("dp-{tenth}"))]).await.unwrap();
        clock.step(SECOND / 10);
        settle(&mut driver, &clock).await;
    }
    assert_eq!(count.looks().len(), 2);
    assert_eq!(counts(store.as_ref())["a"], "20");
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_read_as_a_whole_later() {
    let store = Arc::new(Flaky::default());
    let clock = Clock::start();
    let count = Count::default();
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    settle(&mut driver, &clock).await;
    store.away(true);
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let again = driver.step().await.unwrap();
    assert_eq!(again, clock.now().instant + SECOND);
    assert_eq!(driver.backlog(), 1);
    store.away(false);
    clock.step(SECOND);
    settle(&mut driver, &clock).await;
    assert_eq!(counts(store.as_ref())["a"], "0");
    let applied = count.applied.lock().unwrap();
    assert_eq!(applied.iter().filter(|dirty| **dirty == Dirty::Everything).count(), 2);
}

#[tokio::test]
async fn a_clock_that_is_set_back_leads_to_a_look_at_everything() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let clock = Clock::start();
    let count = Count::default();
    let mut driver = Driver::new(count.clone(), store.clone(), &metrics(), clock.read());
    settle(&mut driver, &clock).await;
    settle(&mut driver, &clock).await;
    count.looks();
    clock.set_back(2 * SECOND);
    settle(&mut driver, &clock).await;
    assert_eq!(count.looks(), Vec::<String>::new(), "clocks are corrected by seconds");
    clock.set_back(3600 * SECOND);
    let look = driver.step().await.unwrap();
    assert_eq!(count.looks(), ["a"]);
    assert!(look <= clock.now().instant + 30 * SECOND, "it is noticed soon");
}

#[tokio::test(start_paused = true)]
async fn a_running_reconciler_follows_changes_and_wakes_and_writes_what_is_left() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    let shutdown = Shutdown::default();
    let page = runtime::metrics::Metrics::default();
    let count = Count::default();
    Runner::new(store.clone(), Metrics::register(&page), &shutdown).run(count.clone());
    let is = async |expected: &str| {
        let mut changes = store.changes();
        let there = async {
            while counts(store.as_ref())["a"] != expected {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(60 * SECOND, there).await.unwrap();
    };
    is("0").await;
    count.failures.store(3, Ordering::Relaxed);
    store.write(vec![dataplane("a", "one")]).await.unwrap();
    is("1").await;
    tokio::time::sleep(SECOND).await;
    let text = page.encode();
    assert!(text.contains("reconciler_errors_total{reconciler=\"count\"} 3\n"), "{text}");
    assert!(text.contains("reconciler_backlog{reconciler=\"count\"} 0"), "{text}");
    assert!(text.contains("reconciler_lag_seconds{reconciler=\"count\"} 0"), "{text}");
    let runs =
        text.lines().find_map(|line| line.strip_prefix("reconciler_runs_total{reconciler=\"count\"} "));
    let measured = text
        .lines()
        .find_map(|line| line.strip_prefix("reconciler_duration_seconds_count{reconciler=\"count\"} "));
    assert!(runs.is_some() && runs == measured, "{text}");

    count.looks();
    count.pushed.lock().unwrap().insert("a".into());
    count.wake.wake();
    tokio::time::sleep(SECOND).await;
    assert_eq!(count.looks(), ["a"]);
    count.pushed.lock().unwrap().insert("a".into());
    assert!(shutdown.finish(60 * SECOND).await);
    assert_eq!(count.looks(), ["a"], "what is left is written");
}

#[tokio::test(start_paused = true)]
async fn the_lag_of_a_reconciler_that_cannot_write_grows() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let shutdown = Shutdown::default();
    let page = runtime::metrics::Metrics::default();
    let count = Count::default();
    count.failures.store(usize::MAX, Ordering::Relaxed);
    Runner::new(store.clone(), Metrics::register(&page), &shutdown).run(count.clone());
    store.write(vec![create(mesh("a"))]).await.unwrap();
    tokio::time::sleep(90 * SECOND).await;
    let text = page.encode();
    let lag =
        text.lines().find_map(|line| line.strip_prefix("reconciler_lag_seconds{reconciler=\"count\"} "));
    let lag: f64 = lag.unwrap().parse().unwrap();
    assert!((89.0..=90.0).contains(&lag), "{text}");
    assert!(text.contains("reconciler_backlog{reconciler=\"count\"} 1"), "{text}");
    shutdown.begin();
}

#[test]
fn an_outdated_store_is_told_from_one_that_fails() {
    assert!(ReconcileFailure::from(Error::NotFound(mesh("a"))).is_outdated());
    assert!(!ReconcileFailure::from(Error::Unavailable("away".to_owned())).is_outdated());
    assert!(!ReconcileFailure::Other("no".to_owned()).is_outdated());
}
