//! The one thread that writes.

use std::{path::PathBuf, sync::Arc, sync::mpsc};

use resources::{Key, Resource};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{Shared, file, rows};
use crate::{
    Committed, Error, Write,
    staging::{Owners, Staging},
};

/// How many batches one transaction takes at most: enough to share the cost of a flush, few enough
/// that the first in the group does not wait for long.
const GROUP: usize = 128;

type Reply = oneshot::Sender<Result<Committed, Error>>;

/// A batch and who waits for its outcome.
pub(super) struct Request {
    pub(super) batch: Vec<Write>,
    pub(super) reply: Reply,
}

/// Owns the connection.
pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    owners: Owners,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, connection: Connection, shared: Arc<Shared>) -> Writer {
        let owners = Owners::load(&shared.snapshot.load());
        Writer { path, connection, owners, shared }
    }

    /// Serves requests until nobody can send any more, then closes the file.
    pub(super) fn run(mut self, requests: &mpsc::Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            let group = std::iter::once(first).chain(requests.try_iter().take(GROUP - 1)).collect();
            self.serve(group);
        }
        if let Err((_, why)) = self.connection.close() {
            // Nothing is lost: the next open finds the same in the write-ahead log.
            tracing::warn!(file = %self.path.display(), %why, "closing the store");
        }
    }

    fn serve(&mut self, group: Vec<Request>) {
        let before = self.shared.snapshot.load_full();
        let mut staging = Staging::new(&before, &self.owners);
        let mut staged = Vec::with_capacity(group.len());
        for Request { batch, reply } in group {
            match staging.stage(batch) {
                Ok(committed) => staged.push((committed, reply)),
                Err(refused) => answer(reply, Err(refused)),
            }
        }
        let Some((last, _)) = staged.last() else { return };
        let outcome = Committed { revision: last.revision, changed: staging.into_changed() };
        if let Err(why) = self.make_durable(&outcome) {
            let error = file::explain(&self.path, &why);
            tracing::error!(batches = staged.len(), %error, "writing failed; nothing was written");
            for (_, reply) in staged {
                answer(reply, Err(Error::Unavailable(why_unavailable(&error))));
            }
            return;
        }
        self.owners.apply(&before, &outcome);
        self.shared.snapshot.store(Arc::new(before.with(outcome.revision, &outcome.changed)));
        for (committed, reply) in staged {
            let changed = committed.changed.iter().map(|(key, value)| (key.clone(), value.is_some()));
            self.shared.feed.publish(committed.revision, changed);
            answer(reply, Ok(committed));
        }
    }

    /// Dropping an unfinished transaction rolls it back.
    fn make_durable(&mut self, outcome: &Committed) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let changed =
            outcome.changed.iter().map(|(key, value): &(Key, Option<Arc<Resource>>)| (key, value.as_ref()));
        rows::write(&transaction, outcome.revision, changed)?;
        transaction.commit()
    }
}

/// A caller who has gone away does not need an answer.
fn answer(reply: Reply, outcome: Result<Committed, Error>) {
    drop(reply.send(outcome));
}

fn why_unavailable(error: &Error) -> String {
    match error {
        Error::Unavailable(why) | Error::Damaged(why) => why.clone(),
        other => other.to_string(),
    }
}
