//! What the global control plane knows about its zones: which are connected, since when, and what is wrong.
//! A zone knows the same about itself.
//!
//! A Zone is created when it connects for the first time. Its ZoneInsight is written by one task, connects
//! and disconnects at once and the rest in intervals. A zone that is gone is *unknown* at first; when it
//! stays away its ingresses are
//! withdrawn from other zones, and they come back when it has been there for a while.

mod insight;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kds::{
    guard::{Guard, Threshold},
    quota::Quota,
};
use resources::{
    Draft, Key, Kind, Spec,
    kinds::{
        zone::Zone,
        zone_insight::{KdsSubscription, Presence, ZoneInsight},
    },
};
use runtime::Shutdown;
use store::{Registrar, Snapshot};
use tokio::{sync::Notify, time::Instant};
use tonic::Status;

use self::insight::{State, Waits};
pub use self::insight::{Stream, SyncProblemKind};
use super::{node::Introduction, receiving::Held};
use crate::insights;

/// How many streams of one sort a zone may have open: it has one, and old ones whose end is not noticed yet.
const STREAMS: usize = 8;
/// How long a zone must be back before others are sent to it again.
const BACK: Duration = Duration::from_secs(10);
/// How often a record is written again after another writer changed it in between.
const ATTEMPTS: usize = 10;
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long a zone may give no sign of life to the instance it is connected to, which writes it down at every flush.
const SILENCE: Duration = Duration::from_secs(120);
/// How often that is looked at.
const LOOKS: Duration = Duration::from_secs(30);
/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What depends on the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    pub instance_id: String,
    /// Where other instances reach this one; empty where there are none.
    pub address: String,
    /// How many zones are made by themselves.
    pub most: usize,
    /// How many resources of a kind a zone may have; `None` has no end.
    pub most_of_kind: Option<usize>,
    /// How long it may take until an insight says what was sent and acknowledged.
    pub flush: Duration,
    /// How long a zone may be away before its ingresses are withdrawn; zero means forever.
    pub withdraw_after: Duration,
    pub threshold: Threshold,
    /// Whether no other control plane serves zones from this store.
    pub alone: bool,
}

impl Settings {
    fn nothing_held(&self) -> Held {
        let quota = self.most_of_kind.map(Quota::of).unwrap_or_default();
        Held::new(Guard::new(self.threshold).with(quota))
    }
}

/// All zones.
pub struct Zones {
    registrar: Arc<Registrar>,
    settings: Settings,
    states: Mutex<BTreeMap<String, State>>,
    /// Since when any zone is connected.
    in_touch_since: Mutex<Option<Timestamp>>,
    changed: Notify,
}

