//! The table of each kind: metadata around the columns of the kind.

mod kinds;
mod policies;

use contract::{
    lenient::read_partly,
    resource::{Metadata, ShownResource},
};
use resources::{Kind, labels};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cell::{self, Column, line, list, since},
    output::{self, OutputFormat},
    types::Type,
};

/// The titles, and the cells of every item.
pub struct Cells {
    pub titles: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// Columns of a kind, whose items are read as this type.
type Columns<S> = Vec<Column<ShownResource<S>>>;

/// Resources as they were sent.
struct Table<'a> {
    kind: &'a Type,
    items: Vec<&'a Value>,
    wide: bool,
}

pub fn render<'a>(kind: &Type, items: impl IntoIterator<Item = &'a Value>, format: OutputFormat) -> String {
    if format == OutputFormat::Name {
        return names(kind, items, false);
    }
    let Cells { titles, rows } = cells(kind, items, format);
    output::table(&titles, rows)
}

/// A line for each, which `get`, `delete` and others accept.
pub fn names<'a>(kind: &Type, items: impl IntoIterator<Item = &'a Value>, with_mesh: bool) -> String {
    items.into_iter().map(|item| format!("{}\n", name_of(kind, item, with_mesh))).collect()
}

/// `meshtimeout/slow`, or `meshtimeout/shop/slow` where the command line does not name the mesh.
pub fn name_of(kind: &Type, item: &Value, with_mesh: bool) -> String {
    let kind_name = kind.name.to_lowercase();
    let Metadata { name, mesh, .. } = read_partly(item);
    let name = line(&name);
    if with_mesh && kind.in_mesh {
        format!("{kind_name}/{}/{name}", line(&mesh))
    } else {
        format!("{kind_name}/{name}")
    }
}

pub fn cells<'a>(kind: &Type, items: impl IntoIterator<Item = &'a Value>, format: OutputFormat) -> Cells {
    let table = Table { kind, items: items.into_iter().collect(), wide: format == OutputFormat::Wide };
    kinds::cells(&table, kind.kind)
}

impl Table<'_> {
    /// The cells with the columns of the kind: those that are always there, and those for which there must be room.
    fn cells<S: DeserializeOwned + Default>(&self, own: Columns<S>, own_wide: Columns<S>) -> Cells {
        let mut columns: Columns<S> = Vec::new();
        if self.kind.in_mesh {
            columns.push(("MESH", |row| line(&row.metadata.mesh)));
        }
        columns.push(("NAME", |row| line(&row.metadata.name)));
        columns.extend(own);
        if self.wide {
            columns.extend(own_wide);
        }
        columns.push(("AGE", |row| row.metadata.creation_time.as_deref().map(since).unwrap_or_default()));
        if self.wide {
            columns.push(("ZONE", |row| line(row.metadata.label(labels::ZONE))));
            columns.push(("ORIGIN", |row| line(row.metadata.label(labels::ORIGIN))));
            columns.push(("LABELS", |row| own_labels(&row.metadata)));
            if self.kind.kind.is_none_or(|known: Kind| known.descriptor().short.is_some()) {
                columns.push(("KRI", |row| row.metadata.kri.as_deref().map(line).unwrap_or_default()));
            }
        }
        let rows: Vec<ShownResource<S>> = self.items.iter().map(|item| ShownResource::read(item)).collect();
        let (titles, rows) = cell::grid(&columns, &rows);
        Cells { titles, rows }
    }
}

/// The labels a user gave; those of the mesh itself have their own columns.
fn own_labels(metadata: &Metadata) -> String {
    let own = |key: &str| !key.starts_with("kuma.io/") && !key.starts_with("k8s.kuma.io/");
    list(metadata.labels.iter().filter(|(key, _)| own(key)), |(key, value)| format!("{key}={}", line(value)))
}
