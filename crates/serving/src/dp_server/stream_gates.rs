//! Gates of discovery streams: limits on their number, and rejection of the others.
//!
//! A discovery stream passes four gates: it counts against its connection, waits for one of the places for
//! unauthenticated streams until its first request has come and its token is checked, waits for one of the
//! few
//! places where proxies are registered, and counts against its name from then on. Names are counted
//! after authentication, because an unauthenticated stream could otherwise use up those of others. A stream that does
//! not pass gets `RESOURCE_EXHAUSTED`, a message, and a time to come back after; the reason is counted
//! and logged.

mod messages;

use std::{
    collections::HashMap,
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use resources::{Key, duration::GoDuration};
use runtime::{
    Shutdown,
    listen::{Connection, Peer, RETRY_AFTER_MS, Tally},
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Code, Status, metadata::MetadataMap};

pub use self::messages::Messages;
use crate::config::DpLimits;

/// Delay after which a rejected stream should try again.
const COME_BACK_AFTER: Duration = Duration::from_secs(5);

/// Limits of discovery streams.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests open at a time on a connection that asks for a discovery stream, the stream included.
    pub streams_per_connection: usize,
    /// Streams at a time of proxies with one name.
    pub streams_per_proxy: usize,
    /// Streams at a time whose proxy has not proved who it is.
    pub unauthenticated: usize,
    /// Proxies that are registered at a time.
    pub registered_at_once: usize,
    /// Longest wait in line at each gate.
    pub wait: Duration,
    /// Longest silence of a stream before it has said whose it is.
    pub introduction: Duration,
    /// Bytes of the first message: Envoy sends its whole list of extensions (about 61 KB) and its Dataplane. Before
    /// its token is verified a stream has at most 256 KiB of it.
    pub first_message: usize,
    /// Bytes of the messages after it.
    pub message: usize,
}

impl From<&DpLimits> for Limits {
    fn from(config: &DpLimits) -> Limits {
        let count = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let time = |setting: GoDuration| setting.to_std().unwrap_or_default();
        Limits {
            streams_per_connection: count(config.max_streams_per_connection),
            streams_per_proxy: count(config.max_streams_per_proxy),
            unauthenticated: count(config.max_unauthenticated_streams),
            registered_at_once: count(config.max_admissions),
            wait: time(config.admission_timeout),
            introduction: time(config.first_request_timeout),
            first_message: count(config.max_first_message_bytes),
            message: count(config.max_message_bytes),
        }
    }
}

/// The gates. One for all streams.
#[derive(Debug)]
pub struct StreamGates {
    limits: Limits,
    tally: Tally,
    shutdown: Shutdown,
    strangers: Semaphore,
    registering: Semaphore,
    named: Arc<Mutex<HashMap<Key, usize>>>,
}

/// Origin of a stream.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    peer: Option<SocketAddr>,
    connection: Option<Connection>,
}

impl Caller {
    pub fn of<B>(request: &Request<B>) -> Caller {
        let extensions = request.extensions();
        Caller { peer: extensions.get().map(|peer: &Peer| peer.addr), connection: extensions.get().cloned() }
    }
}

impl StreamGates {
    pub fn new(limits: Limits, tally: Tally, shutdown: Shutdown) -> StreamGates {
        let places = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        StreamGates {
            limits,
            tally,
            shutdown,
            strangers: places(limits.unauthenticated),
            registering: places(limits.registered_at_once),
            named: Arc::default(),
        }
    }

    /// Refuses a stream if the connection may carry no more.
    pub fn open(&self, caller: &Caller) -> Result<(), Status> {
        let open = caller.connection.as_ref().map_or(0, Connection::open_requests);
        let limit = self.limits.streams_per_connection;
        if open <= limit {
            return Ok(());
        }
        Err(self.refuse(
            caller,
            "streams_per_connection",
            &format!("more than {limit} streams on one connection"),
        ))
    }

