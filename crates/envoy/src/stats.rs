//! Statistics of a proxy, by the names of its objects.
//!
//! Envoy's statistics are lines such as `cluster.self_backend-kumahq.com.upstream_cx_total: 7`. Where the
//! name of the object ends cannot be seen in a line, because names have dots. So the longest known name is
//! the one ([`names`]); known are the names of the plan, and those that Envoy itself shows to have.
//!
//! Nothing is left out but histograms without a value: a line of no known object is listed under the first
//! word of its name.

mod line;
mod names;

use std::collections::BTreeMap;

use plan::{Meaning, Role};
use resources::naming::{Class, Kri, classify_stat};
use serde::Serialize;

use self::line::Reader;

/// The statistics of a proxy by the name of the object they are about.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub unified_naming: bool,
    pub resources: BTreeMap<String, ObjectStats>,
}

/// Statistics under one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectStats {
    /// `kri`, `self`, `system`, `legacy` or `other`.
    pub class: &'static str,
    /// The resource, or the part of one, that the name stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<Kri>,
    /// Link to that resource in the REST API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// By family (`cluster`, `http`, `listener`, `rbac`, `sds`, `tcp`), then by the rest of the name.
    pub stats: BTreeMap<String, BTreeMap<String, StatValue>>,
}

/// A number, or the text that Envoy writes otherwise: a value, or the percentiles of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StatValue {
    Number(u64),
    Text(String),
}

/// Tells the answer of Envoy's `/stats`; `known` says what the names of the proxy stand for.
pub fn summary(text: &str, known: &BTreeMap<String, Meaning>, unified_naming: bool) -> Summary {
    let known = as_in_stats(known);
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    let reader = Reader::new(known.keys().map(String::as_str), lines.iter().map(|(name, _)| *name));
    let mut resources: BTreeMap<String, ObjectStats> = BTreeMap::new();
    for (name, value) in lines {
        let Some(value) = StatValue::read(value) else { continue };
        let read = reader.read(name);
        if !resources.contains_key(read.object) {
            resources.insert(read.object.to_owned(), ObjectStats::new(read.object, known.get(read.object)));
        }
        if let Some(object) = resources.get_mut(read.object) {
            object.add(read.family, read.stat, value);
        }
    }
    Summary { unified_naming, resources }
}

/// Envoy has no colons in names of statistics.
fn as_in_stats(known: &BTreeMap<String, Meaning>) -> BTreeMap<String, &Meaning> {
    let (plain, others): (Vec<_>, Vec<_>) = known.iter().partition(|(name, _)| !name.contains(':'));
    let mut spelled: BTreeMap<String, &Meaning> =
        plain.into_iter().map(|(name, meaning)| (name.clone(), meaning)).collect();
    for (name, meaning) in others {
        spelled.entry(name.replace(':', "_")).or_insert(meaning);
    }
    spelled
}

impl StatValue {
    /// `None` for a histogram that has seen nothing yet.
    fn read(value: &str) -> Option<StatValue> {
        if value == "No recorded values" {
            return None;
        }
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Some(match value.parse() {
            Ok(number) => StatValue::Number(number),
            Err(_) => StatValue::Text(quoted.unwrap_or(value).to_owned()),
        })
    }
}

impl ObjectStats {
    fn new(name: &str, meaning: Option<&&Meaning>) -> ObjectStats {
        let shape = classify_stat(name);
        let kri = meaning.and_then(|meaning| meaning.kri.clone()).or_else(|| shape.kri().cloned());
        ObjectStats {
            class: class(&shape, meaning.copied()),
            link: kri.as_ref().map(|kri| format!("/_kri/{kri}")),
            kri,
            stats: BTreeMap::new(),
        }
    }

    fn add(&mut self, family: &str, stat: &str, value: StatValue) {
        let family = match self.stats.get_mut(family) {
            Some(family) => family,
            None => self.stats.entry(family.to_owned()).or_default(),
        };
        // Two filters may ask the same permissions; what they count is counted together.
        let value = match (family.get(stat), value) {
            (Some(StatValue::Number(one)), StatValue::Number(other)) => {
                StatValue::Number(one.saturating_add(other))
            }
            (_, value) => value,
        };
        family.insert(stat.to_owned(), value);
    }
}

/// A planned name is of the scheme it was given by, also if a service happens to be called like another.
fn class(shape: &Class, meaning: Option<&Meaning>) -> &'static str {
    let Some(meaning) = meaning else { return shape.as_str() };
    let by_scheme = match (shape, meaning.role) {
        (Class::Kri(kri), _) => meaning.kri.as_ref() == Some(kri),
        (Class::SelfName(_), role) => matches!(role, Role::Inbound | Role::Passthrough),
        (Class::System(_), role) => role == Role::System,
        _ => false,
    };
    if by_scheme { shape.as_str() } else { "legacy" }
}
