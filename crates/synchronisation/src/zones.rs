//! State of the zones as the global control plane knows it: connected ones, since when, and their problems. A zone
//! knows the same about itself.
//!
//! A Zone is created when it connects for the first time. Its ZoneInsight is written by one task, connects and
//! disconnects at once and the rest in intervals. A zone that is gone is *unknown* at first; when it stays away its
//! ingresses are withdrawn from other zones, and they come back when it has been there for a while.

mod insight;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use admission::Registrar;
use contract::events::EventKind;
use events::{Events, Occurrence};
use jiff::Timestamp;
use kds::{
    guard::{Guard, Threshold},
    quota::Quota,
};
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner, Wake, Whole};
use resources::{
    Draft, Key, Kind, Spec,
    kinds::{
        zone::Zone,
        zone_insight::{KdsSubscription, Presence, ZoneInsight},
    },
};
use runtime::Shutdown;
use store::{Dirty, Snapshot};
use tonic::Status;

use self::insight::{AbsenceDelays, ZoneState};
pub use self::insight::{SyncProblemKind, ZoneStream};
use super::{
    config::{GlobalKds, count, time},
    node::Introduction,
    receiving::DeletionGuard,
};

/// Number of streams of one sort that a zone may have open: it has one, and old ones whose end is not noticed yet.
const STREAMS: usize = 8;
/// Time for which a zone must be back before others are sent to it again.
const BACK: Duration = Duration::from_secs(10);
/// Time for which a zone may give no sign of life to the instance it is connected to, which writes it down at every
/// flush.
const SILENCE: Duration = Duration::from_secs(120);
/// Interval of looking at that.
const LOOKS: Duration = Duration::from_secs(30);

/// Longest delay until a zone shows another reason why it is not connected.
const OWN_FLUSH: Duration = Duration::from_secs(10);

/// Settings that depend on the configuration.
#[derive(Debug, Clone)]
pub struct ZoneSettings {
    pub instance_id: String,
    /// Address at which other instances reach this one; empty where there are none.
    pub address: String,
    /// Largest number of zones that are made by themselves.
    pub most: usize,
    /// Largest number of resources of a kind that a zone may have; `None` has no end.
    pub most_of_kind: Option<usize>,
    /// Longest time until an insight says what was sent and acknowledged.
    pub flush: Duration,
    /// Time for which a zone may be away before its ingresses are withdrawn; zero means forever.
    pub withdraw_after: Duration,
    pub threshold: Threshold,
    /// True if no other control plane serves zones from this store.
    pub alone: bool,
}

impl ZoneSettings {
    /// For all zones, on a global control plane that other instances reach at `address`. It is `alone` if no other serves
    /// zones from its store.
    pub fn of_zones(config: &GlobalKds, instance_id: &str, address: String, alone: bool) -> ZoneSettings {
        ZoneSettings {
            instance_id: instance_id.to_owned(),
            address,
            most: count(config.max_zones),
            most_of_kind: Some(count(config.max_resources_per_kind)),
            flush: time(config.zone_insight_flush_interval),
            withdraw_after: time(config.zone_withdraw_after),
            threshold: Threshold { percent: config.hold_back_deletions },
            alone,
        }
    }

    /// For a zone's record of its own connection. Nothing is withdrawn for it.
    pub fn of_own_zone(alone: bool) -> ZoneSettings {
        ZoneSettings {
            // The global control plane does not identify itself.
            instance_id: String::new(),
            address: String::new(),
            most: usize::MAX,
            most_of_kind: None,
            flush: OWN_FLUSH,
            withdraw_after: Duration::ZERO,
            threshold: Threshold::default(),
            alone,
        }
    }

    fn nothing_held(&self) -> DeletionGuard {
        let quota = self.most_of_kind.map(Quota::of).unwrap_or_default();
        DeletionGuard::new(Guard::new(self.threshold).with(quota))
    }
}

/// All zones.
pub struct ZoneRegistry {
    registrar: Arc<Registrar>,
    settings: ZoneSettings,
    states: Mutex<BTreeMap<String, ZoneState>>,
    /// Since when any zone is connected.
    in_touch_since: Mutex<Option<Timestamp>>,
    changed: Wake,
    events: Events,
    shutdown: Shutdown,
}

