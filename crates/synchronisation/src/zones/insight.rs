//! The insight of one zone, as it grows.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Kind,
    kinds::zone_insight::{
        Absence, EnvoyAdminStreams, HealthCheck, KdsStatus, KdsStream, KdsStreams, KdsSubscription, Presence,
        SyncProblem, ZoneInsight,
    },
};

use crate::{node::Introduction, receiving::DeletionGuard};

/// Number of connections of a zone that are remembered, as in Kuma.
const SUBSCRIPTIONS: usize = 10;

/// Longest part of a reason that is kept: a peer may say anything.
const LONGEST_REASON: usize = 2048;

/// The streams of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneStream {
    GlobalToZone,
    ZoneToGlobal,
    ConfigDump,
    Stats,
    Clusters,
}

/// Ways in which resources may fail to be synchronised, each with its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncProblemKind {
    /// Rejected by the zone.
    ToZone,
    /// Not sent to the zone.
    Unsent,
    /// Refused by the global control plane.
    ToGlobal,
    /// Not sent to the global control plane.
    UnsentToGlobal,
    /// Of a kind that the zone does not have.
    Unreceived,
    /// Stored by an older version and refused now.
    Stored,
}

impl SyncProblemKind {
    fn name(self) -> &'static str {
        match self {
            SyncProblemKind::ToZone => "rejected by the zone",
            SyncProblemKind::Unsent => "not sent to the zone",
            SyncProblemKind::ToGlobal => "refused by global",
            SyncProblemKind::UnsentToGlobal => "not sent to global",
            SyncProblemKind::Unreceived => "without effect in the zone",
            SyncProblemKind::Stored => "stored on global, refused now",
        }
    }
}

/// Times until others stop calling a zone that is away, and until they call it again.
#[derive(Debug, Clone, Copy)]
pub struct AbsenceDelays {
    /// Zero means forever.
    pub withdraw_after: Duration,
    pub back: Duration,
    /// Since when any zone is connected. While none is, it is this control plane that is cut off: no zone is withdrawn
    /// then, and all have their time to connect again.
    pub in_touch_since: Option<Timestamp>,
}

impl AbsenceDelays {
    /// Time until a zone is withdrawn that is still called.
    fn left(&self, absence: &Absence, now: Timestamp) -> Option<Duration> {
        let waiting = !absence.withdrawn && !self.withdraw_after.is_zero();
        let since = absence.since?.max(self.in_touch_since?);
        waiting.then(|| self.withdraw_after.saturating_sub(passed(since, now)))
    }
}

