//! What the zone proxies of this zone have acknowledged.

use std::{collections::HashMap, sync::Arc};

use plan::ProxyKind;
use resources::{Key, Kind};
use tokio::sync::watch;

use super::{Push, Watcher};

/// Tells that a zone proxy acknowledged or rejected something, or went.
#[derive(Debug, Default)]
pub(super) struct ZoneProxyEvents(watch::Sender<()>);

impl ZoneProxyEvents {
    pub(super) fn moved(&self) {
        self.0.send_replace(());
    }
}

/// How often each connected zone proxy had been woken at a moment.
#[derive(Debug, Default)]
pub struct Marks(HashMap<u64, u64>);

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
    /// Tells when [`Push::zone_acks`] may be different.
    pub fn zone_proxies_moved(&self) -> watch::Receiver<()> {
        self.zone_proxies.0.subscribe()
    }

    /// Marks every change made so far: to be acknowledged by the zone proxies of a kind.
    pub async fn mark_zone_proxies(&self, kind: Kind) -> Marks {
        self.caught_up().await;
        let connected =
            self.own_zone_proxies(kind).into_iter().filter_map(|name| self.zone_proxy(kind, &name));
        Marks(connected.map(|watcher| (watcher.id, watcher.woken_times())).collect())
    }

    /// How far the zone proxies of a kind have followed. One that connected after the marks begins with everything that
    /// was there by then.
    pub fn zone_acks(&self, kind: Kind, marks: &Marks) -> ZoneAcks {
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
        let state = self.state.load();
        match kind {
            Kind::ZoneEgress => state.zones().own_egresses().cloned().collect(),
            _ => state.zones().own_ingresses().cloned().collect(),
        }
    }

    fn zone_proxy(&self, kind: Kind, name: &str) -> Option<Arc<Watcher>> {
        let newest = self.newest(&Key::global(kind, name))?;
        (newest.traits.kind != ProxyKind::Sidecar).then_some(newest)
    }
}
