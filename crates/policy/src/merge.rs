//! Confs of several policies made one, remembering where each value came from.
//!
//! Confs are JSON merge patches (RFC 7396), applied from the lowest precedence to the highest: objects
//! merge field by field, everything else replaces. Three exceptions, see [`Shape`]: `append…` lists grow,
//! keyed lists merge entry by entry, and a grouping list splits the result.

use std::collections::{BTreeMap, HashMap};

use resources::{Kind, naming::Kri};
use serde_json::{Map, Value};

/// A merged conf and its sources.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    pub conf: Value,
    /// Every entry that took part, lowest precedence first, each once.
    pub origins: Vec<Kri>,
    /// The entry each value was taken from, by JSON pointer (`/http/requestTimeout`).
    pub values: BTreeMap<String, Kri>,
}

impl Merged {
    /// The entry that the value at a JSON pointer was taken from.
    pub fn origin_of(&self, pointer: &str) -> Option<&Kri> {
        self.values.get(pointer)
    }
}

/// What is special about the confs of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// A list whose entries merge when they agree in a field: (list, field).
    pub keyed: Option<(&'static str, &'static str)>,
    /// Whether the keyed list is read from its beginning, so that what has the last word comes first.
    pub first_wins: bool,
    /// A list of strings; each of its values gets a merged conf of its own.
    pub grouped: Option<&'static str>,
}

impl Shape {
    pub fn of(kind: Kind) -> Shape {
        match kind {
            Kind::MeshHTTPRoute => {
                Shape { keyed: Some(("rules", "matches")), first_wins: true, grouped: Some("hostnames") }
            }
            _ => Shape::default(),
        }
    }
}

/// Merges confs, given from the lowest precedence to the highest, into one; `None` without confs.
pub fn merge<'a>(confs: impl IntoIterator<Item = (Kri, &'a Value)>, shape: Shape) -> Option<Merged> {
    let mut confs = confs.into_iter().peekable();
    confs.peek()?;
    let mut fold = Fold { shape, ..Fold::default() };
    for (origin, conf) in confs {
        fold.add(&origin, conf);
    }
    Some(fold.finish())
}

/// Merges confs into one per value of the grouping list, in the order in which values appear. Confs
/// without such values come last and on their own.
pub fn merge_grouped<'a>(confs: impl IntoIterator<Item = (Kri, &'a Value)>, shape: Shape) -> Vec<Merged> {
    let Some(list) = shape.grouped else { return merge(confs, shape).into_iter().collect() };
    let mut groups: Vec<(String, Fold)> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut ungrouped: Option<Fold> = None;
    let empty = || Fold { shape, ..Fold::default() };
    for (origin, conf) in confs {
        let values = conf.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut found = false;
        for value in values.iter().filter_map(Value::as_str) {
            found = true;
            let at = *index.entry(value.to_owned()).or_insert_with(|| {
                groups.push((value.to_owned(), empty()));
                groups.len() - 1
            });
            groups[at].1.add(&origin, conf);
        }
        if !found {
            ungrouped.get_or_insert_with(empty).add(&origin, conf);
        }
    }
    let grouped = groups.into_iter().map(|(value, fold)| {
        let mut merged = fold.finish();
        merged.conf[list] = Value::Array(vec![Value::String(value)]);
        merged
    });
    grouped.chain(ungrouped.map(Fold::finish)).collect()
}

/// A merge under way.
#[derive(Default)]
struct Fold {
    shape: Shape,
    merged: Merged,
    /// Entries of the keyed list, in the order in which they came.
    keyed: Vec<(Value, Kri)>,
    has_keyed: bool,
}

