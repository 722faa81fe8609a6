//! Confs of several policies made one.
//!
//! Confs are JSON merge patches (RFC 7396), applied from the lowest precedence to the highest: objects
//! merge field by field, everything else replaces. Three exceptions, see [`Shape`]: `append…` lists grow,
//! `rules` may merge rule by rule, and a grouping list splits the result.

use std::{collections::HashMap, sync::Arc};

use resources::{
    naming::Kri,
    policy::{RuleList, Shape},
};
use serde_json::{Map, Value};

use crate::conf::{Conf, MergedPolicy};

/// The list inside a conf that [`Shape::rules`] is about.
const RULES: &str = "rules";

/// Merges confs into one, or into one per value of the grouping list, in the order in which values appear;
/// confs without such values come last and on their own. Nothing merges to nothing.
pub(crate) fn merge(confs: &[Arc<Conf>], shape: Shape) -> Vec<MergedPolicy> {
    let mut groups: Vec<(Option<&str>, Fold)> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    let mut ungrouped: Option<Fold> = None;
    for conf in confs {
        let list = shape.grouped.and_then(|list| conf.value.get(list)).and_then(Value::as_array);
        let values: Vec<&str> = list.into_iter().flatten().filter_map(Value::as_str).collect();
        for &value in &values {
            let at = *index.entry(value).or_insert_with(|| {
                groups.push((Some(value), Fold::of(shape)));
                groups.len() - 1
            });
            groups[at].1.add(conf);
        }
        if values.is_empty() {
            ungrouped.get_or_insert_with(|| Fold::of(shape)).add(conf);
        }
    }
    let all = groups.into_iter().chain(ungrouped.map(|fold| (None, fold)));
    all.map(|(group, fold)| {
        let mut merged = fold.finish();
        if let (Some(list), Some(group)) = (shape.grouped, group) {
            merged.conf[list] = Value::Array(vec![Value::String(group.to_owned())]);
        }
        merged
    })
    .collect()
}

/// A merge under way.
struct Fold {
    shape: Shape,
    conf: Value,
    origins: Vec<Kri>,
    /// Rules in the order in which they came, each with its origin; `None` before the first list.
    rules: Option<Vec<(Value, Kri)>>,
}

impl Fold {
    fn of(shape: Shape) -> Fold {
        Fold { shape, conf: Value::Null, origins: Vec::new(), rules: None }
    }

    fn add(&mut self, conf: &Conf) {
        // One conf may join a group twice, but only in a row.
        if self.origins.last() != Some(&conf.origin) {
            self.origins.push(conf.origin.clone());
        }
        let rules = conf.value.get(RULES).and_then(Value::as_array);
        let (Some(how), Some(rules)) = (self.shape.rules, rules) else {
            patch(&mut self.conf, &conf.value);
            return;
        };
        let rules = rules.iter().map(|rule| (rule.clone(), conf.origin.clone()));
        let all = self.rules.get_or_insert_default();
        match how {
            RuleList::Replaced => *all = rules.collect(),
            // Turned around in the end, when what has the last word comes first.
            RuleList::ByField(_) => all.extend(rules.rev()),
        }
        let others = conf.value.as_object().into_iter().flatten().filter(|(name, _)| *name != RULES);
        let others: Map<String, Value> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        patch(&mut self.conf, &Value::Object(others));
    }

    fn finish(mut self) -> MergedPolicy {
        let mut origins = Vec::new();
        if let Some(rules) = self.rules {
            let rules = match self.shape.rules {
                Some(RuleList::ByField(field)) => by_field(rules, field),
                Some(RuleList::Replaced) | None => rules,
            };
            let (rules, from): (Vec<Value>, Vec<Kri>) = rules.into_iter().unzip();
            self.conf[RULES] = Value::Array(rules);
            origins = from;
        }
        MergedPolicy::new(self.conf, self.origins, origins)
    }
}

/// Rules that agree in the field merged, at the place and with the origin of the last of them; the last
/// comes first.
fn by_field(rules: Vec<(Value, Kri)>, field: &str) -> Vec<(Value, Kri)> {
    let mut groups: HashMap<String, (usize, Value, Kri)> = HashMap::new();
    for (at, (rule, origin)) in rules.into_iter().enumerate() {
        // Written by the same typed code, so equal fields have equal texts.
        let text = rule.get(field).unwrap_or(&Value::Null).to_string();
        let group = groups.entry(text).or_insert_with(|| (at, Value::Null, origin.clone()));
        patch(&mut group.1, &rule);
        (group.0, group.2) = (at, origin);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|(last, ..)| std::cmp::Reverse(*last));
    groups.into_iter().map(|(_, rule, origin)| (rule, origin)).collect()
}

fn patch(target: &mut Value, conf: &Value) {
    let Value::Object(fields) = conf else {
        *target = conf.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(merged) = target else { return };
    for (name, value) in fields {
        match value {
            Value::Null => {
                merged.remove(name);
            }
            Value::Array(added) if grows(name) => append(merged.entry(name).or_insert(Value::Null), added),
            _ => patch(merged.entry(name).or_insert(Value::Null), value),
        }
    }
}

fn append(target: &mut Value, added: &[Value]) {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    if let Value::Array(list) = target {
        list.extend_from_slice(added);
    }
}

/// Lists named `append…` say in their name that they add to what is there.
fn grows(name: &str) -> bool {
    name.strip_prefix("append").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}
