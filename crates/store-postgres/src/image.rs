//! The copy of the database in memory and how it follows the database.
//!
//! The log of changes says which keys to read again since a revision. When it cannot tell, because it
//! was trimmed or because the database is no longer the one that was followed (a failover that lost
//! commits, a restored backup), everything is read again and subscribers see that.

use std::{collections::HashSet, sync::Arc};

use arc_swap::ArcSwap;
use resources::{Key, Kind, Resource};
use store::{Error, Feed, Snapshot, staging::Staged};
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::{Client, Row, types::Type};

use crate::{
    endpoint::{failed, within},
    rows::{self, COLUMNS, get, signed, unsigned},
};

/// The name under which the database says that there is something to catch up with.
pub(crate) const CHANNEL: &str = "kuma_rs_changes";

/// Query that tells histories apart. Another database answers differently, and so does the same one after it
/// lost commits: every promotion of a replica begins another timeline.
const HISTORY: &str = "SELECT history || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) \
     FROM kuma_rs.revision";

pub(crate) struct Image {
    snapshot: ArcSwap<Snapshot>,
    feed: Feed,
    /// History that this is an image of, if the server tells. The image is changed while this lock is held.
    history: Mutex<Option<String>>,
}

/// One answer of the database: where it is and what changed since we last looked.
struct Progress {
    revision: u64,
    trimmed: u64,
    changed: Vec<(Key, Option<Arc<Resource>>)>,
}