impl Zones {
    /// Starts with what is stored. Connections of a predecessor are over.
    pub fn start(
        registrar: Arc<Registrar>,
        settings: Settings,
        shutdown: &Shutdown,
    ) -> Result<Arc<Zones>, store::Error> {
        let snapshot = registrar.store().snapshot()?;
        let now = Timestamp::now();
        let states = snapshot.of_kind(Kind::ZoneInsight).filter_map(|stored| {
            let insight = stored.spec.get::<ZoneInsight>()?;
            let held = settings.nothing_held();
            Some((stored.name().to_owned(), State::of(insight, held, settings.alone, now)))
        });
        let states = Mutex::new(states.collect());
        let zones = Arc::new(Zones {
            registrar,
            settings,
            states,
            in_touch_since: Mutex::default(),
            changed: Notify::new(),
        });
        let (running, ending) = (zones.clone(), shutdown.clone());
        shutdown.spawn(async move { running.write_until(&ending).await });
        Ok(zones)
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn instance_id(&self) -> &str {
        &self.settings.instance_id
    }

    /// Makes the zone, if this is its first call.
    pub async fn enter(&self, zone: &str) -> Result<(), Status> {
        let unavailable = |error: store::Error| Status::unavailable(error.to_string());
        let snapshot = self.registrar.store().snapshot().map_err(unavailable)?;
        let key = Key::global(Kind::Zone, zone);
        if snapshot.get(&key).is_none() {
            let (most, there) = (self.settings.most, snapshot.count(Kind::Zone, None));
            if there >= most {
                return Err(Status::resource_exhausted(format!(
                    "there are {there} zones, and at most {most} are created automatically: create the Zone \
                     {zone:?} on the global control plane, or raise multizone.global.kds.maxZones"
                )));
            }
            let draft = Draft::new(key, Zone { enabled: Some(true) }.into());
            let made = self.registrar.ensure(vec![draft]).await;
            let made = made
                .map_err(|error| Status::unavailable(format!("cannot create the Zone {zone:?}: {error}")))?;
            // A zone makes several calls at once.
            if !made.is_empty() {
                tracing::info!(zone, "zone connected for the first time");
            }
        }
        self.states().entry(zone.to_owned()).or_insert_with(|| self.new_state());
        Ok(())
    }

    /// Of a zone that nothing is known about yet.
    fn new_state(&self) -> State {
        State::new(self.settings.nothing_held())
    }

    /// What is held back of a zone's deletions.
    pub fn held(&self, zone: &str) -> Arc<Held> {
        self.states().entry(zone.to_owned()).or_insert_with(|| self.new_state()).held()
    }

    /// Reports what is wrong with a kind of a zone, whether or not the zone has ever been connected to this process.
    pub fn report(&self, zone: &str, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.states().entry(zone.to_owned()).or_insert_with(|| self.new_state());
        self.problem(zone, way, kind, reason);
    }

    /// A stream of the zone has begun; it is over when the visit is dropped.
    pub fn visit(self: &Arc<Self>, zone: &str, stream: Stream, authenticated: bool) -> Result<Visit, Status> {
        let open = self.states().get(zone).map_or(0, |state| state.open(stream));
        if open >= STREAMS {
            return Err(Status::resource_exhausted(format!(
                "zone {zone:?} has {open} such streams open already"
            )));
        }
        let id = uuid::Uuid::new_v4().to_string();
        self.update(zone, |state| {
            state.begin(stream, &id, &self.settings.instance_id, authenticated, Timestamp::now());
            state.is_asked_at(stream, &self.settings.address);
        });
        Ok(Visit { zones: self.clone(), zone: zone.to_owned(), stream, id })
    }

    /// Whether a zone is connected, and since when that is so.
    pub fn presence(&self, zone: &str) -> (Presence, Option<Timestamp>) {
        self.states().get(zone).map_or((Presence::Offline, None), State::presence)
    }

    /// The same of all zones.
    pub fn present(&self) -> Vec<(Presence, Option<Timestamp>)> {
        self.states().values().map(State::presence).collect()
    }

    /// The zone could not be connected, or is no longer.
    pub fn is_away(&self, zone: &str, reason: &str) {
        self.update(zone, |state| state.away(reason, Timestamp::now()));
    }

    /// What is wrong with a kind, or that nothing is.
    pub fn problem(&self, zone: &str, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.update(zone, |state| state.problem(way, kind, reason));
    }

    /// The zone does not get resources of a kind that it does not have, or there are none any more.
    pub fn unreceived(&self, zone: &str, kind: &'static str, reason: Option<&str>) {
        self.update(zone, |state| state.problem_of(SyncProblemKind::Unreceived, kind, reason));
    }

    /// The zone is alive.
    pub fn is_alive(&self, zone: &str) {
        self.of(zone, |state| state.alive(Timestamp::now()));
    }

    fn update(&self, zone: &str, change: impl FnOnce(&mut State)) {
        self.of(zone, change);
        self.changed.notify_one();
    }

    fn of(&self, zone: &str, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.states().get_mut(zone) {
            change(state);
        }
    }

    async fn write_until(&self, shutdown: &Shutdown) {
        let mut looked = Instant::now();
        loop {
            if !self.settings.alone && looked.elapsed() >= LOOKS {
                looked = Instant::now();
                self.notice_the_lost(Timestamp::now());
            }
            let next = self.write_due().await;
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.changed.notified() => {}
                () = shutdown.begun() => break,
            }
        }
        self.states().values_mut().for_each(|state| state.end_all(Timestamp::now()));
        self.write_due().await;
    }

    /// Zones that were connected to an instance which has died since: no other instance says that they are away.
    fn notice_the_lost(&self, now: Timestamp) {
        let Ok(snapshot) = self.registrar.store().snapshot() else { return };
        for stored in snapshot.of_kind(Kind::ZoneInsight) {
            let Some(insight) = stored.spec.get::<ZoneInsight>() else { continue };
            let ours =
                |subscription: &KdsSubscription| subscription.global_instance_id == self.settings.instance_id;
            let elsewhere = insight.subscriptions.iter().any(|it| it.is_online() && !ours(it));
            let Some(health) = insight.health().filter(|_| elsewhere) else { continue };
            let silence = Duration::try_from(now.duration_since(health)).unwrap_or_default();
            if silence >= SILENCE.max(3 * self.settings.flush) {
                let mut states = self.states();
                let state = states.entry(stored.name().to_owned()).or_insert_with(|| self.new_state());
                if state.open(Stream::GlobalToZone) == 0 {
                    state.is_lost(health);
                }
            }
        }
    }

