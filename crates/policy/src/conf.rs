//! The confs of policy entries, and how they are merged.
//!
//! Confs are JSON until they are merged, because a policy says less than a whole conf; what comes out is
//! read into the type of its kind. Many proxies are selected by the same policies, so both happens once
//! per combination of entries: the result stays with the entry of the highest precedence, and goes when
//! one of the policies has another version.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use resources::{naming::Kri, policy::Shape};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::merge;

/// The conf of one entry of a policy.
pub struct Conf {
    /// The policy, with section `rule_<index>`.
    pub origin: Kri,
    pub value: Value,
    /// Merges with confs of lower precedence, computed so far.
    known: Mutex<HashMap<Combination, CachedMerge>>,
}

/// The addresses of the other confs, lowest precedence first, and how they are merged.
type Combination = (Shape, Vec<usize>);

struct CachedMerge {
    /// While these are held, no other conf can have one of the addresses.
    others: Vec<Weak<Conf>>,
    merged: Arc<[Arc<MergedPolicy>]>,
}

impl Conf {
    pub fn new(origin: Kri, value: Value) -> Arc<Conf> {
        Arc::new(Conf { origin, value, known: Mutex::default() })
    }
}

impl PartialEq for Conf {
    fn eq(&self, other: &Conf) -> bool {
        self.origin == other.origin && self.value == other.value
    }
}

impl fmt::Debug for Conf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conf")
            .field("origin", &self.origin)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// Merges confs, given from the lowest precedence to the highest: one result, except for kinds whose confs
/// are grouped by a list ([`Shape::grouped`]).
pub fn merged(confs: &[Arc<Conf>], shape: Shape) -> Arc<[Arc<MergedPolicy>]> {
    let Some((highest, others)) = confs.split_last() else { return Arc::new([]) };
    let combination = (shape, others.iter().map(|conf| Arc::as_ptr(conf).addr()).collect());
    let mut known = highest.known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(CachedMerge { merged, .. }) = known.get(&combination) {
        return merged.clone();
    }
    // Not each time, so that many combinations do not cost their square.
    if known.len().is_power_of_two() {
        known.retain(|_, known| known.others.iter().all(|conf| conf.strong_count() > 0));
    }
    let merged: Arc<[Arc<MergedPolicy>]> = merge::merge(confs, shape).into_iter().map(Arc::new).collect();
    let others = others.iter().map(Arc::downgrade).collect();
    known.insert(combination, CachedMerge { others, merged: merged.clone() });
    merged
}

/// As [`merged`], for combinations that are not asked for again: nothing is kept.
pub fn merged_once(confs: &[Arc<Conf>], shape: Shape) -> Vec<MergedPolicy> {
    merge::merge(confs, shape)
}

/// A merged conf and its sources.
#[derive(Default)]
pub struct MergedPolicy {
    pub conf: Value,
    /// Every entry that took part, lowest precedence first, each once.
    pub origins: Vec<Kri>,
    /// Of each of the `rules` in the conf, the entry of the highest precedence that it was taken from.
    pub rules: Vec<Kri>,
    typed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl MergedPolicy {
    pub(crate) fn new(conf: Value, origins: Vec<Kri>, rules: Vec<Kri>) -> MergedPolicy {
        MergedPolicy { conf, origins, rules, typed: OnceLock::new() }
    }

    /// The conf in the type of its kind, read once. The error says whose policies cannot be read.
    pub fn typed<C: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<C>, String> {
        let known = self.typed.get().cloned().and_then(|known| known.downcast::<C>().ok());
        if let Some(known) = known {
            return Ok(known);
        }
        let read: C = serde_json::from_value(self.conf.clone()).map_err(|error| {
            let origins: Vec<String> = self.origins.iter().map(Kri::to_string).collect();
            format!("{}: cannot be read: {error}", origins.join(", "))
        })?;
        let read = Arc::new(read);
        // Another thread may have been faster; what it read is the same.
        let _ = self.typed.set(read.clone());
        Ok(read)
    }
}

impl PartialEq for MergedPolicy {
    fn eq(&self, other: &MergedPolicy) -> bool {
        self.conf == other.conf && self.origins == other.origins && self.rules == other.rules
    }
}

impl fmt::Debug for MergedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MergedPolicy { conf, origins, rules, .. } = self;
        let mut shown = f.debug_struct("Merged");
        shown.field("conf", conf).field("origins", origins).field("rules", rules).finish_non_exhaustive()
    }
}
