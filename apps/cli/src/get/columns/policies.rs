//! Columns of policies: what they target.

use contract::resource::{ShownResource, SpecAndStatus};
use resources::{Kind, kinds::target_ref::TargetRef, labels};
use serde::{Deserialize, de::IgnoredAny};

use super::{Cells, Columns, Table};
use crate::cell::{line, list};

/// A policy of any kind.
type Policy = SpecAndStatus<Targets>;

/// The targets of a policy: of it as a whole, and of its entries.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Targets {
    target_ref: TargetRef,
    to: Vec<Entry>,
    from: Vec<Entry>,
    rules: Vec<IgnoredAny>,
}

/// An entry of `to` or `from`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    target_ref: TargetRef,
}

pub fn cells(table: &Table<'_>, kind: Kind) -> Cells {
    let own: Columns<Policy> =
        vec![("TARGETREF", |row| target(&row.of.spec.target_ref)), ("SELECTS", selects)];
    let mut wide: Columns<Policy> = Vec::new();
    if kind.descriptor().policy.is_some_and(|policy| policy.top.is_some()) {
        wide.push(("ROLE", |row| line(row.metadata.label(labels::POLICY_ROLE))));
    }
    table.cells(own, wide)
}

/// `Mesh`, `MeshService/backend`, `Dataplane{app=web}`.
fn target(of: &TargetRef) -> String {
    let kind = line(of.kind.as_str());
    if kind.is_empty() {
        return "Mesh".to_owned();
    }
    let name = of.name.as_deref().map(line).unwrap_or_default();
    let pairs = of.labels.iter().chain(&of.tags).flatten();
    let pairs = list(pairs, |(key, value)| format!("{key}={}", line(value)));
    let section = of.section_name.as_deref().map(line).unwrap_or_default();
    let mut shown = kind;
    if !name.is_empty() {
        shown = format!("{shown}/{name}");
    }
    if !pairs.is_empty() {
        shown = format!("{shown}{{{pairs}}}");
    }
    if section.is_empty() { shown } else { format!("{shown}:{section}") }
}

/// Targets of a policy, by its lists: `to MeshService/backend; rules 2`.
fn selects(row: &ShownResource<Policy>) -> String {
    let Targets { target_ref: _, to, from, rules } = &row.of.spec;
    let mut parts = Vec::new();
    for (word, entries) in [("to", to), ("from", from)] {
        let targets = list(entries, |entry| target(&entry.target_ref));
        if !targets.is_empty() {
            parts.push(format!("{word} {targets}"));
        }
    }
    if !rules.is_empty() {
        parts.push(format!("rules {}", rules.len()));
    }
    parts.join("; ")
}
