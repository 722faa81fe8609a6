//! A list that goes on: one JSON document per line for every change.
//!
//! `GET {list}?watch=true` sends what is there as `ADDED`, then changes; with `revision=N` (the
//! `X-Kuma-Revision` of an earlier answer) only what changed after it. Every line says its revision, so
//! a client resumes where it stopped: streams end after the request timeout. Changes between two lines
//! may be combined, they are never left out; a revision that is too old to be resumed is refused.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::channel::{Channel, Sender};
use resources::{Key, Kind, Scope, format::universal};
use serde_json::{Value, json};
use store::{Changes, Dirty, Snapshot, Store};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Error,
    call::{Call, with_revision},
    filter::Filter,
};

/// An idle stream says where it stands this often, which also finds out whether anybody listens.
const BOOKMARK_EVERY: Duration = Duration::from_secs(10);

pub fn is_wanted(call: &Call) -> bool {
    matches!(call.query("watch"), Some("true" | "1"))
}

/// Answers with a stream of changes.
pub fn stream(call: &Call, kind: Kind, snapshot: &Snapshot) -> Result<Response, Error> {
    let mesh = call.mesh(snapshot)?.map(str::to_owned);
    call.check_access(kind)?;
    let filter = Filter::read(call, kind)?;
    let store = call.context.registrar.store().clone();
    let mut changes = store.changes().after(snapshot.revision());
    let mut watcher = Watcher { kind, mesh, filter, known: BTreeSet::new(), store };
    let first = match call.query("revision") {
        None => watcher.everything(snapshot),
        Some(revision) => {
            let revision: u64 = revision
                .parse()
                .map_err(|_| Error::BadRequest(format!("revision {revision:?} is not a number")))?;
            watcher.since(revision, snapshot)?
        }
    };
    let (sender, body) = Channel::<Bytes>::new(16);
    let until = Instant::now() + call.context.settings.timeout;
    let revision = snapshot.revision();
    tokio::spawn(async move { watcher.run(sender, first, revision, &mut changes, until).await });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(with_revision(response, snapshot))
}

struct Watcher {
    kind: Kind,
    mesh: Option<String>,
    filter: Filter,
    /// What the client has been told to exist, or saw in its list.
    known: BTreeSet<Key>,
    store: Arc<dyn Store>,
}

impl Watcher {
    async fn run(
        mut self,
        mut sender: Sender<Bytes>,
        first: Vec<Value>,
        mut revision: u64,
        changes: &mut Changes,
        until: Instant,
    ) {
        let mut events = first;
        loop {
            events.push(json!({ "type": "BOOKMARK", "revision": revision }));
            for event in events.drain(..) {
                if sender.send_data(Bytes::from(format!("{event}\n"))).await.is_err() {
                    return;
                }
            }
            match timeout_at(until, timeout(BOOKMARK_EVERY, changes.next())).await {
                // Time is up, or the store is gone.
                Err(_) | Ok(Ok(None)) => return,
                Ok(Err(_)) => {}
                Ok(Ok(Some(dirty))) => {
                    // A store that is unavailable now ends the stream; the client resumes later.
                    let Ok(snapshot) = self.store.snapshot() else { return };
                    revision = snapshot.revision();
                    events = self.events(dirty, &snapshot);
                }
            }
        }
    }

    /// What is there, for a client that knows nothing.
    fn everything(&mut self, snapshot: &Snapshot) -> Vec<Value> {
        let keys: Vec<Key> = snapshot.of_kind(self.kind).map(|resource| resource.key.clone()).collect();
        keys.into_iter().filter_map(|key| self.event(key, snapshot)).collect()
    }

    /// What changed after a revision, for a client that saw everything up to it.
    fn since(&mut self, revision: u64, snapshot: &Snapshot) -> Result<Vec<Value>, Error> {
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
        // What is gone now, or no longer matches, was there for the client as far as anybody remembers.
        let matches = |key: &Key| snapshot.get(key).is_some_and(|resource| self.filter.matches(resource));
        let gone = keys.iter().filter(|key| self.concerns(key) && !matches(key));
        let gone: Vec<Key> = gone.cloned().collect();
        self.known.extend(gone);
        Ok(keys.into_iter().filter_map(|key| self.event(key, snapshot)).collect())
    }

    fn events(&mut self, dirty: Dirty, snapshot: &Snapshot) -> Vec<Value> {
        let keys = match dirty {
            Dirty::Keys(keys) => keys,
            Dirty::Everything => {
                let present = snapshot.of_kind(self.kind).map(|resource| resource.key.clone());
                self.known.iter().cloned().chain(present).collect()
            }
        };
        keys.into_iter().filter_map(|key| self.event(key, snapshot)).collect()
    }

    fn concerns(&self, key: &Key) -> bool {
        key.kind == self.kind && self.mesh.as_ref().is_none_or(|mesh| *mesh == *key.mesh)
    }

    fn event(&mut self, key: Key, snapshot: &Snapshot) -> Option<Value> {
        if !self.concerns(&key) {
            return None;
        }
        let revision = snapshot.revision();
        match snapshot.get(&key).filter(|resource| self.filter.matches(resource)) {
            Some(resource) => {
                let change = if self.known.insert(key) { "ADDED" } else { "MODIFIED" };
                Some(json!({ "type": change, "revision": revision, "object": universal::render(resource) }))
            }
            None if self.known.remove(&key) => {
                Some(json!({ "type": "DELETED", "revision": revision, "object": identity(&key) }))
            }
            None => None,
        }
    }
}

/// What is left of a resource that is gone.
fn identity(key: &Key) -> Value {
    match key.kind.descriptor().scope {
        Scope::Global => json!({ "type": key.kind.name(), "name": key.name }),
        Scope::Mesh => json!({ "type": key.kind.name(), "mesh": key.mesh, "name": key.name }),
    }
}
