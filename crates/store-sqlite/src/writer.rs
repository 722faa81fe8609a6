//! The one thread that writes.

use std::{path::PathBuf, sync::Arc, sync::mpsc};

use resources::{Key, Resource};
use rusqlite::Connection;
use store::{
    Error, Snapshot, Write,
    staging::{Owners, Staged, Staging},
};
use tokio::sync::oneshot;

use crate::{Shared, file, rows};

/// Requests that one transaction takes at most: enough to share the cost of a flush, few enough
/// that the first in the group does not wait for long.
const GROUP: usize = 128;

type WriteResult = Result<Staged, Error>;

/// Work for the writer, and the caller who waits for the outcome.
pub(crate) enum WriterRequest {
    /// Dependent writes.
    Together { batch: Vec<Write>, reply: oneshot::Sender<WriteResult> },
    /// Independent writes.
    Each { writes: Vec<Write>, reply: oneshot::Sender<Vec<WriteResult>> },
    /// Would a write be durable?
    Probe { reply: oneshot::Sender<Result<(), Error>> },
    #[cfg(test)]
    Die,
}

/// A request that is worked out, and not durable yet.
enum Answer {
    Together(WriteResult, oneshot::Sender<WriteResult>),
    Each(Vec<WriteResult>, oneshot::Sender<Vec<WriteResult>>),
    Probe(Result<(), Error>, oneshot::Sender<Result<(), Error>>),
}

impl Answer {
    fn new(staging: &mut Staging<'_>, request: WriterRequest) -> Answer {
        match request {
            WriterRequest::Together { batch, reply } => Answer::Together(staging.stage(batch), reply),
            WriterRequest::Each { writes, reply } => Answer::Each(staging.stage_each(writes), reply),
            WriterRequest::Probe { reply } => Answer::Probe(Ok(()), reply),
            #[cfg(test)]
            WriterRequest::Die => std::panic::panic_any("as asked"),
        }
    }

    fn outcomes(&mut self) -> &mut [WriteResult] {
        match self {
            Answer::Together(outcome, _) => std::slice::from_mut(outcome),
            Answer::Each(outcomes, _) => outcomes,
            Answer::Probe(..) => &mut [],
        }
    }

    /// A caller who has gone away does not need an answer.
    fn send(self) {
        match self {
            Answer::Together(outcome, reply) => drop(reply.send(outcome)),
            Answer::Each(outcomes, reply) => drop(reply.send(outcomes)),
            Answer::Probe(outcome, reply) => drop(reply.send(outcome)),
        }
    }
}

/// Owns the connection.
pub(crate) struct Writer {
    path: PathBuf,
    connection: Connection,
    owners: Owners,
    shared: Arc<Shared>,
}

impl Writer {
    pub(crate) fn new(path: PathBuf, connection: Connection, shared: Arc<Shared>) -> Writer {
        let owners = Owners::load(&shared.snapshot.load());
        Writer { path, connection, owners, shared }
    }

    /// Serves requests until all senders are gone, then closes the file.
    pub(crate) fn run(mut self, requests: &mpsc::Receiver<WriterRequest>) {
        while let Ok(first) = requests.recv() {
            let group = std::iter::once(first).chain(requests.try_iter().take(GROUP - 1)).collect();
            self.serve(group);
        }
        if let Err((_, why)) = self.connection.close() {
            // Nothing is lost: the next open finds the same in the write-ahead log.
            tracing::warn!(file = %self.path.display(), %why, "closing the store");
        }
    }

    fn serve(&mut self, group: Vec<WriterRequest>) {
        let before = self.shared.snapshot.load_full();
        let mut staging = Staging::new(&before, &self.owners);
        let mut staged: Vec<Answer> =
            group.into_iter().map(|request| Answer::new(&mut staging, request)).collect();
        let made = staging.finish();
        // When everything was refused there is nothing to make durable.
        if made.revision > before.revision() {
            match self.make_durable(&made) {
                Ok(()) => self.show(&before, &made, &mut staged),
                Err(why) => self.fail(&why, &mut staged),
            }
        }
        self.probe(&mut staged);
        staged.into_iter().for_each(Answer::send);
    }

    /// Answers all probes of a group with one. Callers that have gone away, as they do while a disk hangs,
    /// cost nothing.
    fn probe(&mut self, staged: &mut [Answer]) {
        let mut asked = staged.iter_mut().filter_map(|staged| match staged {
            Answer::Probe(outcome, reply) if !reply.is_closed() => Some(outcome),
            _ => None,
        });
        let Some(first) = asked.next() else { return };
        *first = self.make_a_trace().and_then(|()| file::has_room(&self.path));
        let answer = first.clone();
        asked.for_each(|outcome| outcome.clone_from(&answer));
    }

    /// Writes something no one reads. The value must be another one: SQLite writes nothing otherwise.
    fn make_a_trace(&mut self) -> Result<(), Error> {
        let sql = "INSERT INTO meta (name, value) VALUES ('probes', 1) \
                   ON CONFLICT (name) DO UPDATE SET value = value + 1";
        self.connection.execute(sql, []).map(drop).map_err(|why| file::explain(&self.path, &why))
    }

    fn show(&mut self, before: &Snapshot, made: &Staged, staged: &mut [Answer]) {
        self.owners.apply(before, made);
        self.shared.snapshot.store(Arc::new(before.with(made.revision, &made.changed)));
        for committed in staged.iter_mut().flat_map(Answer::outcomes).flatten() {
            let changed = committed.changed.iter().map(|(key, value)| (key.clone(), value.is_some()));
            self.shared.feed.publish(committed.revision, changed);
        }
    }

    fn fail(&self, why: &rusqlite::Error, staged: &mut [Answer]) {
        let error = file::explain(&self.path, why);
        tracing::error!(requests = staged.len(), %error, "writing failed; nothing was written");
        let error = Error::Unavailable(why_unavailable(&error));
        for outcome in staged.iter_mut().flat_map(Answer::outcomes).filter(|outcome| outcome.is_ok()) {
            *outcome = Err(error.clone());
        }
    }

    /// Dropping an unfinished transaction rolls it back.
    fn make_durable(&mut self, outcome: &Staged) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let changed =
            outcome.changed.iter().map(|(key, value): &(Key, Option<Arc<Resource>>)| (key, value.as_ref()));
        rows::write(&transaction, outcome.revision, changed)?;
        transaction.commit()
    }
}

fn why_unavailable(error: &Error) -> String {
    match error {
        Error::Unavailable(why) | Error::Damaged(why) => why.clone(),
        other => other.to_string(),
    }
}
