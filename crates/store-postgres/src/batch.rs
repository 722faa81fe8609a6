//! Writes as one transaction.
//!
//! The transaction locks the revision first, so that writers of all control planes take turns, then
//! reads the few rows that can matter and works the batch out on them with the code all stores share.

use std::{collections::BTreeSet, sync::Arc};

use deadpool_postgres::{Client, Transaction};
use resources::Resource;
use store::{
    Error, Snapshot, Write,
    staging::{Owners, Staged, Staging},
};
use tokio_postgres::{error::Severity, types::ToSql};

use crate::{
    endpoint::{describe, failed, within},
    image::CHANNEL,
    rows::{self, COLUMNS, Columns, Keys, get, signed, unsigned},
};

/// Revisions kept in the log. A control plane that was away for fewer of them finds all it missed there.
const LOG: u64 = 100_000;
/// The log is cut once per so many revisions.
const TRIM_EVERY: u64 = 1000;

const ATTEMPT: &str = "write to PostgreSQL (nothing was written)";

/// Reasons why a batch was not written.
pub(crate) enum BatchFailure {
    Refused(Error),
    /// The database is at an earlier revision than one that was seen before.
    Behind {
        stored: u64,
        shown: u64,
    },
}

impl From<Error> for BatchFailure {
    fn from(error: Error) -> Self {
        BatchFailure::Refused(error)
    }
}

/// Changes of a transaction, and its answer.
pub(crate) struct TransactionOutcome<T> {
    /// The revision it was made on top of.
    pub(crate) base: u64,
    /// Everything it changed; nothing when all of it was refused.
    pub(crate) committed: Staged,
    pub(crate) outcome: T,
}

/// Makes dependent writes: all of them or none.
pub(crate) async fn write(
    client: &mut Client,
    batch: Vec<Write>,
    shown: u64,
) -> Result<TransactionOutcome<Staged>, BatchFailure> {
    in_transaction(client, batch, shown, |staging, batch| Ok(staging.stage(batch)?)).await
}

/// Makes independent writes; those that are refused are left out.
pub(crate) async fn write_each(
    client: &mut Client,
    writes: Vec<Write>,
    shown: u64,
) -> Result<TransactionOutcome<Vec<Result<Staged, Error>>>, BatchFailure> {
    in_transaction(client, writes, shown, |staging, writes| Ok(staging.stage_each(writes))).await
}

/// Makes durable what `stage` works out. A database that is behind `shown` is not the one this control
/// plane knows.
async fn in_transaction<T>(
    client: &mut Client,
    writes: Vec<Write>,
    shown: u64,
    stage: impl FnOnce(&mut Staging<'_>, Vec<Write>) -> Result<T, BatchFailure>,
) -> Result<TransactionOutcome<T>, BatchFailure> {
    let refused = |why: tokio_postgres::Error| failed(ATTEMPT, &why);
    let work = async {
        let transaction = client.transaction().await.map_err(refused)?;
        let base = lock(&transaction).await?;
        if base < shown {
            return Err(BatchFailure::Behind { stored: base, shown });
        }
        let known = Snapshot::load(base, read(&transaction, &writes).await?);
        let owners = Owners::load(&known);
        let mut staging = Staging::new(&known, &owners);
        let outcome = stage(&mut staging, writes)?;
        let committed = staging.finish();
        if committed.revision > base {
            apply(&transaction, &committed).await?;
        }
        if base / TRIM_EVERY != committed.revision / TRIM_EVERY {
            trim(&transaction, committed.revision).await?;
        }
        Ok((transaction, TransactionOutcome { base, committed, outcome }))
    };
    let (transaction, made) = within(ATTEMPT, work).await?;
    let commit = async { transaction.commit().await.map_err(|why| undecided(&why)) };
    within("learn whether a write to PostgreSQL was committed (its outcome is unknown)", commit).await?;
    Ok(made)
}

/// Proves that a write would be durable now: makes one that leaves every value as it is. A server that cannot write to
/// its disk, or must not, answers a `SELECT` all the same.
pub(crate) async fn probe(client: &Client) -> Result<(), Error> {
    let work = async {
        let sql = "UPDATE kuma_rs.revision SET trimmed = trimmed";
        let statement = client.prepare_cached(sql).await.map_err(|why| failed(ATTEMPT, &why))?;
        client.execute(&statement, &[]).await.map_err(|why| failed(ATTEMPT, &why)).map(drop)
    };
    within(ATTEMPT, work).await
}

/// The revision of the last commit.
pub(crate) async fn latest(client: &Client) -> Result<u64, Error> {
    let attempt = "ask PostgreSQL for its revision";
    let work = async {
        let statement = client.prepare_cached("SELECT value FROM kuma_rs.revision").await;
        let statement = statement.map_err(|why| failed(attempt, &why))?;
        let row = client.query_one(&statement, &[]).await.map_err(|why| failed(attempt, &why))?;
        unsigned(get(&row, 0)?)
    };
    within(attempt, work).await
}

async fn lock(transaction: &Transaction<'_>) -> Result<u64, Error> {
    let sql = "SELECT value FROM kuma_rs.revision FOR UPDATE";
    let statement = transaction.prepare_cached(sql).await.map_err(|why| failed(ATTEMPT, &why))?;
    let row = transaction.query_one(&statement, &[]).await.map_err(|why| failed(ATTEMPT, &why))?;
    unsigned(get(&row, 0)?)
}

/// The stored resources that decide what the batch does: the ones it names, their owners, and what
/// deletions take along.
async fn read(transaction: &Transaction<'_>, batch: &[Write]) -> Result<Vec<Arc<Resource>>, Error> {
    let mut named = BTreeSet::new();
    let mut roots = BTreeSet::new();
    for write in batch {
        named.insert(write.key());
        match write {
            Write::Delete { key, .. } | Write::DeleteUnlessOwner { key, .. } => {
                roots.insert(key);
            }
            Write::Create(resource) | Write::Update { resource, .. } | Write::Restore(resource) => {
                if let Some(owner) = &resource.owner {
                    named.insert(owner);
                    // A later deletion of the owner takes this one along, and then what it owns.
                    roots.insert(&resource.key);
                }
            }
            // It stays with the owner it has, which is read when that one is deleted.
            Write::Status { .. } => {}
        }
    }
    if !batch.iter().any(|write| matches!(write, Write::Delete { .. } | Write::DeleteUnlessOwner { .. })) {
        roots.clear();
    }
    let sql = format!(
        "WITH RECURSIVE owned (kind, mesh, name) AS (
             SELECT * FROM unnest($4::text[], $5::text[], $6::text[])
             UNION
             SELECT r.kind, r.mesh, r.name FROM owned o JOIN kuma_rs.resources r
                 ON r.owner_kind = o.kind AND r.owner_mesh = o.mesh AND r.owner_name = o.name
         ), needed (kind, mesh, name) AS (
             SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) UNION SELECT * FROM owned
         )
         SELECT {COLUMNS} FROM needed n JOIN kuma_rs.resources r
             ON r.kind = n.kind AND r.mesh = n.mesh AND r.name = n.name"
    );
    let named = named.into_iter().collect::<Keys<'_>>();
    let roots = roots.into_iter().collect::<Keys<'_>>();
    let parameters = [named.parameters(), roots.parameters()].concat();
    let statement = transaction.prepare_cached(&sql).await.map_err(|why| failed(ATTEMPT, &why))?;
    let found = transaction.query(&statement, &parameters).await.map_err(|why| failed(ATTEMPT, &why))?;
    found.iter().map(|row| rows::resource(row, 0)).collect()
}

