//! Events on discovery streams, counted: responses and their answers, the time proxies take to follow a change, and the
//! certificate of theirs that expires first.
//!
//! Everything here costs the same however many proxies are connected, except for the order of certificates and of
//! deliveries under way, which costs the logarithm of their number.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::metrics::{gauge::Gauge, histogram::Histogram};
use tokio::time::Instant;
use xds::Type;

use super::lock;

/// From a millisecond, within which a small mesh follows, to what operators notice. The alert `KumaPushSlow` compares
/// with 10.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0, 120.0];

type ByType = [AtomicU64; Type::ALL.len()];

/// Counts over all streams.
#[derive(Debug)]
pub struct StreamMetrics {
    sent: ByType,
    acknowledged: ByType,
    rejected: ByType,
    /// Time at which the changes of the current round were stored, at the earliest.
    changed_at: Mutex<Option<Instant>>,
    pub(super) delivery: Histogram,
    pub(super) generation: Histogram,
    /// Deliveries under way, the oldest change first.
    delivering: Mutex<BTreeSet<(Instant, u64)>>,
    pub(super) rejecting: Gauge,
    expiries: Mutex<BTreeSet<(Timestamp, u64)>>,
    naming: Mutex<BTreeMap<NamedProxies, u64>>,
}

/// Proxies of a mesh whose names in Envoy are alike; zone proxies are of no mesh.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedProxies {
    pub mesh: Arc<str>,
    pub unified: bool,
}

impl Default for StreamMetrics {
    fn default() -> StreamMetrics {
        StreamMetrics {
            sent: ByType::default(),
            acknowledged: ByType::default(),
            rejected: ByType::default(),
            changed_at: Mutex::default(),
            delivery: Histogram::new(BUCKETS),
            generation: Histogram::new(BUCKETS),
            delivering: Mutex::default(),
            rejecting: Gauge::default(),
            expiries: Mutex::default(),
            naming: Mutex::default(),
        }
    }
}

/// Answer of a proxy to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    Ack,
    Nack,
}

impl StreamMetrics {
    pub fn response_sent(&self, kind: Type) {
        self.sent[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self, kind: Type, confirmation: Confirmation) {
        let counts = match confirmation {
            Confirmation::Ack => &self.acknowledged,
            Confirmation::Nack => &self.rejected,
        };
        counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn responses(&self, kind: Type) -> u64 {
        self.sent[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self, kind: Type, confirmation: Confirmation) -> u64 {
        let counts = match confirmation {
            Confirmation::Ack => &self.acknowledged,
            Confirmation::Nack => &self.rejected,
        };
        counts[kind as usize].load(Ordering::Relaxed)
    }

    /// Whatever wakes a proxy from now on was stored at this moment, at the earliest.
    pub(super) fn round_begins(&self, changed_at: Option<Instant>) {
        *lock(&self.changed_at) = changed_at;
    }

    pub(super) fn changed_at(&self) -> Option<Instant> {
        *lock(&self.changed_at)
    }

    /// Number of proxies that have not answered yet for all of a change.
    pub(super) fn delivering(&self) -> usize {
        lock(&self.delivering).len()
    }

    /// Time for which the oldest change has waited for the answer of a proxy.
    pub(super) fn oldest_delivery(&self) -> Duration {
        lock(&self.delivering).first().map_or(Duration::ZERO, |(changed_at, _)| changed_at.elapsed())
    }

    /// Number of connected proxies of each mesh with either names.
    pub(super) fn naming(&self) -> BTreeMap<NamedProxies, u64> {
        lock(&self.naming).clone()
    }

    /// Counts a proxy where it is now, and no longer where it was.
    fn named(&self, before: Option<&NamedProxies>, now: Option<&NamedProxies>) {
        let mut naming = lock(&self.naming);
        if let Some(now) = now {
            *naming.entry(now.clone()).or_default() += 1;
        }
        let Some(before) = before else { return };
        match naming.get_mut(before) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(naming.remove(before)),
        }
    }

    /// Time at which the first certificate of a connected proxy expires.
    pub fn soonest_expiry(&self) -> Option<Timestamp> {
        lock(&self.expiries).first().map(|(expires, _)| *expires)
    }
}

/// Contribution of one stream to the [`StreamMetrics`]; dropping it takes the stream out again.
#[derive(Debug)]
pub struct Delivery {
    meter: Arc<StreamMetrics>,
    id: u64,
    /// Time at which the oldest change that the proxy has not answered for was stored.
    changed_at: Option<Instant>,
    /// The same, once something had to be sent for it.
    underway: Option<Instant>,
    rejecting: bool,
    expires: Option<Timestamp>,
    mesh: Arc<str>,
    named: Option<NamedProxies>,
}

impl Delivery {
    pub(super) fn new(meter: Arc<StreamMetrics>, id: u64, mesh: Arc<str>) -> Delivery {
        Delivery {
            meter,
            id,
            changed_at: None,
            underway: None,
            rejecting: false,
            expires: None,
            mesh,
            named: None,
        }
    }

    /// The proxy is sent older or unified names.
    pub fn names(&mut self, unified: bool) {
        if self.named.as_ref().is_none_or(|named| named.unified != unified) {
            let now = NamedProxies { mesh: self.mesh.clone(), unified };
            self.meter.named(self.named.as_ref(), Some(&now));
            self.named = Some(now);
        }
    }

    pub fn meter(&self) -> &StreamMetrics {
        &self.meter
    }

    /// The proxy is to follow a change; `None` if it was woken for another reason.
    pub fn begin(&mut self, changed_at: Option<Instant>) {
        self.changed_at = self.changed_at.or(changed_at);
    }

    /// Looks at where the stream stands after an event.
    pub fn look(&mut self, statuses: &[xds::Status]) {
        let pending = statuses.iter().any(|status| status.pending > 0);
        if pending
            && self.underway.is_none()
            && let Some(changed_at) = self.changed_at
        {
            self.underway = Some(changed_at);
            lock(&self.meter.delivering).insert((changed_at, self.id));
        }
        if !pending {
            self.changed_at = None;
            // A change for which the proxy already had everything took no time.
            if let Some(changed_at) = self.end() {
                self.meter.delivery.observe(changed_at.elapsed().as_secs_f64());
            }
        }
        let rejecting = statuses.iter().any(|status| !status.rejected.is_empty());
        if rejecting != self.rejecting {
            self.rejecting = rejecting;
            if rejecting {
                self.meter.rejecting.inc()
            } else {
                self.meter.rejecting.dec()
            };
        }
    }

    /// Notes when the certificate of the proxy expires; `None` while it has none.
    pub fn certificate_expires(&mut self, expires: Option<Timestamp>) {
        if self.expires == expires {
            return;
        }
        let mut all = lock(&self.meter.expiries);
        if let Some(before) = std::mem::replace(&mut self.expires, expires) {
            all.remove(&(before, self.id));
        }
        all.extend(expires.map(|expires| (expires, self.id)));
    }

    /// Nothing is under way any more; says since when something was.
    fn end(&mut self) -> Option<Instant> {
        let changed_at = self.underway.take()?;
        lock(&self.meter.delivering).remove(&(changed_at, self.id));
        Some(changed_at)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // A proxy that leaves has not answered, so this is no duration.
        self.end();
        self.look(&[]);
        self.certificate_expires(None);
        self.meter.named(self.named.as_ref(), None);
    }
}
