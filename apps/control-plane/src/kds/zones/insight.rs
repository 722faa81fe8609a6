//! The insight of one zone, as it grows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Kind,
    kinds::zone_insight::{
        Absence, EnvoyAdminStreams, HealthCheck, KdsStatus, KdsStream, KdsStreams, KdsSubscription, Presence,
        SyncProblem, ZoneInsight,
    },
};

use crate::kds::{node::Introduction, receiving::Held};

/// How many connections of a zone are remembered, as in Kuma.
const SUBSCRIPTIONS: usize = 10;

/// How much of a reason is kept: a peer may say anything.
const LONGEST_REASON: usize = 2048;

/// The streams of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    GlobalToZone,
    ZoneToGlobal,
    ConfigDump,
    Stats,
    Clusters,
}

/// Which way something goes that is not in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Rejected by the zone.
    ToZone,
    /// Not sent to the zone.
    Unsent,
    /// Refused by the global control plane.
    ToGlobal,
    /// Not sent to the global control plane.
    UnsentToGlobal,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::ToZone => "rejected by the zone",
            Way::Unsent => "not sent to the zone",
            Way::ToGlobal => "refused by global",
            Way::UnsentToGlobal => "not sent to global",
        }
    }
}

/// How long it takes until others stop calling a zone that is away, and until they call it again.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// Zero means forever.
    pub withdraw_after: Duration,
    pub back: Duration,
    /// Since when any zone is connected. While none is, it is this control plane that is cut off: no zone is withdrawn
    /// then, and all have their time to connect again.
    pub in_touch_since: Option<Timestamp>,
}

impl Waits {
    /// How long until a zone is withdrawn that is still called.
    fn left(&self, absence: &Absence, now: Timestamp) -> Option<Duration> {
        let waiting = !absence.withdrawn && !self.withdraw_after.is_zero();
        let since = absence.since?.max(self.in_touch_since?);
        waiting.then(|| self.withdraw_after.saturating_sub(passed(since, now)))
    }
}

/// What is known about a zone.
pub struct State {
    held: Arc<Held>,
    /// Connections of this process, by id: open ones, and closed ones that are not written yet.
    subscriptions: BTreeMap<String, KdsSubscription>,
    streams: BTreeMap<Stream, (KdsStream, String)>,
    /// How many streams of each sort are open.
    open: BTreeMap<Stream, usize>,
    problems: BTreeMap<(Way, Kind), String>,
    health: Option<Timestamp>,
    absence: Option<Absence>,
    /// Since when a zone that was away is back.
    back: Option<Timestamp>,
    /// Whether connections of others in the stored insight are over.
    closes_others: bool,
    changed: bool,
    urgent: bool,
    written: Option<Timestamp>,
}

impl State {
    pub fn new(held: Held) -> State {
        State {
            held: Arc::new(held),
            subscriptions: BTreeMap::new(),
            streams: BTreeMap::new(),
            open: BTreeMap::new(),
            problems: BTreeMap::new(),
            health: None,
            absence: None,
            back: None,
            closes_others: false,
            changed: false,
            urgent: false,
            written: None,
        }
    }

    /// Of a zone that is known. Without other control planes its connections ended with our predecessor.
    pub fn of(insight: &ZoneInsight, held: Held, alone: bool, now: Timestamp) -> State {
        let mut state = State::new(held);
        state.health = insight.health_check.as_ref().and_then(|check| check.time);
        state.absence = insight.absence.clone();
        if alone && insight.is_online() {
            state.closes_others = true;
            state.absence.get_or_insert_with(|| absent(now));
            (state.changed, state.urgent) = (true, true);
        }
        state
    }

    pub fn held(&self) -> Arc<Held> {
        self.held.clone()
    }

    pub fn open(&self, stream: Stream) -> usize {
        self.open.get(&stream).copied().unwrap_or_default()
    }

    pub fn begin(&mut self, stream: Stream, id: &str, instance: &str, authenticated: bool, now: Timestamp) {
        let record = KdsStream { global_instance_id: instance.to_owned(), connect_time: Some(now) };
        self.streams.insert(stream, (record, id.to_owned()));
        *self.open.entry(stream).or_default() += 1;
        if stream == Stream::GlobalToZone {
            let subscription = KdsSubscription {
                id: id.to_owned(),
                global_instance_id: instance.to_owned(),
                connect_time: Some(now),
                status: Some(KdsStatus::default()),
                auth_token_provided: authenticated,
                ..KdsSubscription::default()
            };
            self.subscriptions.insert(id.to_owned(), subscription);
            self.back = self.absence.is_some().then_some(now);
        }
        (self.changed, self.urgent) = (true, true);
    }

