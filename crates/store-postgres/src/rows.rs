//! Resources as rows, and rows as parameters of statements on many rows.

use std::sync::Arc;

use resources::{Key, Resource};
use serde_json::Value;
use store::{
    Error,
    record::{OwnerRecord, Record},
};
use tokio_postgres::{Row, types::ToSql};

/// The columns [`resource`] reads, of a table or alias `r`.
pub(crate) const COLUMNS: &str = "r.kind, r.mesh, r.name, r.version, r.created, r.modified, r.labels, \
     r.owner_kind, r.owner_mesh, r.owner_name, r.spec, r.status";

/// Reads [`COLUMNS`] from column `at` on.
pub(crate) fn resource(row: &Row, at: usize) -> Result<Arc<Resource>, Error> {
    let (kind, mesh, name): (String, String, String) = (get(row, at)?, get(row, at + 1)?, get(row, at + 2)?);
    let json = |column: &str, text: String| {
        serde_json::from_str::<Value>(&text).map_err(|why| {
            Error::Damaged(format!("{kind} {name:?} in mesh {mesh:?}: {column} is not JSON: {why}"))
        })
    };
    let labels = json("labels", get(row, at + 6)?)?;
    let spec = json("spec", get(row, at + 10)?)?;
    let status = get::<Option<String>>(row, at + 11)?.map(|text| json("status", text)).transpose()?;
    let record = Record {
        version: get(row, at + 3)?,
        created: get(row, at + 4)?,
        modified: get(row, at + 5)?,
        owner: OwnerRecord::from_columns(get(row, at + 7)?, get(row, at + 8)?, get(row, at + 9)?),
        kind,
        mesh,
        name,
        labels,
        spec,
        status,
    };
    record.into_resource().map(Arc::new)
}

/// Reads a column that must have the type the schema gives it.
pub(crate) fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|why| {
        let column = row.columns().get(at).map_or("?", |column| column.name());
        Error::Damaged(format!("column {column} of a row in PostgreSQL: {}", crate::endpoint::describe(&why)))
    })
}

/// Revisions are positive and count writes; SQL has signed integers only.
pub(crate) fn signed(revision: u64) -> Result<i64, Error> {
    i64::try_from(revision)
        .map_err(|_| Error::Damaged(format!("revision {revision} is more than PostgreSQL can count")))
}

pub(crate) fn unsigned(revision: i64) -> Result<u64, Error> {
    u64::try_from(revision).map_err(|_| Error::Damaged(format!("revision {revision} is negative")))
}

/// Keys as three parallel arrays.
#[derive(Debug, Default)]
pub(crate) struct Keys<'a> {
    pub(crate) kind: Vec<&'a str>,
    pub(crate) mesh: Vec<&'a str>,
    pub(crate) name: Vec<&'a str>,
}

impl<'a> FromIterator<&'a Key> for Keys<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Key>>(keys: I) -> Self {
        let mut columns = Keys::default();
        for key in keys {
            columns.kind.push(key.kind.name());
            columns.mesh.push(&key.mesh);
            columns.name.push(&key.name);
        }
        columns
    }
}

impl Keys<'_> {
    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 3] {
        [&self.kind, &self.mesh, &self.name]
    }
}

/// Resources as parallel arrays, in the order of [`COLUMNS`].
#[derive(Debug, Default)]
pub(crate) struct Columns {
    kind: Vec<String>,
    mesh: Vec<String>,
    name: Vec<String>,
    version: Vec<i64>,
    created: Vec<String>,
    modified: Vec<String>,
    labels: Vec<String>,
    owner_kind: Vec<Option<String>>,
    owner_mesh: Vec<Option<String>>,
    owner_name: Vec<Option<String>>,
    spec: Vec<String>,
    status: Vec<Option<String>>,
}

impl<'a> FromIterator<&'a Resource> for Columns {
    fn from_iter<I: IntoIterator<Item = &'a Resource>>(resources: I) -> Self {
        let mut columns = Columns::default();
        for resource in resources {
            columns.push(Record::from(resource));
        }
        columns
    }
}

impl Columns {
    fn push(&mut self, record: Record) {
        self.kind.push(record.kind);
        self.mesh.push(record.mesh);
        self.name.push(record.name);
        self.version.push(record.version);
        self.created.push(record.created);
        self.modified.push(record.modified);
        self.labels.push(record.labels.to_string());
        let (kind, mesh, name) = match record.owner {
            Some(owner) => (Some(owner.kind), Some(owner.mesh), Some(owner.name)),
            None => (None, None, None),
        };
        self.owner_kind.push(kind);
        self.owner_mesh.push(mesh);
        self.owner_name.push(name);
        self.spec.push(record.spec.to_string());
        self.status.push(record.status.map(|status| status.to_string()));
    }

    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.kind,
            &self.mesh,
            &self.name,
            &self.version,
            &self.created,
            &self.modified,
            &self.labels,
            &self.owner_kind,
            &self.owner_mesh,
            &self.owner_name,
            &self.spec,
            &self.status,
        ]
    }
}
