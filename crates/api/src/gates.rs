//! Limits that clients share: on the writes, long lists and questions that are worked on, and on the watches and streams
//! of events that are open at a time. The lists themselves are shared, too.

mod questions;
mod response_cache;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use runtime::{Shutdown, logs::Throttle};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

pub(crate) use self::questions::QuestionTurn;
use self::{questions::Questions, response_cache::ResponseCache};
use crate::{Error, User};

/// Writes in progress, of all clients. They go on when their client is gone, so connections do not bound them.
pub const WRITES: usize = 4096;
/// Open watches, of all clients.
pub const WATCHES: usize = 256;
/// Open watches of the clients at one address.
pub const WATCHES_PER_PEER: usize = 64;

/// Open streams of events, of all clients.
pub const EVENT_STREAMS: usize = 512;
/// Open streams of events of the clients at one address, which may be that of a proxy before many users.
pub const EVENT_STREAMS_PER_PEER: usize = 256;

/// Lets so many in at a time.
#[derive(Debug)]
pub struct Gates {
    /// However many lists are asked for, so many are made at a time: proxies need the processors, too.
    turns: Arc<Semaphore>,
    watches: Arc<Mutex<Watches>>,
    event_streams: Arc<Mutex<Watches>>,
    writes: Arc<Semaphore>,
    questions: Questions,
    /// Waits for writes in progress when the process ends, and ends streams.
    shutdown: Shutdown,
    /// Long answers that were made before.
    pub(crate) answers: ResponseCache,
    /// Keeps refused tokens from filling the log.
    pub(crate) refusals: Throttle,
}

#[derive(Debug, Default)]
struct Watches {
    open: usize,
    by_peer: HashMap<Option<IpAddr>, usize>,
}

impl Default for Gates {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Gates {
            turns: Arc::new(Semaphore::new(processors)),
            watches: Arc::default(),
            event_streams: Arc::default(),
            writes: Arc::new(Semaphore::new(WRITES)),
            // Two callers do not wait for each other on the smallest machine either.
            questions: Questions::new(processors.max(2)),
            shutdown: Shutdown::default(),
            answers: ResponseCache::default(),
            refusals: Throttle::default(),
        }
    }
}

impl Gates {
    /// Lets the end of the process wait for writes in progress.
    #[must_use]
    pub fn finished_before(self, shutdown: Shutdown) -> Gates {
        Gates { shutdown, ..self }
    }

    /// One more write, unless that is too many.
    pub fn write(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.writes.clone().try_acquire_owned().map_err(|_| {
            Error::Unavailable(format!(
                "{WRITES} writes are in progress, which is the limit of this control plane: try again later"
            ))
        })
    }

    /// Runs a write to its end, whether or not its client waits for it.
    pub fn run_to_its_end<T: Send + 'static>(
        &self,
        write: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.shutdown.spawn(write)
    }

    /// Waits until there is a processor for something that takes a while. `None` when the process ends.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }

    /// Waits until a question of this caller may be worked out, unless the caller has others.
    pub async fn ask(&self, user: &User, peer: Option<IpAddr>) -> Result<QuestionTurn, Error> {
        self.questions.ask(user, peer).await
    }

    /// One more watch of a client, unless that is too many.
    pub fn watch(
        &self,
        peer: Option<IpAddr>,
        limit: usize,
        limit_per_peer: usize,
    ) -> Result<Watching, Error> {
        Watches::admit(&self.watches, peer, limit, limit_per_peer).map_err(|full| {
            Error::Unavailable(match full {
                Full::OfPeer => format!(
                    "{limit_per_peer} watches are open from this address, which is the limit: end one of them"
                ),
                Full::OfAll => {
                    format!(
                        "{limit} watches are open, which is the limit of this control plane: list instead"
                    )
                }
            })
        })
    }

    /// One more stream of events of a client, unless that is too many.
    pub fn follow_events(
        &self,
        peer: Option<IpAddr>,
        limit: usize,
        limit_per_peer: usize,
    ) -> Result<Watching, Error> {
        Watches::admit(&self.event_streams, peer, limit, limit_per_peer).map_err(|full| match full {
            Full::OfPeer => Error::TooMany(format!(
                "{limit_per_peer} streams of events are open from this address, which is the limit: end one of them"
            )),
            Full::OfAll => Error::Unavailable(format!(
                "{limit} streams of events are open, which is the limit of this control plane: ask for pages instead"
            )),
        })
    }

    /// The end of the process, which streams must not delay.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }
}

/// Reason for not admitting a watch.
enum Full {
    OfPeer,
    OfAll,
}

impl Watches {
    fn admit(
        watches: &Arc<Mutex<Watches>>,
        peer: Option<IpAddr>,
        limit: usize,
        limit_per_peer: usize,
    ) -> Result<Watching, Full> {
        let mut open = lock(watches);
        if open.by_peer.get(&peer).is_some_and(|of_peer| *of_peer >= limit_per_peer) {
            return Err(Full::OfPeer);
        }
        if open.open >= limit {
            return Err(Full::OfAll);
        }
        open.open += 1;
        *open.by_peer.entry(peer).or_default() += 1;
        Ok(Watching { watches: watches.clone(), peer })
    }
}

/// A watch that is counted until this is dropped.
#[derive(Debug)]
pub struct Watching {
    watches: Arc<Mutex<Watches>>,
    peer: Option<IpAddr>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watches = lock(&self.watches);
        watches.open -= 1;
        if let Some(of_peer) = watches.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                watches.by_peer.remove(&self.peer);
            }
        }
    }
}

fn lock(watches: &Mutex<Watches>) -> MutexGuard<'_, Watches> {
    watches.lock().unwrap_or_else(PoisonError::into_inner)
}