    /// Who is there is of interest at once.
    pub fn introduce(&mut self, id: &str, introduction: Introduction) {
        self.change(id, |subscription| {
            subscription.version = Some(introduction.version);
            subscription.config = introduction.config;
            subscription.zone_instance_id = introduction.instance_id;
        });
        self.urgent = true;
    }

    pub fn change(&mut self, id: &str, change: impl FnOnce(&mut KdsSubscription)) {
        if let Some(subscription) = self.subscriptions.get_mut(id) {
            change(subscription);
            self.changed = true;
        }
    }

    pub fn end(&mut self, stream: Stream, id: &str, now: Timestamp) {
        self.open.entry(stream).and_modify(|open| *open = open.saturating_sub(1));
        // A newer one may have taken its place.
        if self.streams.get(&stream).is_some_and(|(_, current)| current == id) {
            self.streams.remove(&stream);
        }
        if let Some(subscription) = self.subscriptions.get_mut(id) {
            subscription.disconnect_time = Some(now);
            self.urgent = true;
        }
        if !self.is_online() {
            self.back = None;
            self.absence.get_or_insert_with(|| absent(now));
        }
        self.changed = true;
    }

    /// Ends what is open, because this control plane ends.
    pub fn end_all(&mut self, now: Timestamp) {
        let open = |subscription: &&mut KdsSubscription| subscription.is_online();
        let mut ended = false;
        for subscription in self.subscriptions.values_mut().filter(open) {
            subscription.disconnect_time = Some(now);
            ended = true;
        }
        if ended {
            self.absence.get_or_insert_with(|| absent(now));
            (self.changed, self.urgent) = (true, true);
        }
    }

    pub fn alive(&mut self, now: Timestamp) {
        self.urgent |= self.health.replace(now).is_none();
        self.changed = true;
    }

    pub fn problem(&mut self, way: Way, kind: Kind, reason: Option<&str>) {
        let reason = reason.map(shortened);
        let before = match reason {
            Some(reason) => self.problems.insert((way, kind), reason.to_owned()),
            None => self.problems.remove(&(way, kind)),
        };
        if before.as_deref() != reason {
            (self.changed, self.urgent) = (true, true);
        }
    }

    /// Whether the zone is connected, and since when that is so.
    pub fn presence(&self) -> (Presence, Option<Timestamp>) {
        let open = self.subscriptions.values().filter(|subscription| subscription.is_online());
        match &self.absence {
            _ if self.is_online() => {
                (Presence::Online, open.filter_map(|subscription| subscription.connect_time).min())
            }
            Some(absence) if absence.withdrawn => (Presence::Offline, absence.since),
            Some(absence) => (Presence::Unknown, absence.since),
            None => (Presence::Offline, None),
        }
    }

    /// There is no connection, for this reason.
    pub fn away(&mut self, reason: &str, now: Timestamp) {
        let absence = self.absence.get_or_insert_with(|| absent(now));
        let reason = shortened(reason);
        if absence.reason != reason {
            // The first reason is of interest at once; others come with every attempt.
            self.urgent |= absence.reason.is_empty();
            reason.clone_into(&mut absence.reason);
            self.changed = true;
        }
    }

    pub fn is_online(&self) -> bool {
        self.subscriptions.values().any(KdsSubscription::is_online)
    }

    /// Whether the zone has connected to another instance of the global control plane since it left this one. Older
    /// connections may be those of an instance that has ended.
    fn is_with_others(&self, insight: &ZoneInsight) -> bool {
        let left = self.absence.as_ref().and_then(|absence| absence.since);
        insight.subscriptions.iter().any(|subscription| {
            subscription.is_online()
                && subscription.connect_time > left
                && !self.subscriptions.contains_key(&subscription.id)
        })
    }

    /// Withdraws a zone that has been away for too long, and takes it back when it has stayed for a while.
    pub fn judge_absence(&mut self, now: Timestamp, waits: &Waits) {
        let Some(absence) = &mut self.absence else { return };
        let returned = self.back.is_some_and(|since| passed(since, now) >= waits.back || !absence.withdrawn);
        if returned {
            (self.absence, self.back) = (None, None);
            (self.changed, self.urgent) = (true, true);
            return;
        }
        let left = waits.left(absence, now).filter(|_| self.back.is_none());
        if left.is_some_and(|left| left.is_zero()) {
            absence.withdrawn = true;
            (self.changed, self.urgent) = (true, true);
        }
    }

    pub fn is_due(&self, now: Timestamp, flush: Duration) -> bool {
        self.changed && (self.urgent || self.written.is_none_or(|written| passed(written, now) >= flush))
    }

