//! A list that goes on: one JSON document per line for every change.
//!
//! `GET {list}?watch=true` sends what is there as `ADDED`, then changes; with `revision=N` (the
//! `X-Kuma-Revision` of an earlier answer) only what changed after it. Every line says its revision, so
//! a client resumes where it stopped: streams end after the request timeout. Changes between two lines
//! may be combined, they are never left out; a revision that is too old to be resumed is refused.
//!
//! A watch holds the names of what it has sent, and one line at a time: each is made when the one before
//! is taken. A client that takes none for a while is cut off.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use contract::watch::{DeletedResource, WatchEvent};
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::channel::{Channel, Sender};
use resources::{Key, Kind, Scope, format::universal};
use runtime::listen::Peer;
use store::{Changes, Dirty, Snapshot, Store};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Error,
    call::{Call, with_revision},
    filter::Filter,
    gates::Watching,
    inline_keys,
    metrics::ApiMetrics,
};

/// An idle stream says where it stands this often, which also finds out whether the client still listens.
const BOOKMARK_EVERY: Duration = Duration::from_secs(10);

/// Reasons for the end of a watch, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has lasted as long as a request may; clients resume.
    TimeUp,
    ClientGone,
    /// The client did not take what it asked for.
    NotRead,
    StoreUnavailable,
}

impl End {
    fn reason(self) -> &'static str {
        match self {
            End::TimeUp => "time_up",
            End::ClientGone => "client_gone",
            End::NotRead => "not_read",
            End::StoreUnavailable => "store_unavailable",
        }
    }
}

pub fn is_wanted(call: &Call) -> bool {
    matches!(call.query("watch"), Some("true" | "1"))
}

/// Answers with a stream of changes.
pub fn stream(call: &Call, kind: Kind, snapshot: &Arc<Snapshot>) -> Result<Response, Error> {
    let mesh = call.mesh(snapshot)?.map(str::to_owned);
    let filter = Filter::read(call, kind)?;
    let watching = admit(call)?;
    let store = call.context.registrar.store().clone();
    let changes = store.changes().after(snapshot.revision());
    let mut watcher = Watcher { kind, mesh, filter, known: BTreeSet::new(), store, changes };
    let first = match call.query("revision") {
        None => snapshot.of_kind(kind).map(|resource| resource.key.clone()).collect(),
        Some(revision) => {
            let revision: u64 = revision
                .parse()
                .map_err(|_| Error::BadRequest(format!("revision {revision:?} is not a number")))?;
            watcher.since(revision, snapshot)?
        }
    };
    let (sender, body) = Channel::<Bytes, io::Error>::new(1);
    let settings = &call.context.settings;
    let reader = Reader { sender, patience: settings.watch_patience };
    let until = Instant::now() + settings.timeout;
    let metrics = call.context.metrics.clone();
    let first = Batch { keys: first, snapshot: snapshot.clone() };
    tokio::spawn(async move { watcher.run(reader, first, until, metrics, watching).await });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(with_revision(response, snapshot))
}

fn admit(call: &Call) -> Result<Watching, Error> {
    let settings = &call.context.settings;
    let peer = call.parts.extensions.get::<Peer>().map(|peer| peer.addr.ip());
    let admitted = call.context.gates.watch(peer, settings.max_watches, settings.max_watches_per_peer);
    admitted.inspect_err(|_| call.context.metrics.watch_ended("refused"))
}

/// The client's end of a stream.
struct Reader {
    sender: Sender<Bytes, io::Error>,
    /// Longest time for one line.
    patience: Duration,
}

impl Reader {
    async fn tell(&mut self, event: &WatchEvent) -> Result<(), End> {
        // Texts, numbers and what is JSON already always are JSON.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        match timeout(self.patience, self.sender.send_data(Bytes::from(line))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::ClientGone),
            Err(_) => Err(End::NotRead),
        }
    }
}

/// Keys that may have changed, and the state to look at.
struct Batch {
    keys: Vec<Key>,
    snapshot: Arc<Snapshot>,
}

struct Watcher {
    kind: Kind,
    mesh: Option<String>,
    filter: Filter,
    /// Resources that were sent to the client, or that it saw in its list.
    known: BTreeSet<Key>,
    store: Arc<dyn Store>,
    changes: Changes,
}