    /// Writes what must be written; says when to look again.
    async fn write_due(&self) -> Instant {
        let now = Timestamp::now();
        let waits = Waits {
            withdraw_after: self.settings.withdraw_after,
            back: BACK,
            in_touch_since: self.in_touch_since(now),
        };
        let (due, next) = {
            let mut states = self.states();
            states.values_mut().for_each(|state| state.judge_absence(now, &waits));
            let due: Vec<String> = states
                .iter()
                .filter(|(_, state)| state.is_due(now, self.settings.flush))
                .map(|(zone, _)| zone.clone())
                .collect();
            let pauses = states.values().filter_map(|state| state.next(now, self.settings.flush, &waits));
            (due, pauses.min().unwrap_or(Duration::from_secs(60)))
        };
        for zone in due {
            if let Err(error) = self.write(&zone).await {
                tracing::warn!(zone, %error, "cannot store the insight of a zone yet");
                return Instant::now() + PAUSE;
            }
        }
        let most = if self.settings.alone { next } else { next.min(LOOKS) };
        Instant::now() + most.max(Duration::from_millis(10))
    }

    /// Since when any zone is connected: to this control plane, or to another one on the same store.
    fn in_touch_since(&self, now: Timestamp) -> Option<Timestamp> {
        let here = self.states().values().any(State::is_online);
        let elsewhere = || {
            let snapshot = self.registrar.store().snapshot().ok()?;
            let mut insights =
                snapshot.of_kind(Kind::ZoneInsight).filter_map(|stored| stored.spec.get::<ZoneInsight>());
            Some(insights.any(ZoneInsight::is_online))
        };
        let in_touch = here || !self.settings.alone && elsewhere().unwrap_or(false);
        let mut since = self.in_touch_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = in_touch.then(|| since.unwrap_or(now));
        *since
    }

    async fn write(&self, zone: &str) -> Result<(), store::Error> {
        let store = self.registrar.store();
        let mut snapshot = store.snapshot()?;
        for _ in 0..ATTEMPTS {
            let Some((insight, write)) = self.insight(zone, &snapshot) else { return Ok(()) };
            let written = match write {
                Some(write) => store.write(vec![write]).await.map(drop),
                None => Ok(()),
            };
            match written {
                Ok(()) => {
                    self.of(zone, |state| state.is_stored(&insight));
                    return Ok(());
                }
                // The Zone was deleted: so is what is known about it.
                Err(store::Error::OwnerMissing { .. }) => {
                    self.states().remove(zone);
                    return Ok(());
                }
                Err(error) if error.is_outdated() => match store.caught_up(CATCH_UP).await {
                    Ok(newer) => snapshot = newer,
                    Err(error) => return self.postponed(zone, error),
                },
                Err(error) => return self.postponed(zone, error),
            }
        }
        self.of(zone, State::is_not_stored);
        Ok(())
    }

    fn postponed(&self, zone: &str, error: store::Error) -> Result<(), store::Error> {
        self.of(zone, State::is_not_stored);
        Err(error)
    }

    /// What is to be stored, and how, if it is not.
    fn insight(&self, zone: &str, snapshot: &Snapshot) -> Option<(ZoneInsight, Option<store::Write>)> {
        let (key, owner) = (Key::global(Kind::ZoneInsight, zone), Key::global(Kind::Zone, zone));
        let stored = snapshot.get(&key).and_then(|stored| stored.spec.get::<ZoneInsight>()).cloned();
        let mut states = self.states();
        let (stored, instance) = (stored.unwrap_or_default(), &self.settings.instance_id);
        let insight = states.get_mut(zone)?.written(stored, instance, Timestamp::now());
        let write = insights::write(snapshot, &key, &owner, Spec::from(insight.clone()));
        Some((insight, write))
    }
}

/// One stream of a zone, from its beginning to its end.
pub struct Visit {
    zones: Arc<Zones>,
    zone: String,
    stream: Stream,
    id: String,
}

impl Visit {
    pub fn introduced(&self, introduction: Introduction) {
        self.zones.update(&self.zone, |state| state.introduce(&self.id, introduction));
    }

    pub fn subscription(&self, change: impl FnOnce(&mut KdsSubscription)) {
        self.zones.update(&self.zone, |state| state.change(&self.id, change));
    }

    /// What is wrong with a kind, or that nothing is.
    pub fn problem(&self, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.zones.problem(&self.zone, way, kind, reason);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.zones.update(&self.zone, |state| state.end(self.stream, &self.id, Timestamp::now()));
    }
}
