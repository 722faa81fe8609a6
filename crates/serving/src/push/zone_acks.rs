//! Acknowledgements of the zone proxies of this zone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use reconcile::Wake;
use resources::{Key, Kind};

use super::{Push, Watcher, lock};

/// Tells that a zone proxy acknowledged or rejected something, or went.
#[derive(Debug, Default)]
pub(super) struct ZoneProxyEvents(Mutex<Vec<Wake>>);

impl ZoneProxyEvents {
    pub(super) fn moved(&self) {
        lock(&self.0).iter().for_each(Wake::wake);
    }
}

/// Number of times each connected zone proxy had been woken at a moment.
#[derive(Debug, Default)]
pub struct WakeMarks(HashMap<u64, u64>);

/// The zone proxies of a kind, by what they have acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ZoneAcks {
    /// Those that have acknowledged everything up to the marks.
    pub acknowledged: Vec<Arc<str>>,
    /// Those that are connected and have not.
    pub behind: Vec<Arc<str>>,
    /// Those that are not connected here.
    pub absent: Vec<Arc<str>>,
}

impl Push {
    /// Wakes when [`Push::zone_acks`] may be different.
    pub fn zone_proxies_moved(&self) -> Wake {
        let wake = Wake::default();
        lock(&self.proxies.zone_events.0).push(wake.clone());
        wake
    }

    /// Marks every change made so far: to be acknowledged by the zone proxies of a kind.
    pub async fn mark_zone_proxies(&self, kind: Kind) -> WakeMarks {
        self.caught_up().await;
        let connected =
            self.own_zone_proxies(kind).into_iter().filter_map(|name| self.zone_proxy(kind, &name));
        WakeMarks(connected.map(|watcher| (watcher.id, watcher.woken_times())).collect())
    }

    /// Progress of the zone proxies of a kind. One that connected after the marks begins with everything that was there
    /// by then.
    pub fn zone_acks(&self, kind: Kind, marks: &WakeMarks) -> ZoneAcks {
        let mut acks = ZoneAcks::default();
        for name in self.own_zone_proxies(kind) {
            match self.zone_proxy(kind, &name) {
                None => acks.absent.push(name),
                Some(watcher) if watcher.has_acknowledged(marks.0.get(&watcher.id).copied().unwrap_or(1)) => {
                    acks.acknowledged.push(name);
                }
                Some(_) => acks.behind.push(name),
            }
        }
        acks
    }

    fn own_zone_proxies(&self, kind: Kind) -> Vec<Arc<str>> {
        let state = self.last.state.load();
        match kind {
            Kind::ZoneEgress => state.zones().own_egresses().cloned().collect(),
            _ => state.zones().own_ingresses().cloned().collect(),
        }
    }

    fn zone_proxy(&self, kind: Kind, name: &str) -> Option<Arc<Watcher>> {
        self.newest(&Key::global(kind, name)).filter(|newest| newest.traits.kind.is_of_zone())
    }
}