impl Watcher {
    async fn run(
        mut self,
        mut reader: Reader,
        first: Batch,
        until: Instant,
        metrics: ApiMetrics,
        watching: Watching,
    ) {
        let mut batch = first;
        let end = loop {
            let revision = batch.snapshot.revision();
            if let Err(end) = self.tell(batch, &mut reader).await {
                // What is left of the batch has the revision of what was sent: an end that looks like one
                // would lose it.
                reader.sender.abort(io::ErrorKind::TimedOut.into());
                break end;
            }
            match self.wait(&mut reader, until, revision).await {
                Ok(next) => batch = next,
                Err(end) => break end,
            }
        };
        drop(watching);
        metrics.watch_ended(end.reason());
    }

    /// Tells every change of a batch and then where the stream stands.
    async fn tell(&mut self, batch: Batch, reader: &mut Reader) -> Result<(), End> {
        let Batch { keys, snapshot } = batch;
        for key in keys {
            if let Some(event) = self.event(key, &snapshot) {
                reader.tell(&event).await?;
            }
        }
        reader.tell(&WatchEvent::Bookmark { revision: snapshot.revision() }).await
    }

    /// The next changes; meanwhile says now and then that there are none.
    async fn wait(&mut self, reader: &mut Reader, until: Instant, revision: u64) -> Result<Batch, End> {
        loop {
            match timeout_at(until, timeout(BOOKMARK_EVERY, self.changes.next())).await {
                Err(_) => return Err(End::TimeUp),
                Ok(Ok(None)) => return Err(End::StoreUnavailable),
                Ok(Err(_)) => reader.tell(&WatchEvent::Bookmark { revision }).await?,
                Ok(Ok(Some(dirty))) => {
                    // A store that is unavailable now ends the stream; the client resumes later.
                    let snapshot = self.store.snapshot().map_err(|_| End::StoreUnavailable)?;
                    return Ok(Batch { keys: self.dirty_keys(dirty, &snapshot), snapshot });
                }
            }
        }
    }

    /// Changes after a revision, for a client that saw everything up to it.
    fn since(&mut self, revision: u64, snapshot: &Snapshot) -> Result<Vec<Key>, Error> {
        let mut missed = self.store.changes().after(revision);
        let dirty = missed.try_next();
        if revision > snapshot.revision() || dirty == Some(Dirty::Everything) {
            let text = format!("revision {revision} cannot be resumed: list again and watch from there");
            return Err(Error::Gone(text));
        }
        let concerned =
            snapshot.of_kind(self.kind).filter(|r| self.concerns(&r.key) && self.filter.matches(r));
        self.known = concerned
            .filter(|r| r.version <= revision || r.created != r.modified)
            .map(|r| r.key.clone())
            .collect();
        let Some(Dirty::Keys(keys)) = dirty else { return Ok(Vec::new()) };
        // What is gone now, or no longer matches, counts as having been there for the client.
        let matches = |key: &Key| snapshot.get(key).is_some_and(|resource| self.filter.matches(resource));
        let gone = keys.iter().filter(|key| self.concerns(key) && !matches(key));
        let gone: Vec<Key> = gone.cloned().collect();
        self.known.extend(gone);
        Ok(keys.into_iter().filter(|key| self.concerns(key)).collect())
    }

    fn dirty_keys(&self, dirty: Dirty, snapshot: &Snapshot) -> Vec<Key> {
        match dirty {
            Dirty::Keys(keys) => keys.into_iter().filter(|key| self.concerns(key)).collect(),
            Dirty::Everything => {
                let present = snapshot.of_kind(self.kind).map(|resource| resource.key.clone());
                let all: BTreeSet<Key> = self.known.iter().cloned().chain(present).collect();
                all.into_iter().collect()
            }
        }
    }

    fn concerns(&self, key: &Key) -> bool {
        key.kind == self.kind && self.mesh.as_ref().is_none_or(|mesh| *mesh == *key.mesh)
    }

    fn event(&mut self, key: Key, snapshot: &Snapshot) -> Option<WatchEvent> {
        if !self.concerns(&key) {
            return None;
        }
        let revision = snapshot.revision();
        match snapshot.get(&key).filter(|resource| self.filter.matches(resource)) {
            Some(resource) => {
                let object = universal::render(&inline_keys::mask(resource));
                Some(if self.known.insert(key) {
                    WatchEvent::Added { revision, object }
                } else {
                    WatchEvent::Modified { revision, object }
                })
            }
            None if self.known.remove(&key) => Some(WatchEvent::Deleted { revision, object: deleted(&key) }),
            None => None,
        }
    }
}

/// Fields that remain of a resource that is gone.
fn deleted(key: &Key) -> DeletedResource {
    let in_mesh = key.kind.descriptor().scope == Scope::Mesh;
    DeletedResource {
        r#type: key.kind.name().into(),
        mesh: in_mesh.then(|| key.mesh.to_string()),
        name: key.name.to_string(),
    }
}
