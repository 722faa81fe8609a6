//! The store in one SQLite file: the default of the control plane.
//!
//! Reads look at the snapshot in memory, as with every store. Writes queue for one thread that owns
//! the connection; it takes whatever is queued, works it out with [`store::staging`], writes it in one
//! transaction (WAL, `synchronous=FULL`) and only then publishes and answers. So a hundred writers
//! pay for one flush of the disk, and what was answered survives `kill -9` and loss of power.
//!
//! Invariant: one process has the file open; [`file`] sees to that.

mod file;
mod rows;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use store::{Changes, Committed, Error, Feed, Snapshot, Store, Write};
use tokio::sync::{oneshot, watch};

use writer::{Writer, WriterRequest};

/// Settings of an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest size of the database file, in pages of 4096 bytes. Writes beyond it are refused
    /// as on a full disk; deleting makes room again.
    pub max_pages: Option<u32>,
}

/// Keeps resources in a SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    shared: Arc<Shared>,
    /// `None` only while the store is being dropped.
    queue: Option<mpsc::Sender<WriterRequest>>,
    writer: Option<JoinHandle<()>>,
    /// Closed when the writer has ended, however it did.
    alive: watch::Receiver<()>,
    /// Dropped last: the next process may open the file when it is closed.
    _lock: file::Lock,
}

/// State that the writer makes and readers see.
#[derive(Debug)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    feed: Feed,
}

impl Sqlite {
    /// Opens the file, creating it if there is none, and loads everything in it.
    ///
    /// Refuses a file that is open elsewhere, was written by a later schema, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Sqlite, Error> {
        Sqlite::open_with(path, &Options::default())
    }

    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Sqlite, Error> {
        let path = file::resolve(path.as_ref())?;
        let lock = file::Lock::take(&path)?;
        let (connection, snapshot) = file::open(&path, options)?;
        let feed = Feed::new(snapshot.revision());
        let shared = Arc::new(Shared { snapshot: ArcSwap::from_pointee(snapshot), feed });
        let (queue, requests) = mpsc::channel();
        let writer = Writer::new(path.clone(), connection, shared.clone());
        let (ending, alive) = watch::channel(());
        let writer = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || {
                // A panic drops it, too.
                let _ending = ending;
                writer.run(&requests);
            })
            .map_err(|why| Error::Unavailable(format!("cannot start the thread that writes: {why}")))?;
        Ok(Sqlite { path, shared, queue: Some(queue), writer: Some(writer), alive, _lock: lock })
    }

    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn send(&self, request: WriterRequest) -> Result<(), Error> {
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(request).is_ok());
        if sent { Ok(()) } else { Err(self.stopped()) }
    }

    fn stopped(&self) -> Error {
        Error::Unavailable(format!("{}: the thread that writes has stopped", self.path.display()))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        Ok(self.shared.snapshot.load_full())
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(WriterRequest::Together { batch, reply })?;
        answer.await.unwrap_or_else(|_| Err(self.stopped())).map(Committed::from)
    }

    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        let count = writes.len();
        let (reply, answer) = oneshot::channel();
        let outcomes = match self.send(WriterRequest::Each { writes, reply }) {
            Ok(()) => answer.await.map_err(|_| self.stopped()),
            Err(stopped) => Err(stopped),
        };
        let outcomes = outcomes.unwrap_or_else(|stopped| vec![Err(stopped); count]);
        outcomes.into_iter().map(|outcome| outcome.map(Committed::from)).collect()
    }

    async fn probe(&self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.send(WriterRequest::Probe { reply })?;
        answer.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    async fn ended(&self) -> Error {
        let mut alive = self.alive.clone();
        while alive.changed().await.is_ok() {}
        self.stopped()
    }

    fn changes(&self) -> Changes {
        self.shared.feed.subscribe()
    }
}

impl Drop for Sqlite {
    /// Finishes what is queued and closes the file cleanly, the write-ahead log folded into it.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(file = %self.path.display(), "the writer thread has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_writer_that_dies_ends_the_store_and_fails_probes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Sqlite::open(dir.path().join("kuma.db")).unwrap();
        store.probe().await.unwrap();
        store.send(WriterRequest::Die).unwrap();
        let why = store.ended().await.to_string();
        assert!(why.contains("kuma.db") && why.contains("the thread that writes has stopped"), "{why}");
        assert_eq!(store.probe().await.unwrap_err().to_string(), why);
    }
}