    /// How long nothing has to be done about it.
    pub fn next(&self, now: Timestamp, flush: Duration, waits: &Waits) -> Option<Duration> {
        let left = |since: Timestamp, wait: Duration| wait.saturating_sub(passed(since, now));
        let flushed =
            self.changed.then(|| self.written.map_or(Duration::ZERO, |written| left(written, flush)));
        let returned = self.back.map(|since| left(since, waits.back));
        let absence = self.absence.as_ref().filter(|_| self.back.is_none());
        let withdrawn = absence.and_then(|absence| waits.left(absence, now));
        [flushed, returned, withdrawn].into_iter().flatten().min()
    }

    /// The insight to store, made from the one that is stored.
    pub fn written(&mut self, stored: ZoneInsight, now: Timestamp) -> ZoneInsight {
        let mut insight = stored;
        if std::mem::take(&mut self.closes_others) {
            let open = insight.subscriptions.iter_mut().filter(|subscription| subscription.is_online());
            open.for_each(|subscription| subscription.disconnect_time = Some(now));
        }
        for subscription in self.subscriptions.values() {
            match insight.subscriptions.iter_mut().find(|known| known.id == subscription.id) {
                Some(known) => known.clone_from(subscription),
                None => insight.subscriptions.push(subscription.clone()),
            }
        }
        if self.is_with_others(&insight) {
            (self.absence, self.back) = (None, None);
        }
        let over = insight.subscriptions.len().saturating_sub(SUBSCRIPTIONS);
        insight.subscriptions.drain(..over);
        self.subscriptions.retain(|_, subscription| subscription.is_online());
        let stream = |stream: Stream| self.streams.get(&stream).map(|(record, _)| record.clone());
        let instance = |of: Stream| stream(of).map(|record| record.global_instance_id).unwrap_or_default();
        insight.kds_streams = (!self.streams.is_empty()).then(|| KdsStreams {
            global_to_zone: stream(Stream::GlobalToZone),
            zone_to_global: stream(Stream::ZoneToGlobal),
            config_dump: stream(Stream::ConfigDump),
            stats: stream(Stream::Stats),
            clusters: stream(Stream::Clusters),
        });
        insight.envoy_admin_streams = Some(EnvoyAdminStreams {
            config_dump_global_instance_id: instance(Stream::ConfigDump),
            stats_global_instance_id: instance(Stream::Stats),
            clusters_global_instance_id: instance(Stream::Clusters),
        })
        .filter(|streams| *streams != EnvoyAdminStreams::default());
        insight.health_check = self.health.map(|time| HealthCheck { time: Some(time) });
        insight.absence.clone_from(&self.absence);
        let problem = |((way, kind), reason): (&(Way, Kind), &String)| SyncProblem {
            kind: kind.name().to_owned(),
            what: way.name().to_owned(),
            reason: reason.clone(),
        };
        insight.problems = self.problems.iter().map(problem).collect();
        (self.changed, self.urgent, self.written) = (false, false, Some(now));
        insight
    }
}

fn shortened(reason: &str) -> &str {
    let end = (0..=LONGEST_REASON.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end));
    &reason[..end.unwrap_or_default()]
}

fn absent(now: Timestamp) -> Absence {
    Absence { since: Some(now), ..Absence::default() }
}