impl ZoneRegistry {
    /// Starts with what is stored. Connections of a predecessor are over.
    pub fn start(
        registrar: Arc<Registrar>,
        settings: ZoneSettings,
        events: Events,
        runner: &Runner,
    ) -> Result<Arc<ZoneRegistry>, store::Error> {
        let snapshot = registrar.store().snapshot()?;
        let now = Timestamp::now();
        let states = snapshot.of_kind(Kind::ZoneInsight).filter_map(|stored| {
            let insight = stored.spec.get::<ZoneInsight>()?;
            let held = settings.nothing_held();
            Some((stored.name().to_owned(), ZoneState::of(insight, held, settings.alone, now)))
        });
        let states = Mutex::new(states.collect());
        let zones = Arc::new(ZoneRegistry {
            registrar,
            settings,
            states,
            in_touch_since: Mutex::default(),
            changed: Wake::default(),
            events,
            shutdown: runner.shutdown().clone(),
        });
        zones.changed.wake();
        runner.run(Writer { zones: zones.clone(), looked: None, has_ended: false });
        Ok(zones)
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<String, ZoneState>> {
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
            let most = self.settings.most;
            let there = snapshot.count(Kind::Zone, None);
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
    fn new_state(&self) -> ZoneState {
        ZoneState::new(self.settings.nothing_held())
    }

    /// Deletions of a zone that are held back.
    pub fn held(&self, zone: &str) -> Arc<DeletionGuard> {
        self.states().entry(zone.to_owned()).or_insert_with(|| self.new_state()).held()
    }

    /// Reports what is wrong with a kind of a zone, whether or not the zone has ever been connected to this process.
    pub fn report(&self, zone: &str, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.states().entry(zone.to_owned()).or_insert_with(|| self.new_state());
        self.problem(zone, way, kind, reason);
    }

    /// A stream of the zone has begun; it is over when the visit is dropped.
    pub fn visit(
        self: &Arc<Self>,
        zone: &str,
        stream: ZoneStream,
        authenticated: bool,
    ) -> Result<StreamVisit, Status> {
        let open = self.states().get(zone).map_or(0, |state| state.open(stream));
        if open >= STREAMS {
            return Err(Status::resource_exhausted(format!(
                "zone {zone:?} has {open} such streams open already"
            )));
        }
        let id = uuid::Uuid::new_v4().to_string();
        self.join_or_leave(zone, |state| {
            state.begin(stream, &id, &self.settings.instance_id, authenticated, Timestamp::now());
            state.is_asked_at(stream, &self.settings.address);
        });
        Ok(StreamVisit { zones: self.clone(), zone: zone.to_owned(), stream, id })
    }

    /// Presence of a zone, and the time since when that is so.
    pub fn presence(&self, zone: &str) -> (Presence, Option<Timestamp>) {
        self.states().get(zone).map_or((Presence::Offline, None), ZoneState::presence)
    }

    /// The same of all zones.
    pub fn present(&self) -> Vec<(Presence, Option<Timestamp>)> {
        self.states().values().map(ZoneState::presence).collect()
    }

    /// The zone could not be connected, or is no longer.
    pub fn is_away(&self, zone: &str, reason: &str) {
        self.update(zone, |state| state.away(reason, Timestamp::now()));
    }

    /// Notes the problem with a kind, or that there is none.
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

    /// Changes the streams of a zone, and records if it is connected now and was not, or the other way round. All
    /// streams end with this process, which is no event of the zones.
    fn join_or_leave(&self, zone: &str, change: impl FnOnce(&mut ZoneState)) {
        let mut before = false;
        let mut after = false;
        self.update(zone, |state| {
            before = state.is_online();
            change(state);
            after = state.is_online();
        });
        if before != after && !self.shutdown.token().is_cancelled() {
            let (kind, text) = if after {
                (EventKind::ZoneJoined, "connected: the zone and the global control plane synchronise")
            } else {
                (
                    EventKind::ZoneLeft,
                    "disconnected: the zone and the global control plane do not synchronise",
                )
            };
            self.events.record(Occurrence::of(kind, &Key::global(Kind::Zone, zone), text));
        }
    }

    fn update(&self, zone: &str, change: impl FnOnce(&mut ZoneState)) {
        self.of(zone, change);
        self.changed.wake();
    }

    fn of(&self, zone: &str, change: impl FnOnce(&mut ZoneState)) {
        if let Some(state) = self.states().get_mut(zone) {
            change(state);
        }
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
                if state.open(ZoneStream::GlobalToZone) == 0 {
                    state.is_lost(health);
                    let text = format!("disconnected: its control plane was last heard of at {health}");
                    let key = Key::global(Kind::Zone, stored.name());
                    self.events.record(Occurrence::of(EventKind::ZoneLeft, &key, text));
                }
            }
        }
    }

