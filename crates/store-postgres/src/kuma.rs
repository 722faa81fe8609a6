//! The tables of Kuma's own control plane: whether they are there, and what is in them.
//!
//! They are only ever read. Ours are in a schema of their own, so both can be in one database.

use std::collections::{BTreeMap, BTreeSet};

use resources::{Key, Kind, Resource, Scope, Spec};
use serde_json::Value;
use store::{
    Error,
    record::{OwnerRecord, Record},
};
use tokio_postgres::{Client, IsolationLevel, Row};

use crate::{
    PostgresConfig,
    endpoint::{DatabaseAddress, failed, within},
    rows::get,
};

/// The layout of Kuma's tables that this program reads: that of Kuma 2.14.
const LAYOUT: i64 = 1_710_856_785;

const ATTEMPT: &str = "read the tables of Kuma";

/// Tells Kuma's table from one of the same name.
const IS_THERE: &str = "
    SELECT count(*) = 5 AND to_regclass('schema_migrations') IS NOT NULL
    FROM information_schema.columns
    WHERE table_name = 'resources' AND table_schema = ANY (current_schemas(false))
        AND column_name IN ('name', 'mesh', 'type', 'version', 'spec')";

const SELECT: &str = r#"
    SELECT type, mesh, name, version::bigint, spec,
        to_char(creation_time, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        to_char(modification_time, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        labels::text, status::text, owner_type, owner_mesh, owner_name
    FROM resources ORDER BY type, mesh, name"#;

/// Reason for leaving out observed resources.
const OBSERVED: &str = "it is observed and written anew";
const UNKNOWN: &str = "this program does not know the kind";
const ORPHAN: &str = "its mesh does not exist";

/// Resources that Kuma has stored.
#[derive(Debug, Default)]
pub struct Kuma {
    pub resources: Vec<Resource>,
    /// Number of resources left out, by kind and reason.
    pub skipped: BTreeMap<(String, &'static str), usize>,
    /// Fields that this program does not know, as `kind: field`. They are left out.
    pub unknown_fields: BTreeSet<String>,
}

impl Kuma {
    /// Reads everything at one moment. Nothing is changed.
    pub async fn read(config: &PostgresConfig) -> Result<Kuma, Error> {
        let endpoint = DatabaseAddress::new(config)?;
        let (mut client, connection) = endpoint.connect().await?;
        let driver = tokio::spawn(connection);
        let read = within(ATTEMPT, read(&mut client)).await;
        driver.abort();
        read
    }
}

/// Refuses a database in which Kuma has data and we have none: an empty mesh beside it would take away
/// every proxy's configuration.
pub(crate) async fn check_imported(client: &Client) -> Result<(), Error> {
    let attempt = "look for the tables of Kuma";
    let wrong = |why: tokio_postgres::Error| failed(attempt, &why);
    let ask = async |sql: &str| client.query_one(sql, &[]).await.map_err(wrong);
    if !get::<bool>(&ask(IS_THERE).await?, 0)? {
        return Ok(());
    }
    let used = get::<bool>(&ask("SELECT to_regclass('kuma_rs.revision') IS NOT NULL").await?, 0)?
        && get::<i64>(&ask("SELECT value FROM kuma_rs.revision").await?, 0)? > 0;
    if used {
        return Ok(());
    }
    Err(Error::Unavailable(
        "this database holds the tables of Kuma's own control plane, and none of them were imported: stop \
        that control plane and run `kuma-cp migrate import-kuma`, which copies everything and changes \
         none of its tables; or name another database (KUMA_STORE_POSTGRES_DB_NAME) to start with an empty mesh"
            .to_owned(),
    ))
}

async fn read(client: &mut Client) -> Result<Kuma, Error> {
    let wrong = |why: tokio_postgres::Error| failed(ATTEMPT, &why);
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .map_err(wrong)?;
    if !get::<bool>(&transaction.query_one(IS_THERE, &[]).await.map_err(wrong)?, 0)? {
        return Err(Error::Unavailable(
            "this database holds no tables of Kuma: there is nothing to import".into(),
        ));
    }
    let layout = transaction.query_opt("SELECT version, dirty FROM schema_migrations", &[]);
    check_layout(layout.await.map_err(wrong)?.as_ref())?;
    let rows = transaction.query(SELECT, &[]).await.map_err(wrong)?;
    let mut kuma = Kuma::default();
    for row in &rows {
        kuma.take(row)?;
    }
    kuma.settle_owners();
    Ok(kuma)
}

fn check_layout(row: Option<&Row>) -> Result<(), Error> {
    let (version, dirty) = match row {
        Some(row) => (get::<i64>(row, 0)?, get::<bool>(row, 1)?),
        None => (0, false),
    };
    if version == LAYOUT && !dirty {
        return Ok(());
    }
    let found = if dirty { format!("{version}, half way") } else { version.to_string() };
    Err(Error::Unavailable(format!(
        "the tables of Kuma are at migration {found}; this program reads those of Kuma 2.14, which are at \
         {LAYOUT}: run `kuma-cp migrate up` of Kuma 2.14 first"
    )))
}

impl Kuma {
    fn skip(&mut self, kind: &str, why: &'static str) {
        *self.skipped.entry((kind.to_owned(), why)).or_default() += 1;
    }

    fn take(&mut self, row: &Row) -> Result<(), Error> {
        let (kind, mesh, name): (String, String, String) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        if kind.ends_with("Insight") || (kind == Kind::Config.name() && name == "cp-catalog") {
            self.skip(&kind, OBSERVED);
            return Ok(());
        }
        let Some(known) = Kind::by_name(&kind) else {
            self.skip(&kind, UNKNOWN);
            return Ok(());
        };
        let unreadable = |column: &str, why: &dyn std::fmt::Display| {
            Error::Damaged(format!(
                "{kind} {name:?} in mesh {mesh:?} of Kuma: {column}: {why}; nothing was imported"
            ))
        };
        let json = |column: &str, text: Option<String>| match text {
            Some(text) => serde_json::from_str::<Value>(&text).map_err(|why| unreadable(column, &why)),
            None => Ok(Value::Null),
        };
        let or_empty =
            |value: Value| if value.is_null() { Value::Object(serde_json::Map::default()) } else { value };
        let spec = or_empty(json("spec", get(row, 4)?)?);
        let status = json("status", get(row, 8)?)?;
        let mut unknown = Vec::new();
        // Read twice, because what is kept in a row of ours has no unknown fields.
        let _ = Spec::from_json(known, spec.clone(), &mut unknown);
        self.unknown_fields.extend(unknown.into_iter().map(|field| format!("{kind}: {field}")));
        let record = Record {
            // Kuma counts from 0, we from 1.
            version: get::<i64>(row, 3)? + 1,
            created: get(row, 5)?,
            modified: get(row, 6)?,
            labels: or_empty(json("labels", get(row, 7)?)?),
            owner: OwnerRecord::from_columns(get(row, 9)?, get(row, 10)?, get(row, 11)?)
                .filter(|owner| Kind::by_name(&owner.kind).is_some()),
            status: status.as_object().filter(|fields| !fields.is_empty()).map(|_| status.clone()),
            kind: kind.clone(),
            mesh: mesh.clone(),
            name: name.clone(),
            spec,
        };
        let resource = record.into_resource().map_err(|why| unreadable("row", &why))?;
        self.resources.push(resource);
        Ok(())
    }

    /// Everything in a mesh ends with its mesh at least. What is in no mesh that exists is left out.
    fn settle_owners(&mut self) {
        let stored: BTreeSet<Key> = self.resources.iter().map(|resource| resource.key.clone()).collect();
        let (kept, orphans): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.resources).into_iter().partition(|it| {
                it.kind().descriptor().scope == Scope::Global
                    || stored.contains(&Key::global(Kind::Mesh, it.mesh()))
            });
        for orphan in orphans {
            self.skip(orphan.kind().name(), ORPHAN);
        }
        self.resources = kept;
        for resource in &mut self.resources {
            let in_mesh = resource.kind().descriptor().scope == Scope::Mesh;
            let mesh = in_mesh.then(|| Key::global(Kind::Mesh, resource.mesh()));
            resource.owner = resource.owner.take().filter(|owner| stored.contains(owner)).or(mesh);
        }
    }
}
