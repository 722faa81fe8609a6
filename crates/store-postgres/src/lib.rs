//! The store on PostgreSQL, for several control planes on one database.
//!
//! As every store it serves reads from a snapshot in memory. A write is one transaction that locks
//! the single row of `kuma_rs.revision`, so commits happen in the order of their revisions; it logs
//! the keys it touched and notifies. Every control plane listens and reads the logged keys again.
//!
//! Invariant: a snapshot holds exactly what the database held at the snapshot's revision. While the
//! database cannot be reached the last snapshot stays, [`Store::outage`] says that it may be outdated,
//! and nothing is written.

mod batch;
mod config;
mod endpoint;
mod image;
mod kuma;
mod listener;
mod rows;
mod schema;
mod tls;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use jiff::Timestamp;
use store::{Bookmark, Changes, Committed, Error, Outage, Snapshot, Store, Write};
use tokio::{sync::Notify, task::JoinHandle};

use batch::{BatchFailure, TransactionOutcome};
pub use config::{PostgresConfig, PostgresTls, TlsMode};
use endpoint::{DatabaseAddress, reason, within};
use image::Image;
pub use kuma::Kuma;
use listener::Link;

/// Keeps resources in PostgreSQL.
pub struct Postgres {
    pool: Pool,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

/// State that callers and the listener share.
struct Shared {
    endpoint: DatabaseAddress,
    image: Image,
    /// Set while the image cannot be vouched for.
    outage: ArcSwapOption<Outage>,
    /// Asks the listener to connect anew and look closely.
    doubted: Notify,
}

impl Postgres {
    /// Connects, brings the tables up to date, reads everything and follows the database from there.
    ///
    /// Refuses a database with tables of Kuma from which nothing was imported.
    pub async fn connect(config: PostgresConfig) -> Result<Postgres, Error> {
        Postgres::open(config, true).await
    }

    /// As [`Postgres::connect`], for importing what is in Kuma's tables.
    pub async fn connect_beside_kuma(config: PostgresConfig) -> Result<Postgres, Error> {
        Postgres::open(config, false).await
    }

    async fn open(config: PostgresConfig, must_be_imported: bool) -> Result<Postgres, Error> {
        let endpoint = DatabaseAddress::new(&config)?;
        let pool = endpoint.pool()?;
        let mut client = pool.get().await.map_err(|why| endpoint.no_connection(why))?;
        if must_be_imported {
            within("look for the tables of Kuma", kuma::check_imported(&client)).await?;
        }
        within("set up the tables in PostgreSQL", schema::migrate(&mut client)).await?;
        drop(client);

        let link = Link::establish(&endpoint).await?;
        let image = Image::load(&link.client).await?;
        let shared =
            Arc::new(Shared { endpoint, image, outage: ArcSwapOption::empty(), doubted: Notify::new() });
        let listener = tokio::spawn(listener::run(shared.clone(), link));
        Ok(Postgres { pool, shared, listener })
    }
}

impl Shared {
    /// Begins an outage, or gives another reason for the one that goes on.
    fn interrupted(&self, reason: String) {
        let since = self.outage.load().as_ref().map_or_else(Timestamp::now, |outage| outage.since);
        self.outage.store(Some(Arc::new(Outage { since, reason })));
    }

    /// Ends the outage that was known before the image was brought up to date; not one that was
    /// found in the meantime.
    fn ended(&self, outage: Option<Arc<Outage>>) {
        self.outage.compare_and_swap(&outage, None);
    }

    fn check(&self) -> Result<(), Error> {
        match &*self.outage.load() {
            Some(outage) => Err(Error::Unavailable(outage.reason.clone())),
            None => Ok(()),
        }
    }

    /// Begins an outage because the image may be wrong: says so, and refuses writes, until the listener has
    /// looked.
    fn doubt(&self, why: String) {
        self.interrupted(why);
        self.doubted.notify_one();
    }
}

#[async_trait]
impl Store for Postgres {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        Ok(self.shared.image.snapshot())
    }

    fn outage(&self) -> Option<Outage> {
        self.shared.outage.load().as_deref().cloned()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.make(async |client, shown| batch::write(client, batch, shown).await).await.map(Committed::from)
    }

    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        let count = writes.len();
        let outcomes = self.make(async |client, shown| batch::write_each(client, writes, shown).await);
        let outcomes = outcomes.await.unwrap_or_else(|error| vec![Err(error); count]);
        outcomes.into_iter().map(|outcome| outcome.map(Committed::from)).collect()
    }

    fn changes(&self) -> Changes {
        self.shared.image.feed().subscribe()
    }

    async fn probe(&self) -> Result<(), Error> {
        self.ask(batch::probe).await
    }

    async fn latest(&self) -> Result<Bookmark, Error> {
        self.ask(batch::latest).await.map(Bookmark::of_revision)
    }
}

impl Postgres {
    /// Asks the database something that changes nothing.
    async fn ask<T>(&self, question: impl AsyncFnOnce(&Object) -> Result<T, Error>) -> Result<T, Error> {
        self.shared.check()?;
        let client = self.pool.get().await.map_err(|why| self.shared.endpoint.no_connection(why))?;
        let answer = question(&client).await;
        if answer.is_err() {
            drop(Object::take(client));
        }
        answer
    }

    /// Runs a transaction and shows what it made.
    async fn make<T>(
        &self,
        transaction: impl AsyncFnOnce(&mut Object, u64) -> Result<TransactionOutcome<T>, BatchFailure>,
    ) -> Result<T, Error> {
        let Shared { endpoint, image, .. } = &*self.shared;
        self.shared.check()?;
        let mut client = self.pool.get().await.map_err(|why| endpoint.no_connection(why))?;
        let shown = image.snapshot().revision();
        match transaction(&mut client, shown).await {
            Ok(TransactionOutcome { base, committed, outcome }) => {
                if let Err(why) = image.show(&client, base, &committed).await {
                    // The write itself is safe. It becomes visible when the listener has caught up.
                    self.shared.doubt(reason(why));
                }
                Ok(outcome)
            }
            Err(BatchFailure::Behind { stored, shown }) => {
                let why = format!(
                    "the database is at revision {stored}, but revision {shown} was seen before: it lost \
                     commits, as a failover to a replica may; reading everything again"
                );
                self.shared.doubt(why.clone());
                Err(Error::Unavailable(why))
            }
            Err(BatchFailure::Refused(why)) => {
                if matches!(why, Error::Unavailable(_)) {
                    // The state of the connection is unknown, so it is not used again.
                    drop(Object::take(client));
                }
                Err(why)
            }
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("outage", &self.shared.outage.load()).finish_non_exhaustive()
    }
}