fn passed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const BACK: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn state() -> State {
        State::new(Held::default())
    }

    fn waits(in_touch_since: Option<Timestamp>) -> Waits {
        Waits { withdraw_after: MINUTE, back: BACK, in_touch_since }
    }

    fn withdrawn(state: &mut State, second: i64) -> Option<bool> {
        state.judge_absence(at(second), &waits(Some(at(0))));
        state.absence.as_ref().map(|absence| absence.withdrawn)
    }

    #[test]
    fn a_zone_that_leaves_is_unknown_then_withdrawn_and_back_when_it_has_stayed_for_a_while() {
        let mut state = state();
        state.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        assert_eq!(withdrawn(&mut state, 0), None);
        state.end(Stream::GlobalToZone, "1", at(100));
        assert_eq!(withdrawn(&mut state, 159), Some(false));
        assert_eq!(withdrawn(&mut state, 160), Some(true));
        state.begin(Stream::GlobalToZone, "2", "g", false, at(200));
        assert_eq!(withdrawn(&mut state, 209), Some(true), "it may leave again at once");
        state.end(Stream::GlobalToZone, "2", at(209));
        state.begin(Stream::GlobalToZone, "3", "g", false, at(210));
        assert_eq!(withdrawn(&mut state, 219), Some(true));
        assert_eq!(withdrawn(&mut state, 220), None);
    }

    #[test]
    fn a_global_control_plane_that_is_cut_off_itself_withdraws_nobody_and_gives_all_their_time_to_return() {
        let mut state = state();
        state.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        state.end(Stream::GlobalToZone, "1", at(100));
        let mut withdrawn = |second, in_touch_since: Option<i64>| {
            state.judge_absence(at(second), &waits(in_touch_since.map(at)));
            state.absence.as_ref().unwrap().withdrawn
        };
        assert!(!withdrawn(10_000, None));
        assert!(!withdrawn(10_059, Some(10_000)), "others have come back before it");
        assert!(withdrawn(10_060, Some(10_000)));
    }

    #[test]
    fn a_zone_that_has_gone_to_another_instance_is_not_away() {
        let mut state = state();
        state.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        let mut stored = state.written(ZoneInsight::default(), at(0));
        // Of an instance that has ended without a word.
        stored.subscriptions.push(KdsSubscription {
            id: "0".to_owned(),
            connect_time: Some(at(-100)),
            ..KdsSubscription::default()
        });
        state.end(Stream::GlobalToZone, "1", at(100));
        let mut stored = state.written(stored, at(100));
        assert!(stored.absence.is_some());
        stored.subscriptions.push(KdsSubscription {
            id: "2".to_owned(),
            connect_time: Some(at(101)),
            ..KdsSubscription::default()
        });
        assert_eq!(withdrawn(&mut state, 200), Some(true));
        assert_eq!(state.written(stored, at(200)).absence, None);
    }

    #[test]
    fn a_zone_that_comes_back_in_time_was_never_withdrawn() {
        let mut state = state();
        state.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        state.end(Stream::GlobalToZone, "1", at(100));
        state.begin(Stream::GlobalToZone, "2", "g", false, at(110));
        assert_eq!(withdrawn(&mut state, 110), None);
    }

    #[test]
    fn an_old_stream_that_ends_late_does_not_end_the_new_one() {
        let mut state = state();
        state.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        state.begin(Stream::GlobalToZone, "2", "g", false, at(1));
        state.end(Stream::GlobalToZone, "1", at(2));
        let insight = state.written(ZoneInsight::default(), at(2));
        assert!(insight.is_online() && insight.absence.is_none());
        assert_eq!(insight.kds_streams.unwrap().global_to_zone.unwrap().connect_time, Some(at(1)));
        assert_eq!(insight.subscriptions.len(), 2);
    }

    #[test]
    fn a_restart_ends_the_connections_of_the_predecessor_and_others_are_left_alone() {
        let mut before = state();
        before.begin(Stream::GlobalToZone, "1", "g", false, at(0));
        let stored = before.written(ZoneInsight::default(), at(0));
        for (alone, online) in [(true, false), (false, true)] {
            let mut after = State::of(&stored, Held::default(), alone, at(10));
            assert_eq!(after.written(stored.clone(), at(10)).is_online(), online);
        }
    }

    #[test]
    fn ten_connections_are_remembered() {
        let (mut state, mut insight) = (state(), ZoneInsight::default());
        for n in 0..15 {
            state.begin(Stream::GlobalToZone, &n.to_string(), "g", false, at(n));
            state.end(Stream::GlobalToZone, &n.to_string(), at(n));
            insight = state.written(insight, at(n));
        }
        assert_eq!(insight.subscriptions.len(), SUBSCRIPTIONS);
        assert_eq!(insight.subscriptions[0].id, "5");
    }

    #[test]
    fn what_is_not_in_order_is_shown_until_it_is() {
        let mut state = state();
        state.problem(Way::ToZone, Kind::MeshTimeout, Some("no"));
        assert!(state.is_due(at(0), MINUTE));
        let insight = state.written(ZoneInsight::default(), at(0));
        assert_eq!(insight.problems[0].kind, "MeshTimeout");
        assert_eq!(insight.problems[0].reason, "no");
        state.problem(Way::ToZone, Kind::MeshTimeout, Some("no"));
        assert!(!state.is_due(at(0), MINUTE), "it is known");
        state.problem(Way::ToZone, Kind::MeshRetry, Some(&"é".repeat(1 << 20)));
        let insight = state.written(insight, at(0));
        assert_eq!(insight.problems.iter().map(|problem| problem.reason.len()).max(), Some(LONGEST_REASON));
        state.problem(Way::ToZone, Kind::MeshRetry, None);
        state.problem(Way::ToZone, Kind::MeshTimeout, None);
        assert_eq!(state.written(insight, at(0)).problems, []);
    }
}
