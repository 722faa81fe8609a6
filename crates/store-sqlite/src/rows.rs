//! Resources as rows of the table `resources`.

use std::{path::Path, sync::Arc};

use resources::{Key, Resource};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde_json::Value;
use store::{Error, Record, Snapshot, record::OwnerRecord};

use crate::file::{damaged, explain};

const SELECT: &str = "
    SELECT kind, mesh, name, version, created, modified, labels,
           owner_kind, owner_mesh, owner_name, spec, status
    FROM resources";

const REPLACE: &str = "
    INSERT OR REPLACE INTO resources
        (kind, mesh, name, version, created, modified, labels, owner_kind, owner_mesh, owner_name, spec, status)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const DELETE: &str = "DELETE FROM resources WHERE kind = ?1 AND mesh = ?2 AND name = ?3";

/// Reads everything; a row that cannot be read is damage.
pub(crate) fn load(connection: &Connection, path: &Path) -> Result<Snapshot, Error> {
    let explain = |why: rusqlite::Error| explain(path, &why);
    let revision: Option<i64> = connection
        .query_row("SELECT value FROM meta WHERE name = 'revision'", [], |row| row.get(0))
        .optional()
        .map_err(explain)?;
    let revision = revision
        .and_then(|revision| u64::try_from(revision).ok())
        .ok_or_else(|| damaged(path, "it does not say which revision it is"))?;

    let mut statement = connection.prepare(SELECT).map_err(explain)?;
    let mut rows = statement.query([]).map_err(explain)?;
    let mut resources = Vec::new();
    while let Some(row) = rows.next().map_err(explain)? {
        let resource = read(row).map_err(|found| damaged(path, &found))?;
        if resource.version > revision {
            let found = format!("{} has version {}, the file {revision}", resource.key, resource.version);
            return Err(damaged(path, &found));
        }
        resources.push(Arc::new(resource));
    }
    Ok(Snapshot::load(revision, resources))
}

fn read(row: &Row<'_>) -> Result<Resource, String> {
    let record = columns(row).map_err(|why| format!("a row of the table resources cannot be read: {why}"))?;
    record.decode()
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Record> {
    let json = |column: usize| -> rusqlite::Result<Option<Value>> {
        let text: Option<String> = row.get(column)?;
        let value = text.map(|text| serde_json::from_str(&text)).transpose();
        value.map_err(|why| {
            rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
        })
    };
    Ok(Record {
        kind: row.get(0)?,
        mesh: row.get(1)?,
        name: row.get(2)?,
        version: row.get(3)?,
        created: row.get(4)?,
        modified: row.get(5)?,
        labels: json(6)?.unwrap_or_default(),
        owner: OwnerRecord::from_columns(row.get(7)?, row.get(8)?, row.get(9)?),
        spec: json(10)?.unwrap_or_default(),
        status: json(11)?,
    })
}

/// Writes what changed, and the revision it makes.
pub(crate) fn write<'c>(
    transaction: &Transaction<'_>,
    revision: u64,
    changed: impl Iterator<Item = (&'c Key, Option<&'c Arc<Resource>>)>,
) -> rusqlite::Result<()> {
    let mut replace = transaction.prepare_cached(REPLACE)?;
    let mut delete = transaction.prepare_cached(DELETE)?;
    for (key, value) in changed {
        let Some(resource) = value else {
            delete.execute(params![key.kind.name(), &*key.mesh, &*key.name])?;
            continue;
        };
        let record = Record::from(resource.as_ref());
        let owner = record.owner.as_ref();
        replace.execute(params![
            record.kind,
            record.mesh,
            record.name,
            record.version,
            record.created,
            record.modified,
            record.labels.to_string(),
            owner.map(|owner| &owner.kind),
            owner.map(|owner| &owner.mesh),
            owner.map(|owner| &owner.name),
            record.spec.to_string(),
            record.status.map(|status| status.to_string()),
        ])?;
    }
    let revision = i64::try_from(revision).unwrap_or(i64::MAX);
    transaction.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'revision'")?.execute([revision])?;
    Ok(())
}