/// State of a zone, as far as it is known.
pub struct ZoneState {
    held: Arc<DeletionGuard>,
    /// Connections of this process, by id: open ones, and closed ones that are not written yet.
    subscriptions: BTreeMap<String, KdsSubscription>,
    streams: BTreeMap<ZoneStream, (KdsStream, String)>,
    /// Number of open streams of each sort.
    open: BTreeMap<ZoneStream, usize>,
    problems: BTreeMap<(SyncProblemKind, &'static str), String>,
    health: Option<Timestamp>,
    absence: Option<Absence>,
    /// Since when a zone that was away is back.
    back: Option<Timestamp>,
    /// True if connections of others in the stored insight are over.
    closes_others: bool,
    changed: bool,
    urgent: bool,
    written: Option<Timestamp>,
}

impl ZoneState {
    pub fn new(held: DeletionGuard) -> ZoneState {
        ZoneState {
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
    pub fn of(insight: &ZoneInsight, held: DeletionGuard, alone: bool, now: Timestamp) -> ZoneState {
        let mut state = ZoneState::new(held);
        state.health = insight.health_check.as_ref().and_then(|check| check.time);
        state.absence = insight.absence.clone();
        if alone && insight.is_online() {
            state.closes_others = true;
            state.absence.get_or_insert_with(|| absent(now));
            (state.changed, state.urgent) = (true, true);
        }
        state
    }

    pub fn held(&self) -> Arc<DeletionGuard> {
        self.held.clone()
    }

    pub fn open(&self, stream: ZoneStream) -> usize {
        self.open.get(&stream).copied().unwrap_or_default()
    }

    pub fn begin(
        &mut self,
        stream: ZoneStream,
        id: &str,
        instance: &str,
        authenticated: bool,
        now: Timestamp,
    ) {
        let record = KdsStream {
            global_instance_id: instance.to_owned(),
            connect_time: Some(now),
            ..KdsStream::default()
        };
        self.streams.insert(stream, (record, id.to_owned()));
        *self.open.entry(stream).or_default() += 1;
        if stream == ZoneStream::GlobalToZone {
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
            // A zone has one connection: what another instance has not seen end is over, or will be soon.
            self.closes_others = true;
        }
        (self.changed, self.urgent) = (true, true);
    }

    /// Notes the address at which other instances can ask the one that has a stream.
    pub fn is_asked_at(&mut self, stream: ZoneStream, address: &str) {
        if let Some((record, _)) = self.streams.get_mut(&stream) {
            record.global_address = address.to_owned();
        }
    }

    /// The instance that the zone was connected to has gone without a word.
    pub fn is_lost(&mut self, since: Timestamp) {
        self.closes_others = true;
        self.absence.get_or_insert_with(|| absent(since));
        (self.changed, self.urgent) = (true, true);
    }

    /// Notes the introduction of the zone, which is of interest at once.
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

    pub fn end(&mut self, stream: ZoneStream, id: &str, now: Timestamp) {
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

    pub fn problem(&mut self, way: SyncProblemKind, kind: Kind, reason: Option<&str>) {
        self.problem_of(way, kind.name(), reason);
    }

    /// As [`ZoneState::problem`], of a kind that is known by its name only.
    pub fn problem_of(&mut self, way: SyncProblemKind, kind: &'static str, reason: Option<&str>) {
        let reason = reason.map(shortened);
        let before = match reason {
            Some(reason) => self.problems.insert((way, kind), reason.to_owned()),
            None => self.problems.remove(&(way, kind)),
        };
        if before.as_deref() != reason {
            (self.changed, self.urgent) = (true, true);
        }
    }

    /// Presence of the zone, and the time since when that is so.
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

    /// Withdraws a zone that has been away for too long, and takes it back when it has stayed for a while.
    pub fn judge_absence(&mut self, now: Timestamp, waits: &AbsenceDelays) {
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

    /// Time for which nothing has to be done about it.
    pub fn next(&self, now: Timestamp, flush: Duration, waits: &AbsenceDelays) -> Option<Duration> {
        let left = |since: Timestamp, wait: Duration| wait.saturating_sub(passed(since, now));
        let flushed =
            self.changed.then(|| self.written.map_or(Duration::ZERO, |written| left(written, flush)));
        let returned = self.back.map(|since| left(since, waits.back));
        let absence = self.absence.as_ref().filter(|_| self.back.is_none());
        let withdrawn = absence.and_then(|absence| waits.left(absence, now));
        [flushed, returned, withdrawn].into_iter().flatten().min()
    }

    /// The insight to store, made from the one that is stored. `instance` is this control plane: what others say about
    /// their own connections stays. Until [`ZoneState::is_stored`] it can be made again, from what others have stored since.
    pub fn written(&mut self, stored: ZoneInsight, instance: &str, now: Timestamp) -> ZoneInsight {
        let mut insight = stored;
        if self.closes_others {
            let open = insight.subscriptions.iter_mut().filter(|subscription| subscription.is_online());
            open.for_each(|subscription| subscription.disconnect_time = Some(now));
            insight.kds_streams = None;
        }
        for subscription in self.subscriptions.values() {
            match insight.subscriptions.iter_mut().find(|known| known.id == subscription.id) {
                Some(known) => known.clone_from(subscription),
                None => insight.subscriptions.push(subscription.clone()),
            }
        }
        let over = insight.subscriptions.len().saturating_sub(SUBSCRIPTIONS);
        insight.subscriptions.drain(..over);
        insight.health_check = self.health.max(insight.health()).map(|time| HealthCheck { time: Some(time) });
        let elsewhere = !self.is_online() && insight.is_online();
        if elsewhere {
            (self.absence, self.back) = (None, None);
        } else {
            insight.absence.clone_from(&self.absence);
            insight.problems = self.problems();
        }
        let streams = self.streams(insight.kds_streams.take().unwrap_or_default(), instance);
        let of = |stream: &Option<KdsStream>| {
            stream.as_ref().map(|record| record.global_instance_id.clone()).unwrap_or_default()
        };
        insight.envoy_admin_streams = Some(EnvoyAdminStreams {
            config_dump_global_instance_id: of(&streams.config_dump),
            stats_global_instance_id: of(&streams.stats),
            clusters_global_instance_id: of(&streams.clusters),
        })
        .filter(|streams| *streams != EnvoyAdminStreams::default());
        insight.kds_streams = Some(streams).filter(|streams| *streams != KdsStreams::default());
        (self.changed, self.urgent, self.written) = (false, false, Some(now));
        insight
    }

    /// Forgets connections that are over, and that this insight says so of.
    pub fn is_stored(&mut self, insight: &ZoneInsight) {
        self.closes_others = false;
        let over = |id: &String| {
            let known = insight.subscriptions.iter().find(|known| known.id == *id);
            known.is_none_or(|known| !known.is_online())
        };
        self.subscriptions.retain(|id, subscription| subscription.is_online() || !over(id));
    }

    /// The insight is to be written again.
    pub fn is_not_stored(&mut self) {
        (self.changed, self.urgent) = (true, true);
    }

    /// Our streams, and those of other instances where we have none.
    fn streams(&self, stored: KdsStreams, instance: &str) -> KdsStreams {
        let merged = |stream: ZoneStream, stored: Option<KdsStream>| {
            let ours = self.streams.get(&stream).map(|(record, _)| record.clone());
            ours.or_else(|| stored.filter(|record| record.global_instance_id != instance))
        };
        KdsStreams {
            global_to_zone: merged(ZoneStream::GlobalToZone, stored.global_to_zone),
            zone_to_global: merged(ZoneStream::ZoneToGlobal, stored.zone_to_global),
            config_dump: merged(ZoneStream::ConfigDump, stored.config_dump),
            stats: merged(ZoneStream::Stats, stored.stats),
            clusters: merged(ZoneStream::Clusters, stored.clusters),
        }
    }

    fn problems(&self) -> Vec<SyncProblem> {
        let problem = |((way, kind), reason): (&(SyncProblemKind, &'static str), &String)| SyncProblem {
            kind: (*kind).to_owned(),
            what: way.name().to_owned(),
            reason: reason.clone(),
        };
        self.problems.iter().map(problem).collect()
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
