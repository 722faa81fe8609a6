//! Many simulated proxies, and what each of them received since a moment.

mod proxy;
pub mod window;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::{
    connection::{End, ServerAddress},
    envoy::{Envoy, Variant},
    texts::Texts,
    topology::{MESH, Topology},
};

pub use window::{Marker, Tally};

/// Behaviour of the proxies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behaviour {
    pub variant: Variant,
    /// The share of responses that are rejected, from 0 to 1.
    pub rejects: f64,
    /// Share of proxies that read slowly, from 0 to 1, and their pause before each response.
    pub slow: f64,
    pub pause: Duration,
    /// Each proxy brings its Dataplane along instead of finding it stored.
    pub brings_dataplane: bool,
}

pub struct Fleet {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<Option<JoinHandle<()>>>>,
}

struct Shared {
    server: ServerAddress,
    behaviour: Behaviour,
    texts: Mutex<Texts>,
    slots: Vec<Slot>,
    /// Number of destinations that a proxy calls.
    destinations: usize,
    /// Marker that is looked for in responses.
    marker: ArcSwap<Option<Marker>>,
    born: Instant,
    /// Nanoseconds after `born` when anything was received last.
    last_response: AtomicU64,
    connected: AtomicUsize,
    ends: Mutex<Ends>,
    recording: Mutex<Option<Recording>>,
}

struct Slot {
    envoy: Mutex<Envoy>,
    tally: Mutex<Tally>,
    slow: bool,
}

/// Ends of streams.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// Reasons, each with the number of its streams.
    pub reasons: BTreeMap<String, usize>,
    /// Number of ends without a reason.
    pub silent: usize,
}

/// The responses one proxy receives, as they are.
struct Recording {
    proxy: usize,
    responses: Vec<Bytes>,
}

/// A poisoned lock only says that another proxy's task panicked, which its own end tells.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Proxies of a topology, none of them connected.
    pub fn new(server: ServerAddress, behaviour: Behaviour, topology: &Topology) -> Fleet {
        let secrets: Vec<Bytes> = [
            format!("identity_cert:secret:{MESH}"),
            format!("mesh_ca:secret:{MESH}"),
            format!("system_mtls_identity_{MESH}"),
            format!("system_mtls_ca_{MESH}"),
        ]
        .map(Bytes::from)
        .into();
        let slow = behaviour.slow * topology.size.proxies as f64;
        let slot = |proxy: usize| {
            let node = topology.node(proxy, behaviour.brings_dataplane);
            Slot {
                envoy: Mutex::new(Envoy::new(behaviour.variant, node, secrets.clone())),
                tally: Mutex::default(),
                slow: (proxy as f64) < slow,
            }
        };
        let shared = Shared {
            server,
            behaviour,
            texts: Mutex::default(),
            slots: (0..topology.size.proxies).map(slot).collect(),
            destinations: topology.destinations(),
            marker: ArcSwap::default(),
            born: Instant::now(),
            last_response: AtomicU64::new(0),
            connected: AtomicUsize::new(0),
            ends: Mutex::default(),
            recording: Mutex::default(),
        };
        let tasks = (0..topology.size.proxies).map(|_| None).collect();
        Fleet { shared: Arc::new(shared), tasks: Mutex::new(tasks) }
    }

    pub fn len(&self) -> usize {
        self.shared.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.shared.slots.is_empty()
    }

    /// Lets proxies connect, and connect again whenever their stream ends; `fresh` ones have forgotten
    /// what they had.
    pub fn start(&self, proxies: impl IntoIterator<Item = usize>, fresh: bool) {
        let mut tasks = lock(&self.tasks);
        for proxy in proxies {
            if fresh {
                lock(&self.shared.slots[proxy].envoy).forget();
            }
            let task = tokio::spawn(proxy::live(self.shared.clone(), proxy));
            if let Some(before) = tasks[proxy].replace(task) {
                before.abort();
            }
        }
    }

    /// Cuts proxies off and waits until they are.
    pub async fn stop(&self, proxies: impl IntoIterator<Item = usize>) {
        let stopped: Vec<JoinHandle<()>> = {
            let mut tasks = lock(&self.tasks);
            proxies.into_iter().filter_map(|proxy| tasks[proxy].take()).collect()
        };
        for task in stopped {
            task.abort();
            // It was cancelled, which is what was asked for.
            let _ = task.await;
        }
    }

    pub fn connected(&self) -> usize {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// Returns the ends of streams since the last call.
    pub fn take_ends(&self) -> Ends {
        std::mem::take(&mut lock(&self.shared.ends))
    }

    /// Returns the number of resources of all proxies together.
    pub fn resources(&self) -> usize {
        self.shared.slots.iter().map(|slot| lock(&slot.envoy).resources()).sum()
    }

    /// Returns the number of proxies that have been able to call all their destinations since counting began.
    pub fn synced(&self) -> usize {
        self.shared.slots.iter().filter(|slot| lock(&slot.tally).synced.is_some()).count()
    }

    /// From now on everything is counted anew, and `marker` is what makes a proxy up to date.
    pub fn begin(&self, marker: Option<Marker>) -> Instant {
        self.shared.marker.store(Arc::new(marker));
        for slot in &self.shared.slots {
            *lock(&slot.tally) = Tally::default();
        }
        Instant::now()
    }

    /// Looks for something else from now on, and counts on.
    pub fn look_for(&self, marker: Marker) {
        self.shared.marker.store(Arc::new(Some(marker)));
        for slot in &self.shared.slots {
            lock(&slot.tally).marked = None;
        }
    }

    pub fn tally(&self, proxy: usize) -> Tally {
        lock(&self.shared.slots[proxy].tally).clone()
    }

    /// Returns the time since anything was received.
    pub fn quiet_for(&self) -> Duration {
        let last = Duration::from_nanos(self.shared.last_response.load(Ordering::Relaxed));
        self.shared.born.elapsed().saturating_sub(last)
    }

    /// Keeps the responses to one proxy from now on.
    pub fn record(&self, proxy: usize) {
        *lock(&self.shared.recording) = Some(Recording { proxy, responses: Vec::new() });
    }

    pub fn take_recording(&self) -> Vec<Bytes> {
        lock(&self.shared.recording).take().map(|recording| recording.responses).unwrap_or_default()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for task in lock(&self.tasks).iter().flatten() {
            task.abort();
        }
    }
}

impl Shared {
    fn ended(&self, end: &End) {
        let mut ends = lock(&self.ends);
        let text = match end {
            End::Reported(text) => format!("with a reason: {text}"),
            End::Silent(text) => {
                ends.silent += 1;
                format!("without a reason: {text}")
            }
            End::Unreachable(text) => format!("no connection: {text}"),
        };
        *ends.reasons.entry(text).or_default() += 1;
    }
}