    /// A place for a stream that has not said whose it is.
    pub async fn stranger(&self, caller: &Caller) -> Result<SemaphorePermit<'_>, Status> {
        let limit = self.limits.unauthenticated;
        let full = || format!("{limit} streams wait to be authenticated already");
        self.place(&self.strangers, caller, "unauthenticated_streams", full).await
    }

    /// The first message, if it comes in time.
    pub async fn introduction<T>(
        &self,
        caller: &Caller,
        message: impl Future<Output = Result<Option<T>, Status>>,
    ) -> Result<Option<T>, Status> {
        let limit = self.limits.introduction;
        tokio::select! {
            message = tokio::time::timeout(limit, message) => message.unwrap_or_else(|_| {
                let silent = format!("no discovery request came within {limit:?}");
                Err(self.turn_away(caller, Code::DeadlineExceeded, "introduction", &silent))
            }),
            () = self.shutdown.begun() => Ok(None),
        }
    }

    /// A place to be registered: a thousand proxies that come back at once are let in a few at a time.
    pub async fn registering(&self, caller: &Caller) -> Result<SemaphorePermit<'_>, Status> {
        let wait = self.limits.wait;
        let full = || {
            format!("the stream waited {wait:?} to be registered, and others are still queued ahead of it")
        };
        self.place(&self.registering, caller, "admission_wait", full).await
    }

    /// Counts a stream of an authenticated proxy until the answer is dropped.
    pub fn named(&self, caller: &Caller, proxy: Key) -> Result<StreamPermit, Status> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let open = named.entry(proxy.clone()).or_default();
        let limit = self.limits.streams_per_proxy;
        if *open < limit {
            *open += 1;
            return Ok(StreamPermit { proxy, all: self.named.clone() });
        }
        drop(named);
        Err(self.refuse(caller, "streams_per_proxy", &format!("{proxy} has {limit} streams open already")))
    }

    async fn place<'s>(
        &self,
        places: &'s Semaphore,
        caller: &Caller,
        reason: &'static str,
        full: impl Fn() -> String,
    ) -> Result<SemaphorePermit<'s>, Status> {
        tokio::select! {
            place = tokio::time::timeout(self.limits.wait, places.acquire()) => match place {
                Ok(Ok(place)) => Ok(place),
                _ => Err(self.refuse(caller, reason, &full())),
            },
            () = self.shutdown.begun() => Err(Status::unavailable("the control plane is shutting down")),
        }
    }

    /// Counts and logs a message that is too large. It will be so the next time, too, so nothing is said about
    /// coming back.
    fn too_large(&self, caller: &Caller, reason: &'static str, why: &str) -> Status {
        self.tally.rejected(caller.peer, reason, why);
        Status::resource_exhausted(why)
    }

    fn refuse(&self, caller: &Caller, reason: &'static str, why: &str) -> Status {
        self.turn_away(caller, Code::ResourceExhausted, reason, why)
    }

    /// Counts and logs a rejected stream; the status says why and when to try again. Envoy
    /// logs the message and keeps its own backoff; other clients of gRPC look at the metadata.
    fn turn_away(&self, caller: &Caller, code: Code, reason: &'static str, why: &str) -> Status {
        self.tally.rejected(caller.peer, reason, why);
        let mut metadata = MetadataMap::new();
        metadata
            .insert(RETRY_AFTER_MS, u64::try_from(COME_BACK_AFTER.as_millis()).unwrap_or(u64::MAX).into());
        let message = format!("{why}; try again in {} s", COME_BACK_AFTER.as_secs());
        Status::with_metadata(code, message, metadata)
    }

    /// Counts a proxy that could not prove who it is.
    pub fn auth_failed(&self, reason: &'static str) {
        self.tally.auth_failed(reason);
    }

    /// Counts and logs a request or stream whose token is refused, or is for another proxy.
    pub fn unauthenticated(&self, peer: Option<SocketAddr>, why: &str) {
        self.tally.unauthenticated(peer, why);
    }

    /// Says that a stream ended with an error, and counts those that were rejected.
    pub fn ended(&self, caller: &Caller, status: &Status) {
        // Over a limit, which is counted and logged where it was found.
        if status.metadata().contains_key(RETRY_AFTER_MS) || status.code() == Code::ResourceExhausted {
            return;
        }
        match status.code() {
            Code::Unauthenticated => return self.unauthenticated(caller.peer, status.message()),
            Code::PermissionDenied => {
                self.auth_failed("not_permitted");
                return self.unauthenticated(caller.peer, status.message());
            }
            Code::NotFound => self.tally.count("unknown_proxy"),
            Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange => {
                self.tally.count("invalid_request")
            }
            Code::Unavailable => self.tally.count("unavailable"),
            _ => {}
        }
        let peer = caller.peer.map(tracing::field::display);
        tracing::info!(peer, reason = status.message(), "discovery stream ended with an error");
    }
}

/// A stream that counts against its proxy's name.
#[derive(Debug)]
pub struct StreamPermit {
    proxy: Key,
    all: Arc<Mutex<HashMap<Key, usize>>>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get_mut(&self.proxy) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.proxy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use resources::Kind;

    use super::*;

    fn gates(limits: Limits) -> StreamGates {
        StreamGates::new(limits, Tally::default(), Shutdown::default())
    }

    const LIMITS: Limits = Limits {
        streams_per_connection: 1,
        streams_per_proxy: 2,
        unauthenticated: 1,
        registered_at_once: 1,
        wait: Duration::from_millis(1),
        introduction: Duration::from_millis(1),
        first_message: 1,
        message: 1,
    };

    #[tokio::test]
    async fn a_stream_that_waits_too_long_to_be_registered_is_asked_to_come_back() {
        let gates = gates(LIMITS);
        let first = gates.registering(&Caller::default()).await.unwrap();
        let refused = gates.registering(&Caller::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().ends_with("try again in 5 s"), "{refused}");
        assert_eq!(refused.metadata().get(RETRY_AFTER_MS).unwrap(), "5000");
        drop(first);
        assert!(gates.registering(&Caller::default()).await.is_ok());
    }

    #[test]
    fn names_are_counted_for_themselves_and_forgotten_with_their_last_stream() {
        let gates = gates(LIMITS);
        let named = |name| gates.named(&Caller::default(), Key::new(Kind::Dataplane, "default", name));
        let web = (named("web").unwrap(), named("web").unwrap());
        let refused = named("web").unwrap_err();
        assert!(
            refused.message().contains("web") && refused.message().contains("has 2 streams"),
            "{refused}"
        );
        assert!(named("backend").is_ok());
        drop(web);
        assert!(gates.named.lock().unwrap().is_empty());
    }
}