/// Everything in one statement: a round trip while others wait for the lock is what writing costs.
const APPLY: &str = "
    WITH gone (kind, mesh, name) AS (
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
    ), kept AS (
        SELECT * FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
            AS k (kind, mesh, name, version, created, modified, labels,
                owner_kind, owner_mesh, owner_name, spec, status)
    ), deleted AS (
        DELETE FROM kuma_rs.resources r USING gone g
        WHERE r.kind = g.kind AND r.mesh = g.mesh AND r.name = g.name
    ), stored AS (
        INSERT INTO kuma_rs.resources (kind, mesh, name, version, created, modified, labels,
            owner_kind, owner_mesh, owner_name, spec, status)
        SELECT * FROM kept
        ON CONFLICT (kind, mesh, name) DO UPDATE SET version = excluded.version,
            created = excluded.created, modified = excluded.modified, labels = excluded.labels,
            owner_kind = excluded.owner_kind, owner_mesh = excluded.owner_mesh,
            owner_name = excluded.owner_name, spec = excluded.spec, status = excluded.status
    ), logged AS (
        INSERT INTO kuma_rs.changes (revision, kind, mesh, name)
        SELECT $16::bigint, kind, mesh, name FROM gone
        UNION ALL SELECT $16::bigint, kind, mesh, name FROM kept
    ), counted AS (
        UPDATE kuma_rs.revision SET value = $16::bigint
    )
    SELECT pg_notify($17, $16::bigint::text)";

async fn apply(transaction: &Transaction<'_>, committed: &Staged) -> Result<(), Error> {
    let gone = committed.changed.iter().filter(|(_, value)| value.is_none());
    let gone: Keys<'_> = gone.map(|(key, _)| key).collect();
    let kept: Columns = committed.changed.iter().filter_map(|(_, value)| value.as_deref()).collect();
    let revision = signed(committed.revision)?;
    let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::new();
    parameters.extend(gone.parameters());
    parameters.extend(kept.parameters());
    parameters.extend([&revision as &(dyn ToSql + Sync), &CHANNEL]);
    let statement = transaction.prepare_cached(APPLY).await.map_err(|why| failed(ATTEMPT, &why))?;
    transaction.execute(&statement, &parameters).await.map_err(|why| failed(ATTEMPT, &why))?;
    Ok(())
}

async fn trim(transaction: &Transaction<'_>, revision: u64) -> Result<(), Error> {
    let limit = signed(revision.saturating_sub(LOG))?;
    let sql = "WITH old AS (DELETE FROM kuma_rs.changes WHERE revision <= $1)
        UPDATE kuma_rs.revision SET trimmed = greatest(trimmed, $1)";
    transaction.execute(sql, &[&limit]).await.map_err(|why| failed(ATTEMPT, &why))?;
    Ok(())
}

/// Only a plain error of the server means that the transaction was rolled back; after anything else
/// the commit may have happened.
fn undecided(error: &tokio_postgres::Error) -> Error {
    let severity = error.as_db_error().and_then(|db| db.parsed_severity());
    if severity == Some(Severity::Error) {
        return failed(ATTEMPT, error);
    }
    Error::Unavailable(format!(
        "the connection to PostgreSQL broke during a commit, whether the write happened is unknown: {}",
        describe(error)
    ))
}