impl Fold {
    fn add(&mut self, origin: &Kri, conf: &Value) {
        // One conf may join a group twice, but only in a row.
        if self.merged.origins.last() != Some(origin) {
            self.merged.origins.push(origin.clone());
        }
        let keyed = self.shape.keyed.map(|(list, _)| list).filter(|list| conf.get(list).is_some());
        let Some(list) = keyed else {
            patch(&mut self.merged.conf, conf, origin, "", &mut self.merged.values);
            return;
        };
        self.has_keyed = true;
        let before = self.keyed.len();
        let entries = conf.get(list).and_then(Value::as_array).into_iter().flatten();
        self.keyed.extend(entries.map(|entry| (entry.clone(), origin.clone())));
        if self.shape.first_wins {
            self.keyed[before..].reverse();
        }
        let others = conf.as_object().into_iter().flatten().filter(|(name, _)| name.as_str() != list);
        let others: Map<String, Value> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        patch(&mut self.merged.conf, &Value::Object(others), origin, "", &mut self.merged.values);
    }

    fn finish(mut self) -> Merged {
        let (Some((list, key)), true) = (self.shape.keyed, self.has_keyed) else { return self.merged };
        let mut groups = by_key(self.keyed, key);
        if self.shape.first_wins {
            groups.reverse();
        }
        let mut result = Vec::new();
        for (at, entries) in groups.into_iter().enumerate() {
            let mut merged = Value::Null;
            for (entry, origin) in &entries {
                patch(&mut merged, entry, origin, &format!("/{list}/{at}"), &mut self.merged.values);
            }
            result.push(merged);
        }
        self.merged.conf[list] = Value::Array(result);
        self.merged
    }
}

/// Entries with equal keys together, at the place of the last of them.
fn by_key(entries: Vec<(Value, Kri)>, key: &str) -> Vec<Vec<(Value, Kri)>> {
    let mut groups: HashMap<String, (usize, Vec<(Value, Kri)>)> = HashMap::new();
    for (at, (entry, origin)) in entries.into_iter().enumerate() {
        // Keys were written by the same typed code, so equal keys have equal texts.
        let text = entry.get(key).unwrap_or(&Value::Null).to_string();
        let group = groups.entry(text).or_default();
        group.0 = at;
        group.1.push((entry, origin));
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|(last, _)| *last);
    groups.into_iter().map(|(_, entries)| entries).collect()
}

/// Applies one conf. `at` is the JSON pointer of `target`.
fn patch(target: &mut Value, conf: &Value, origin: &Kri, at: &str, values: &mut BTreeMap<String, Kri>) {
    let Value::Object(fields) = conf else {
        forget(at, values);
        *target = conf.clone();
        values.insert(at.to_owned(), origin.clone());
        return;
    };
    if !target.is_object() {
        forget(at, values);
        *target = Value::Object(Map::new());
    }
    let Value::Object(merged) = target else { return };
    for (name, value) in fields {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Null => {
                forget(&at, values);
                merged.remove(name);
            }
            Value::Array(added) if grows(name) => {
                append(merged.entry(name).or_insert(Value::Null), added, origin, &at, values);
            }
            _ => patch(merged.entry(name).or_insert(Value::Null), value, origin, &at, values),
        }
    }
}

fn append(target: &mut Value, added: &[Value], origin: &Kri, at: &str, values: &mut BTreeMap<String, Kri>) {
    if !target.is_array() {
        forget(at, values);
        *target = Value::Array(Vec::new());
    }
    let Value::Array(list) = target else { return };
    for value in added {
        values.insert(format!("{at}/{}", list.len()), origin.clone());
        list.push(value.clone());
    }
}

/// Lists named `append…` say in their name that they add to what is there.
fn grows(name: &str) -> bool {
    name.strip_prefix("append").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Drops the origins of a value that is replaced, and of everything in it.
fn forget(at: &str, values: &mut BTreeMap<String, Kri>) {
    values.remove(at);
    let inside = format!("{at}/");
    let gone: Vec<String> = values
        .range(inside.clone()..)
        .map(|(p, _)| p)
        .take_while(|p| p.starts_with(&inside))
        .cloned()
        .collect();
    for pointer in gone {
        values.remove(&pointer);
    }
}