    /// Writes what must be written; returns the time until the next look.
    async fn write_due(&self, pass: &Pass) -> Result<Duration, ReconcileFailure> {
        let now = pass.now;
        let waits = AbsenceDelays {
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
            let failed = |error: store::Error| ReconcileFailure::Other(format!("zone {zone}: {error}"));
            self.write(&zone, pass).await.map_err(failed)?;
        }
        let most = if self.settings.alone { next } else { next.min(LOOKS) };
        Ok(most.max(Duration::from_millis(10)))
    }

    /// Since when any zone is connected: to this control plane, or to another one on the same store.
    fn in_touch_since(&self, now: Timestamp) -> Option<Timestamp> {
        let here = self.states().values().any(ZoneState::is_online);
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

    async fn write(&self, zone: &str, pass: &Pass) -> Result<(), store::Error> {
        let mut described = None;
        let mut is_newest = false;
        let written = store::update_with::<store::Error>(pass.store.as_ref(), |snapshot| {
            described = None;
            // The Zone was deleted: so is what is known about it.
            if is_newest && snapshot.get(&Key::global(Kind::Zone, zone)).is_none() {
                self.states().remove(zone);
                return Ok(Vec::new());
            }
            is_newest = true;
            let Some((insight, write)) = self.insight(zone, snapshot) else { return Ok(Vec::new()) };
            described = Some(insight);
            Ok(write.into_iter().collect())
        });
        match written.await {
            Ok(_) => {
                if let Some(insight) = described {
                    self.of(zone, |state| state.is_stored(&insight));
                }
                Ok(())
            }
            Err(error) => {
                self.of(zone, ZoneState::is_not_stored);
                if error.is_outdated() { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Insight to store, and the write of it unless it is stored.
    fn insight(&self, zone: &str, snapshot: &Snapshot) -> Option<(ZoneInsight, Option<store::Write>)> {
        let key = Key::global(Kind::ZoneInsight, zone);
        let owner = Key::global(Kind::Zone, zone);
        let stored = snapshot.get(&key).and_then(|stored| stored.spec.get::<ZoneInsight>()).cloned();
        let mut states = self.states();
        let stored = stored.unwrap_or_default();
        let instance = &self.settings.instance_id;
        let insight = states.get_mut(zone)?.written(stored, instance, Timestamp::now());
        let write = insights::write(snapshot, &key, &owner, Spec::from(insight.clone()));
        Some((insight, write))
    }
}

/// Writes ZoneInsights.
struct Writer {
    zones: Arc<ZoneRegistry>,
    /// The last look for zones whose instance has died.
    looked: Option<Instant>,
    has_ended: bool,
}

impl Reconciler for Writer {
    const NAME: &'static str = "zone_insights";
    const WORK: &'static str = "store the insight of a zone";
    const FOLLOWS: &'static [Kind] = &[];
    const FINISHES: bool = true;
    type Unit = Whole;

    fn apply(&mut self, _snapshot: &Snapshot, _dirty: &Dirty) -> BTreeSet<Whole> {
        BTreeSet::new()
    }

    fn wake(&self) -> Wake {
        self.zones.changed.clone()
    }

    fn woken(&mut self) -> BTreeSet<Whole> {
        Whole::if_due(true)
    }

    async fn reconcile(&mut self, _unit: &Whole, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let looked = *self.looked.get_or_insert(pass.instant);
        if !self.zones.settings.alone && pass.instant.saturating_duration_since(looked) >= LOOKS {
            self.looked = Some(pass.instant);
            self.zones.notice_the_lost(pass.now);
        }
        Ok(Next::on_change().within(Some(self.zones.write_due(pass).await?)))
    }

    /// All streams end with the process.
    fn left(&mut self) -> BTreeSet<Whole> {
        let is_first = !std::mem::replace(&mut self.has_ended, true);
        if is_first {
            self.zones.states().values_mut().for_each(|state| state.end_all(Timestamp::now()));
        }
        Whole::if_due(is_first)
    }
}

/// One stream of a zone, from its beginning to its end.
pub struct StreamVisit {
    zones: Arc<ZoneRegistry>,
    zone: String,
    stream: ZoneStream,
    id: String,
}

impl StreamVisit {
    pub fn introduced(&self, introduction: Introduction) {
        self.zones.update(&self.zone, |state| state.introduce(&self.id, introduction));
    }

    pub fn subscription(&self, change: impl FnOnce(&mut KdsSubscription)) {
        self.zones.update(&self.zone, |state| state.change(&self.id, change));
    }

    /// Notes the problem with a kind, or that there is none.
    pub fn problem(&self, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.zones.problem(&self.zone, way, kind, reason);
    }
}

impl Drop for StreamVisit {
    fn drop(&mut self) {
        self.zones.join_or_leave(&self.zone, |state| state.end(self.stream, &self.id, Timestamp::now()));
    }
}
