//! The row form of a resource, shared by everything that writes resources down: SQLite, PostgreSQL
//! and backups. One column per field; labels, spec and status are JSON.

use jiff::Timestamp;
use resources::{Key, Kind, Labels, Resource, Scope, Spec, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

/// A resource as a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    pub kind: String,
    /// Empty for kinds of global scope.
    pub mesh: String,
    pub name: String,
    /// Signed because that is what SQL databases have.
    pub version: i64,
    /// RFC 3339 with nine digits of seconds, so that text order is time order.
    pub created: String,
    pub modified: String,
    pub labels: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerRecord>,
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// The key of an owner as three columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnerRecord {
    pub kind: String,
    pub mesh: String,
    pub name: String,
}

impl OwnerRecord {
    /// From three columns of which all or none are set.
    pub fn from_columns(
        kind: Option<String>,
        mesh: Option<String>,
        name: Option<String>,
    ) -> Option<OwnerRecord> {
        match (kind, mesh, name) {
            (Some(kind), Some(mesh), Some(name)) => Some(OwnerRecord { kind, mesh, name }),
            _ => None,
        }
    }
}

impl From<&Resource> for Record {
    fn from(resource: &Resource) -> Record {
        Record {
            kind: resource.kind().name().to_owned(),
            mesh: resource.mesh().to_owned(),
            name: resource.name().to_owned(),
            // Versions count writes; 2^63 of them are out of reach, and `into_resource` lets no more in.
            version: i64::try_from(resource.version).unwrap_or(i64::MAX),
            created: timestamp(resource.created),
            modified: timestamp(resource.modified),
            labels: resource.labels.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect(),
            owner: resource.owner.as_ref().map(|owner| OwnerRecord {
                kind: owner.kind.name().to_owned(),
                mesh: owner.mesh.to_string(),
                name: owner.name.to_string(),
            }),
            spec: resource.spec.to_json(),
            status: resource.status.as_ref().map(Status::to_json),
        }
    }
}

impl Record {
    /// The resource this row stands for, or [`Error::Damaged`] naming the row, the column and why.
    pub fn into_resource(self) -> Result<Resource, Error> {
        self.decode().map_err(Error::Damaged)
    }

    /// As [`Record::into_resource`], for callers that describe the damage themselves.
    pub fn decode(self) -> Result<Resource, String> {
        let Record { kind, mesh, name, version, created, modified, labels, owner, spec, status } = self;
        let row = if mesh.is_empty() {
            format!("{kind} {name:?}")
        } else {
            format!("{kind} {name:?} in mesh {mesh:?}")
        };
        let damaged = |column: &str, why: &dyn std::fmt::Display| format!("{row}: {column}: {why}");

        let key = key(&kind, &mesh, &name).map_err(|why| damaged("key", &why))?;
        let owner = owner
            .map(|owner| self::key(&owner.kind, &owner.mesh, &owner.name))
            .transpose()
            .map_err(|why| damaged("owner", &why))?;
        let status = status
            .map(|status| Status::from_json(key.kind, status))
            .transpose()
            .map_err(|why| damaged("status", &why))?;
        Ok(Resource {
            labels: serde_json::from_value::<Labels>(labels).map_err(|why| damaged("labels", &why))?,
            created: created.parse().map_err(|why| damaged("created", &why))?,
            modified: modified.parse().map_err(|why| damaged("modified", &why))?,
            version: u64::try_from(version).map_err(|why| damaged("version", &why))?,
            owner,
            spec: Spec::from_json(key.kind, spec, &mut Vec::new()).map_err(|why| damaged("spec", &why))?,
            status,
            key,
        })
    }
}

fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}

fn key(kind: &str, mesh: &str, name: &str) -> Result<Key, String> {
    let kind: Kind = kind.parse().map_err(|why: resources::kind::UnknownKind| why.to_string())?;
    match kind.descriptor().scope {
        Scope::Global if !mesh.is_empty() => Err(format!("{kind} has no mesh, found {mesh:?}")),
        Scope::Mesh if mesh.is_empty() => Err(format!("{kind} needs a mesh, found none")),
        _ if name.is_empty() => Err("the name is empty".to_owned()),
        _ => Ok(Key::new(kind, mesh, name)),
    }
}