impl Image {
    /// Reads everything. The connection must already listen, so that nothing falls in between.
    pub(crate) async fn load(client: &Client) -> Result<Image, Error> {
        let history = history(client).await;
        let snapshot = within("read everything from PostgreSQL", read_everything(client)).await?;
        let feed = Feed::new(snapshot.revision());
        Ok(Image { snapshot: ArcSwap::from_pointee(snapshot), feed, history: Mutex::new(history) })
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Follows the database up to its present.
    pub(crate) async fn catch_up(&self, client: &Client) -> Result<(), Error> {
        let mut turn = self.history.lock().await;
        within("catch up with PostgreSQL", self.follow(client, &mut turn)).await
    }

    /// As [`Image::catch_up`], after the connection was lost: the database may be another one now.
    pub(crate) async fn resume(&self, client: &Client) -> Result<(), Error> {
        let mut turn = self.history.lock().await;
        let work = async {
            let now = history(client).await;
            if now.is_none() || *turn != now {
                return self.start_over(client, &mut turn).await;
            }
            self.follow(client, &mut turn).await
        };
        within("catch up with PostgreSQL", work).await
    }

    /// Shows a write of this control plane, which was made on top of revision `base`.
    pub(crate) async fn show(&self, client: &Client, base: u64, committed: &Staged) -> Result<(), Error> {
        let mut turn = self.history.lock().await;
        let shown = self.snapshot.load().revision();
        if shown >= committed.revision {
            return Ok(());
        }
        if shown == base {
            self.apply(committed.revision, &committed.changed);
            return Ok(());
        }
        within("catch up with PostgreSQL", self.follow(client, &mut turn)).await
    }

    async fn follow(&self, client: &Client, turn: &mut MutexGuard<'_, Option<String>>) -> Result<(), Error> {
        let shown = self.snapshot.load().revision();
        let progress = read_changes(client, shown).await?;
        if progress.revision < shown {
            return self.start_over(client, turn).await;
        }
        if progress.trimmed > shown {
            tracing::info!(
                shown,
                trimmed = progress.trimmed,
                "the log of changes was trimmed; reading everything again"
            );
            self.replace(read_everything(client).await?);
            return Ok(());
        }
        if progress.revision > shown {
            self.apply(progress.revision, &progress.changed);
        }
        Ok(())
    }

    /// Reads everything from a database with another past than the one shown. Its revision is moved
    /// beyond what was shown before, so that revisions keep growing for readers of this process.
    async fn start_over(
        &self,
        client: &Client,
        turn: &mut MutexGuard<'_, Option<String>>,
    ) -> Result<(), Error> {
        tracing::warn!("the database may have been restored or replaced; reading everything again");
        let shown = signed(self.snapshot.load().revision())?;
        let skip = "UPDATE kuma_rs.revision SET value = greatest(value, $1) + 1";
        client
            .query_typed(skip, &[(&shown, Type::INT8)])
            .await
            .map_err(|why| failed("take up the database's history", &why))?;
        **turn = history(client).await;
        self.replace(read_everything(client).await?);
        Ok(())
    }

    fn apply(&self, revision: u64, changed: &[(Key, Option<Arc<Resource>>)]) {
        let next = self.snapshot.load().with(revision, changed);
        self.snapshot.store(Arc::new(next));
        self.feed.publish(revision, changed.iter().map(|(key, value)| (key.clone(), value.is_some())));
    }

    fn replace(&self, snapshot: Snapshot) {
        let revision = snapshot.revision();
        self.snapshot.store(Arc::new(snapshot));
        self.feed.forget(revision);
    }
}

/// `None` when the server does not tell, as some hosted ones do not.
async fn history(client: &Client) -> Option<String> {
    client.query_typed_one(HISTORY, &[]).await.ok()?.try_get(0).ok()
}

/// One statement, so that the revision and the rows belong together.
async fn read_everything(client: &Client) -> Result<Snapshot, Error> {
    let sql =
        format!("SELECT v.value, {COLUMNS} FROM kuma_rs.revision v LEFT JOIN kuma_rs.resources r ON true");
    let rows = client.query_typed(&sql, &[]).await.map_err(|why| failed("read PostgreSQL", &why))?;
    let revision = unsigned(get(first(&rows)?, 0)?)?;
    let mut resources = Vec::with_capacity(rows.len());
    for row in &rows {
        if get::<Option<&str>>(row, 1)?.is_some() {
            resources.push(rows::resource(row, 1)?);
        }
    }
    Ok(Snapshot::load(revision, resources))
}

/// One statement, for the same reason. Keys that are gone come without a resource.
async fn read_changes(client: &Client, since: u64) -> Result<Progress, Error> {
    let sql = format!(
        "SELECT v.value, v.trimmed, c.kind, c.mesh, c.name, {COLUMNS}
         FROM kuma_rs.revision v
         LEFT JOIN (SELECT DISTINCT kind, mesh, name FROM kuma_rs.changes WHERE revision > $1) c ON true
         LEFT JOIN kuma_rs.resources r ON r.kind = c.kind AND r.mesh = c.mesh AND r.name = c.name"
    );
    let since = signed(since)?;
    let rows = client.query_typed(&sql, &[(&since, Type::INT8)]).await;
    let rows = rows.map_err(|why| failed("read the changes in PostgreSQL", &why))?;
    let revision = unsigned(get(first(&rows)?, 0)?)?;
    let trimmed = unsigned(get(first(&rows)?, 1)?)?;
    let mut changed = Vec::new();
    let mut unknown = HashSet::new();
    for row in &rows {
        let Some(kind) = get::<Option<&str>>(row, 2)? else { continue };
        if get::<Option<&str>>(row, 5)?.is_some() {
            let resource = rows::resource(row, 5)?;
            changed.push((resource.key.clone(), Some(resource)));
        } else if let Some(kind) = Kind::by_name(kind) {
            changed.push((Key::new(kind, get(row, 3)?, get(row, 4)?), None));
        } else {
            unknown.insert(kind);
        }
    }
    if !unknown.is_empty() {
        // They were never shown here, so there is nothing to take away.
        tracing::debug!(?unknown, "resources of unknown kinds were deleted");
    }
    Ok(Progress { revision, trimmed, changed })
}

fn first(rows: &[Row]) -> Result<&Row, Error> {
    rows.first().ok_or_else(|| {
        Error::Damaged("the table kuma_rs.revision in PostgreSQL is empty: restore the database".into())
    })
}
