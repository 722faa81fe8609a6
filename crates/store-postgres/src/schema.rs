//! The tables and how they came to be.
//!
//! They live in a schema of their own, so that they can stand next to the tables of other programs.
//! Every change of the layout is one more entry in [`MIGRATIONS`]; entries are never edited.

use store::Error;
use tokio_postgres::{Client, error::SqlState};

use crate::endpoint::{describe, failed};

/// Taken while migrating, so that control planes that start together take turns.
const LOCK: i64 = 0x6b75_6d61_5f72_7300;

const BOOKKEEPING: &str = "
    CREATE SCHEMA kuma_rs;
    CREATE TABLE kuma_rs.schema_migrations (
        version integer PRIMARY KEY,
        applied timestamptz NOT NULL DEFAULT now()
    )";

const MIGRATIONS: &[&str] = &["
    CREATE TABLE kuma_rs.resources (
        kind text NOT NULL,
        mesh text NOT NULL,
        name text NOT NULL,
        version bigint NOT NULL,
        created text NOT NULL,
        modified text NOT NULL,
        labels text NOT NULL,
        owner_kind text,
        owner_mesh text,
        owner_name text,
        spec text NOT NULL,
        status text,
        PRIMARY KEY (kind, mesh, name)
    );
    CREATE INDEX resources_owner ON kuma_rs.resources (owner_kind, owner_mesh, owner_name)
        WHERE owner_kind IS NOT NULL;

    -- One row. A writer locks it first: commits happen in the order of revisions.
    CREATE TABLE kuma_rs.revision (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        value bigint NOT NULL,
        -- Changes up to this revision may be missing from the log.
        trimmed bigint NOT NULL,
        -- Tells this history from that of another database of the same name.
        history text NOT NULL
    );
    INSERT INTO kuma_rs.revision (value, trimmed, history)
        VALUES (0, 0, md5(random()::text || clock_timestamp()::text));

    -- Which keys each revision touched, deleted ones included.
    CREATE TABLE kuma_rs.changes (
        revision bigint NOT NULL,
        kind text NOT NULL,
        mesh text NOT NULL,
        name text NOT NULL,
        PRIMARY KEY (revision, kind, mesh, name)
    )"];

/// Brings the tables up to date, or refuses when they are of a later version than this program.
pub(crate) async fn migrate(client: &mut Client) -> Result<(), Error> {
    let transaction = client.transaction().await.map_err(migration_failed)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(migration_failed)?;
    let exists = "SELECT to_regclass('kuma_rs.schema_migrations') IS NOT NULL";
    let exists: bool = transaction.query_one(exists, &[]).await.map_err(migration_failed)?.get(0);
    if !exists {
        transaction.batch_execute(BOOKKEEPING).await.map_err(migration_failed)?;
    }
    let applied = "SELECT coalesce(max(version), 0) FROM kuma_rs.schema_migrations";
    let applied: i32 = transaction.query_one(applied, &[]).await.map_err(migration_failed)?.get(0);
    for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > applied) {
        transaction.batch_execute(migration).await.map_err(migration_failed)?;
        let record = "INSERT INTO kuma_rs.schema_migrations (version) VALUES ($1)";
        transaction.execute(record, &[&version]).await.map_err(migration_failed)?;
        tracing::info!(version, "migrated the tables in PostgreSQL");
    }
    if usize::try_from(applied).is_ok_and(|applied| applied > MIGRATIONS.len()) {
        return Err(Error::Damaged(format!(
            "the tables in PostgreSQL have version {applied}, this program knows up to version {}: a newer \
             release has used this database; run that release, or restore a backup made before the upgrade",
            MIGRATIONS.len()
        )));
    }
    transaction.commit().await.map_err(migration_failed)
}

fn migration_failed(error: tokio_postgres::Error) -> Error {
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return Error::Unavailable(format!(
            "cannot set up the tables in PostgreSQL: {}; let the user create them with \
             GRANT CREATE ON DATABASE … TO …",
            describe(&error)
        ));
    }
    failed("set up the tables in PostgreSQL", &error)
}
